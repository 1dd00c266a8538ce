"""adapt-tenants: a head for each tenant of runs, over one base, in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import yaml

from darklode.flows.jobs.adapt_encoder import WARM, initialized_base, judges_of, open_base, place, steps
from darklode.flows.prefect.progress import reporter
from darklode.flows.runs import ADAPTED, SETTINGS, note, read_inputs, read_notes
from darklode.flows.stage_runner import run_step
from darklode.pipeline.base.artifacts import Run, Step, call, key_of
from darklode.pipeline.base.duckdb_views import views_sql
from darklode.pipeline.base.errors import NoLift, SettingsError
from darklode.pipeline.train.data.unjudged import UnjudgedJudges
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.requirements import check_parts
from darklode.pipeline.train.fit.tenants import TENANTS, TenantJob, place_of, save_head
from darklode.pipeline.train.fit.tenants import adapt_tenants as adapt_each
from darklode.schemas.adaptation import HEADS
from darklode.schemas.settings import Settings

COUNTS = """
    SELECT coalesce(shipped, 'rejected') AS shipped, count(*) AS tenants, sum(queries) AS test_queries,
           avg(difference) AS mean_difference, min(low) AS lowest_low
    FROM adapted_tenants GROUP BY 1 ORDER BY 1
"""


def adapt_tenants(
    runs: Sequence[str],
    encoder: str,
    out: str,
    tenants: Sequence[str] = (),
    settings: dict[str, Any] | None = None,
    warm_start: str | None = None,
) -> str:
    """Adapt a query encoder to each tenant's labels alone; each has a folder, a verdict and a fingerprint of its own.

    Args:
        runs: folders or s3:// prefixes of builds and mined runs; settings start from those of the first.
        encoder: a name among the settings' encoders, or a sentence-transformers model.
        out: folder or s3:// prefix of all of them.
        tenants: whose; none: all that have triplets.
        settings: what differs from the first run's own settings.
        warm_start: a registry, whose live adapter of each tenant its training begins with.

    Returns:
        How many are adapted.

    Raises:
        NoLift: none is.
        MissingPart: the method needs what is not installed, or a judge of the runs lacks a key or its server.
        SettingsError: the method is not one of heads, or none that can begin with what is live.
    """
    made = [read_inputs(Run(url)) for url in runs]
    chosen = made[0].with_overrides(settings or {})
    if chosen.adapt.method not in HEADS:
        raise SettingsError(
            f"adapt.method {chosen.adapt.method} makes a whole encoder of each tenant: {', '.join(HEADS)} share one"
        )
    check_parts(chosen.adapt.method)
    base, run = open_base(runs, made, encoder, chosen), place(out)
    with run.lock():
        note(run, {ADAPTED: list(runs), "encoder": encoder})
        run.store.write(SETTINGS, yaml.safe_dump(chosen.model_dump(mode="json"), sort_keys=False).encode())
        judges = judges_of(base, made)
        step = _step(run, base, chosen, sorted(tenants), judges, warm_start)
        if not step.plan(run).is_up_to_date:
            judges.check(chosen.adapt.unjudged_budget, None)
        run_step(run, step)
        run.store.write("views.sql", views_sql(run).encode())
        reporter().table("Tenants by what is handed over", run.tables("adapted_tenants").sql(COUNTS))
    return format_summary(run)


def _step(
    run: Run,
    base: BaseEncoder,
    settings: Settings,
    tenants: list[str],
    judges: UnjudgedJudges,
    warm_start: str | None,
) -> Step:
    """The one stage: each tenant's own stages are in its folder."""

    def job(tenant: str) -> TenantJob:
        tenant_settings = settings.model_copy(update={"adapt": settings.adapt.model_copy(update={"tenant": tenant})})
        own = Run(f"{run.store.url}/{place_of(tenant)}")

        def open_base() -> tuple[list[Step], Callable[[], None]]:
            initialized = initialized_base(own, base, tenant_settings, warm_start) if warm_start else base
            note(own, read_notes(run) | {WARM: initialized.start.url if initialized.start else ""})
            own.store.write(SETTINGS, yaml.safe_dump(tenant_settings.model_dump(mode="json"), sort_keys=False).encode())
            return steps(initialized, tenant_settings, judges), lambda: save_head(
                own, initialized, tenant_settings.adapt
            )

        return TenantJob(tenant, own, open_base)

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
            **({"where each begins": warm_start} if warm_start else {}),
        }

    return Step(TENANTS, call(adapt_each, tenants=tenants, job=job), inputs, untracked=("job",), source=base.sources)


def format_summary(run: Run) -> str:
    """How many are adapted, in a sentence.

    Raises:
        NoLift: none is.
    """
    rows = run.tables("adapted_tenants").read("adapted_tenants")
    counts = {count["values"]: count["counts"] for count in rows["shipped"].value_counts().to_pylist()}
    adapted, stays = counts.get("adapted", 0), counts.get("base", 0)
    sentence = (
        f"{rows.num_rows:,} tenants: {adapted:,} adapted, {stays:,} with the base, {counts.get(None, 0):,} rejected"
    )
    if not adapted:
        raise NoLift(f"{sentence}; {run.store.path('tables/adapted_tenants')} has the reasons")
    return f"{sentence}: {run.store.url}/tenants"
