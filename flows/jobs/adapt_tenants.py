"""adapt-tenants: a head for each tenant of runs, on one base encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.compute as pc

from darklode.flows.jobs.adapt_encoder import (
    adapter_inputs,
    initialized_base,
    judges_of,
    open_base,
    steps,
    unopened_base,
    with_adapt,
)
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.prefect.progress import reporter
from darklode.flows.runs import output_run, read_runs, write_run
from darklode.flows.stage_runner import publish, run_step
from darklode.pipeline.base.artifacts import Run, Step, call, key_of
from darklode.pipeline.base.errors import NoLift, SettingsError
from darklode.pipeline.evaluate.paired import ResamplingSettings
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.pipeline.train.release.pooled_tenants import (
    POOLED_STAGE,
    delete_pooled_head,
    pooled_card,
    save_pooled_heads,
    train_pooled_head,
)
from darklode.pipeline.train.release.tenants import TENANTS_STAGE, TenantJob, save_head, tenant_folder
from darklode.pipeline.train.release.tenants import adapt_tenants as adapt_each
from darklode.pipeline.train.release.unjudged import NO_JUDGES, UnjudgedJudges
from darklode.schemas.adaptation import HEADS
from darklode.schemas.pooled_tables import POOLED_TENANTS
from darklode.schemas.run_inputs import TenantAdaptersInputs
from darklode.schemas.settings import Settings

TENANT_COUNTS_SQL = """
    SELECT coalesce(shipped, 'rejected') AS shipped, count(*) AS tenants, sum(queries) AS test_queries,
           avg(difference) AS mean_difference, min(low) AS lowest_low
    FROM adapted_tenants GROUP BY 1 ORDER BY 1
"""


def adapt_tenants(  # noqa: PLR0913 (the parameters of the Prefect flow)
    runs: Sequence[str],
    encoder: str,
    out: str,
    tenants: Sequence[str] = (),
    settings: dict[str, Any] | None = None,
    warm_start: str | None = None,
    *,
    pool_tenants: bool = False,
) -> str:
    """Adapt a query encoder to each tenant's labels; each tenant has its own folder, verdict and fingerprint.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; the first one's settings are the base.
        encoder: name of an encoder in the settings, or a sentence-transformers model.
        out: folder or s3:// prefix of all adapters.
        tenants: tenants to adapt to; empty: all with triplets.
        settings: overrides of the first run's settings.
        warm_start: a registry; each tenant's training starts from its live adapter.
        pool_tenants: also train one head on the rows of all these tenants, for those whose own head shows no lift.

    Returns:
        How many tenants were adapted.

    Raises:
        NoLift: none was.
        MissingPart: the method needs a package that is not installed, or a run's judge lacks a key or its server.
        SettingsError: the method does not train a head, or cannot start from the live adapter; or pooling with a warm
            start.
    """
    if pool_tenants and warm_start:
        raise SettingsError("--pool-tenants trains from the base encoder: leave out --warm-start")
    records = read_runs(runs)
    resolved = records[0].with_overrides(settings or {})
    resolved = with_adapt(resolved, resolved.adapt.with_head())
    if resolved.adapt.method not in HEADS:
        raise SettingsError(
            f"adapt.method {resolved.adapt.method} trains a whole encoder per tenant; use {' or '.join(HEADS)}, whose "
            "heads share one encoder"
        )
    check_parts(resolved.adapt.method)
    base, run = open_base(records, encoder, resolved), output_run(out, TenantAdaptersInputs)
    with run.lock():
        inputs = TenantAdaptersInputs(runs=list(runs), encoder=encoder, pooled=pool_tenants or None)
        write_run(run, inputs, resolved)
        judges = judges_of(base, records)
        step = _step(run, base, resolved, sorted(tenants), judges, inputs, warm_start)
        if not step.plan(run).is_up_to_date:
            judges.check(resolved.adapt.unjudged_budget, None)
        run_step(run, step)
        if pool_tenants:
            run_step(run, _pooled_step(run, base, resolved, step))
            save_pooled_heads(run, base, resolved.adapt, _opener(run))
        else:
            delete_pooled_head(run)
        publish(run, pooled_card(run, _count_released(run)) if pool_tenants else None)
        reporter().table("Tenants by released encoder", run.tables("adapted_tenants").sql(TENANT_COUNTS_SQL))
    return format_summary(run)


def _opener(run: Run) -> Callable[[str], Run]:
    """Returns a function that opens a tenant's folder."""
    return lambda tenant: Run(f"{run.store.url}/{tenant_folder(tenant)}")


