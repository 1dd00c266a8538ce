"""validate-benchmark: hold a run's judge against the people who reviewed a sample, and decide on its release."""

from dataclasses import replace
from typing import Any, Literal

from darklode.flows.jobs import build_benchmark
from darklode.flows.paths import Place
from darklode.flows.runs import benchmark, record
from darklode.flows.stage_runner import finish, run_step
from darklode.pipeline.base.artifacts import Output, Run, Step, Tables, call
from darklode.pipeline.base.chunk_texts import tenants
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.judge.calibration import fitted_thresholds
from darklode.pipeline.validate.gate import GATE, gate, release, release_outcome, require_release
from darklode.pipeline.validate.labels import REVIEWS_STAGE, answers_fingerprint, write_reviews
from darklode.pipeline.validate.review.journal import FOLDER
from darklode.pipeline.validate.sample import REVIEW_SAMPLE_STAGE, review_sample
from darklode.pipeline.validate.stage import VALIDATE, validate
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.settings import Settings


def validate_benchmark(out: Place, settings: dict[str, Any] | None = None) -> str:
    """Compare the judge with people, redo the run's card, and fail where the judge falls short of what is asked.

    Args:
        out: the run's folder or s3:// prefix.
        settings: what differs from the run's own settings, in the sections validation, review and seed.

    Returns:
        What `decide` says.
    """
    run = Run(out)
    check_reviewed(run, settings)
    with run.lock():
        made = benchmark(run)
        chosen = made.with_overrides(settings or {})
        for step in steps(run, chosen):
            run_step(run, step)
        record(run, made.inputs, chosen)
        finish(run, chosen, build_benchmark.steps(made.inputs["docs"], made.inputs["queries"], chosen))
    return decide(run)


def check_reviewed(run: Run, settings: dict[str, Any] | None = None) -> None:
    """See that there is something to validate, before any stage works.

    Args:
        run: a build.
        settings: as for `validate_benchmark`.

    Raises:
        ArtifactError: nobody has answered yet, and no bound was asked for that could fail for that reason.
    """
    validation_settings = benchmark(run).with_overrides(settings or {}).validation
    limits = (validation_settings.min_kappa, validation_settings.max_null_rate, validation_settings.min_recall)
    if all(bound is None for bound in limits) and not run.store.sizes(FOLDER):
        raise ArtifactError(_no_labels(run))


def steps(run: Run, settings: Settings) -> list[Step]:
    """The stages, in data order."""
    judge, seed = settings.judge, settings.seed
    # A majority compares no probability with a threshold.
    threshold = None if judge.panel and judge.vote == "majority" else judge.threshold
    sampling = REVIEW_SAMPLE_STAGE
    if judge.strategy == "adaptive":
        sampling = replace(sampling, reads=(*sampling.reads, "unjudged"))
    validating = replace(VALIDATE, reads=(*VALIDATE.reads, "calibration")) if judge.threshold == "fitted" else VALIDATE
    return [
        Step(sampling, call(review_sample, settings.review, seed=seed)),
        Step(
            REVIEWS_STAGE,
            call(write_reviews),
            lambda: {"the reviewers' answers": answers_fingerprint(run.store)},
            source=run.store,
        ),
        Step(validating, call(_validate, settings.evaluate.only("n_resamples"), threshold=threshold, seed=seed)),
        Step(GATE, call(gate, settings.validation)),
    ]


def draw_sample(run: Run, settings: Settings) -> None:
    """Draw the sample of a run unless it stands, without a flow around it: the first of the stages.

    Raises:
        ArtifactError: the run has no verdicts yet, or another process is writing to it.
    """
    step = steps(run, settings)[0]
    with run.lock():
        plan = step.plan(run)
        if not plan.is_up_to_date:
            run.execute(plan, step.execute)


def _validate(
    tables: Tables,
    output: Output,
    settings: EvaluateSettings,
    *,
    threshold: float | Literal["fitted"] | None,
    seed: int,
) -> None:
    if threshold is None:
        thresholds = {}
    elif threshold == "fitted":
        thresholds = fitted_thresholds(tables)
    else:
        thresholds = dict.fromkeys(tenants(tables, "pool"), threshold)
    validate(tables, output, settings, thresholds=thresholds, seed=seed)


def decide(run: Run) -> str:
    """Say whether the run may be published, as far as that was asked.

    Raises:
        NotPublishable: a figure is not as asked; what is unknown is not.
        ArtifactError: nothing is labelled, and nothing was asked.
    """
    tables = all_tables(run)
    rows = release(tables)
    if release_outcome(rows) == "not asked":
        _require_labels(run, tables)
        return "Nothing was asked for: --min-kappa, --max-null-rate and --min-recall decide on a release."
    require_release(rows, run.store.url)
    passed_text = ", ".join(
        f"{row['figure']} is {row['value']:.3f} ({row['asked']:g})" for row in rows if row["passed"]
    )
    return f"{run.store.url} may be published: {passed_text}; what was asked for stands in brackets."


def _require_labels(run: Run, tables: Tables) -> None:
    counts = tables.sql(
        "SELECT labelled, outside FROM validation WHERE tenant IS NULL AND retriever IS NULL"
    ).to_pylist()
    if any(row["labelled"] for row in counts):
        return
    outside = sum(row["outside"] for row in counts)
    outside_text = f" ({outside:,} labels are of pairs outside the sample)" if outside else ""
    raise ArtifactError(_no_labels(run, outside_text))


def _no_labels(run: Run, outside_text: str = "") -> str:
    return (
        f"no pair of the sample of {run.store.url} has a human label yet{outside_text}; label some with `darklode "
        f"review {run.store.url}`, then validate again"
    )
