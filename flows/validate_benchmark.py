"""validate-benchmark: hold a run's judge against the people who reviewed a sample, and decide on its release."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.build_benchmark import finish, plain, record, recorded
from flows.config import merge, resolve
from flows.sampling import sample_step
from flows.steps import Step, run_step
from pipeline import validated
from pipeline.artifacts import Output, Run, Tables
from pipeline.calibration import fitted_thresholds
from pipeline.corpora import tenants
from pipeline.errors import ArtifactError
from pipeline.validation import (
    GATE,
    REVIEWS_STAGE,
    VALIDATE,
    answers_fingerprint,
    demand,
    gate,
    validate,
    write_reviews,
)
from pipeline.views import all_tables
from schemas.settings import Settings


@flow(name="validate-benchmark", persist_result=False)
def validate_benchmark(out: str, settings: dict[str, Any] | None = None) -> State[None]:
    """Compare the judge with people, redo the run's card, and fail where the judge falls short of what is asked.

    Args:
        out: the run's folder or s3:// prefix.
        settings: what differs from the run's own settings, in the sections validation, review and seed.
    """
    run = Run(out)
    with run.lock():
        docs, queries, before = recorded(run)
        chosen = resolve(merge(before.model_dump(mode="json"), settings or {}))
        for step in validation_steps(run, chosen):
            run_step(run, step)
        record(run, docs, queries, chosen)
        finish(run, chosen)
    return Completed(message=decide(run))


def validation_steps(run: Run, settings: Settings) -> list[Step]:
    """The stages, in data order."""
    wanted = settings.validation
    return [
        sample_step(settings),
        Step(
            REVIEWS_STAGE,
            {},
            lambda _, output: write_reviews(run.store, output),
            lambda: {"the reviewers' answers": answers_fingerprint(run.store)},
        ),
        _validate_step(settings),
        Step(GATE, plain(wanted, leave="bootstrap"), lambda tables, output: gate(tables, output, wanted)),
    ]


def _validate_step(settings: Settings) -> Step:
    judge, wanted, seed = settings.judge, settings.validation, settings.seed
    fitted = judge.threshold == "fitted"
    none = bool(judge.panel) and judge.vote == "majority"

    def thresholds(tables: Tables) -> Mapping[str, float]:
        if none:
            return {}
        return fitted_thresholds(tables) if fitted else dict.fromkeys(tenants(tables, "pool"), judge.cut)

    def work(tables: Tables, output: Output) -> None:
        validate(tables, output, wanted, thresholds=thresholds(tables), seed=seed)

    return Step(
        replace(VALIDATE, reads=(*VALIDATE.reads, "calibration")) if fitted else VALIDATE,
        {"bootstrap": wanted.bootstrap, "seed": seed, "threshold": None if none else judge.threshold},
        work,
    )


def decide(run: Run) -> str:
    """Say whether the run may be published, as far as that was asked.

    Raises:
        NotPublishable: a figure is not as asked; what is unknown is not.
        ArtifactError: nothing is labelled, and nothing was asked.
    """
    tables = all_tables(run)
    rows = validated.release(tables)
    if validated.outcome(rows) == "not asked":
        _demand_labels(run, tables)
        return "Nothing was asked for: --min-kappa, --max-null-rate and --min-recall decide on a release."
    demand(rows, run.store.url)
    reached = ", ".join(f"{row['figure']} is {row['value']:.3f} ({row['asked']:g})" for row in rows if row["passed"])
    return f"{run.store.url} may be published: {reached}; what was asked for stands in brackets."


def _demand_labels(run: Run, tables: Tables) -> None:
    counts = tables.sql(
        "SELECT labelled, outside FROM validation WHERE tenant IS NULL AND retriever IS NULL"
    ).to_pylist()
    if any(row["labelled"] for row in counts):
        return
    outside = sum(row["outside"] for row in counts)
    others = f" ({outside:,} labels are of pairs outside the sample)" if outside else ""
    raise ArtifactError(
        f"no pair of the sample of {run.store.url} has a human label yet{others}; label some with `darklode review "
        f"{run.store.url}`, then validate again"
    )