def _pooled_step(run: Run, base: BaseEncoder, settings: Settings, own: Step) -> Step:
    """The head that all tenants share; trained again whenever the tenants' own heads are."""
    chance = ResamplingSettings(settings.evaluate.n_resamples, settings.evaluate.permutations, settings.seed)
    return Step(
        POOLED_STAGE,
        call(train_pooled_head, settings.adapt, base, chance, open_run=_opener(run)),
        own.inputs,
        untracked=("settings", "base", "chance", "open_run"),
    )


def _step(  # noqa: PLR0913, PLR0917 (all that a tenant's training depends on)
    run: Run,
    base: BaseEncoder,
    settings: Settings,
    tenants: list[str],
    judges: UnjudgedJudges,
    origin: TenantAdaptersInputs,
    warm_start: str | None,
) -> Step:
    """The only step; the steps of each tenant run in the tenant's own folder."""

    def job(tenant: str) -> TenantJob:
        tenant_settings = settings.model_copy(update={"adapt": settings.adapt.model_copy(update={"tenant": tenant})})
        tenant_run = Run(f"{run.store.url}/{tenant_folder(tenant)}")

        def begin() -> tuple[list[Step], Callable[[], None]]:
            initialized = initialized_base(tenant_run, base, tenant_settings, warm_start) if warm_start else base
            write_run(tenant_run, adapter_inputs(origin.runs, origin.encoder, initialized), tenant_settings)
            return steps(initialized, tenant_settings, judges, term_vectors=False), lambda: save_head(
                tenant_run, initialized, tenant_settings.adapt
            )

        return TenantJob(tenant, tenant_run, begin)

    def inputs() -> dict[str, str]:
        return {
            "the runs": key_of([source.content() for source in base.sources]),
            "the encoder": key_of(base.identity),
            "the settings": key_of(
                settings.adapt.but("tenant").decisive(),
                settings.evaluate.only("n_resamples", "permutations").decisive(),
            ),
            "the seed": key_of(settings.seed),
            "the judges": key_of(judges.identity),
            "the stages": key_of({step.stage.name: step.stage.version for step in steps(base, settings)}),
            **({"where each begins": warm_start} if warm_start else {}),
            **({"pooled": f"version {POOLED_STAGE.version}"} if origin.pooled else {}),
        }

    return Step(
        TENANTS_STAGE, call(adapt_each, tenants=tenants, job=job), inputs, untracked=("job",), source=base.sources
    )


def format_summary(run: Run) -> str:
    """How many tenants were adapted, in a sentence.

    Raises:
        NoLift: none was.
    """
    counts = _count_released(run)
    sentence = f"{sum(counts.values()):,} tenants: {', '.join(f'{count:,} {name}' for name, count in counts.items())}"
    if not counts["adapted"] + counts.get(POOLED, 0):
        raise NoLift(f"{sentence}; {run.store.path('tables/adapted_tenants')} has the reasons")
    return f"{sentence}: {run.store.url}/tenants"


POOLED = "with the pooled head"


def _count_released(run: Run) -> dict[str, int]:
    """Number of tenants by released encoder, in words."""
    shipped = run.tables("adapted_tenants").read("adapted_tenants")["shipped"]
    counts = {count["values"]: count["counts"] for count in shipped.value_counts().to_pylist()}
    pooled = {}
    if run.manifest(POOLED_STAGE) is not None:
        released = run.tables(POOLED_TENANTS.name).read(POOLED_TENANTS.name)["released"]
        pooled[POOLED] = int(pc.sum(released).as_py() or 0)
    unchanged = counts.get("base", 0) - pooled.get(POOLED, 0)
    return {"adapted": counts.get("adapted", 0), **pooled, "with the base": unchanged, "rejected": counts.get(None, 0)}


def _planned_steps(run: Run, inputs: TenantAdaptersInputs, settings: Settings) -> list[Step]:
    base = unopened_base(inputs.encoder, settings)
    step = _step(run, base, settings, [], NO_JUDGES, inputs, None)
    return [step, *([_pooled_step(run, base, settings, step)] if inputs.pooled else [])]


JOB = Job(
    "adapt-tenants",
    adapt_tenants,
    TenantAdaptersInputs,
    _planned_steps,
    sections=("adapting", *RUN_SECTIONS),
    refusals=(NoLift,),
)
