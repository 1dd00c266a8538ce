"""validate-benchmark: compare a run's judge with human reviews of a sample, and decide on its release."""

from dataclasses import replace
from typing import Any, Literal

from darklode.flows.jobs import evaluate_systems
from darklode.flows.jobs.job import Job
from darklode.flows.paths import FlowPath
from darklode.flows.reviews import reviews_step, unjudged_tables
from darklode.flows.runs import read_benchmark, write_run
from darklode.flows.stage_runner import finish, run_step
from darklode.pipeline.base.artifacts import Output, Run, Step, Tables, call
from darklode.pipeline.base.chunk_texts import tenants
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import ArtifactError, NotPublishable
from darklode.pipeline.evaluate.corrected import CORRECTED_AUDIT_STAGE, corrected_audit
from darklode.pipeline.judge.calibration import fitted_thresholds
from darklode.pipeline.judge.probe.stage import PROBE_STAGE
from darklode.pipeline.validate.gate import FIGURE_LIMITS, GATE_STAGE, gate, release, release_outcome, require_release
from darklode.pipeline.validate.near_misses import NEAR_MISSES_STAGE, near_misses
from darklode.pipeline.validate.purposes import TABLES_READ, read_purpose
from darklode.pipeline.validate.review.journal import ANSWERS_FOLDER
from darklode.pipeline.validate.sample import REVIEW_SAMPLE_STAGE, review_sample
from darklode.pipeline.validate.stage import VALIDATE_STAGE, validate
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.probe_tables import JUDGE_PROBE
from darklode.schemas.settings import Settings


def validate_benchmark(out: FlowPath, settings: dict[str, Any] | None = None) -> str:
    """Compare the judge with human reviews, update card and report, and check the release limits.

    Args:
        out: the run's folder or s3:// prefix.
        settings: overrides of the run's settings, in the sections validation, review and seed.

    Returns:
        The decision.

    Raises:
        NotPublishable: a limit is not met.
        ArtifactError: nobody has reviewed a pair, and no limit is set.
    """
    run = Run(out)
    check_reviewed(run, settings)
    with run.lock():
        record, inputs = read_benchmark(run)
        resolved = record.with_overrides(settings or {})
        for step in steps(run, resolved):
            if step.enabled:
                run_step(run, step)
        write_run(run, inputs, resolved)
        finish(run)
    return decide(run)


def check_reviewed(run: Run, settings: dict[str, Any] | None = None) -> None:
    """Check that there are reviews, before any stage runs.

    Args:
        run: a benchmark.
        settings: as for `validate_benchmark`.

    Raises:
        ArtifactError: nobody has reviewed a pair, and no limit is set that would fail for that reason.
    """
    record, _ = read_benchmark(run)
    validation_settings = record.with_overrides(settings or {}).validation
    limits = [getattr(validation_settings, setting) for setting in FIGURE_LIMITS.values()]
    if all(limit is None for limit in limits) and not run.store.sizes(ANSWERS_FOLDER):
        raise ArtifactError(_no_labels(run))


def steps(run: Run, settings: Settings) -> list[Step]:
    """The steps in data order."""
    judge, seed = settings.judge, settings.seed
    # Only the vote `mean` compares a probability with the threshold.
    threshold: float | Literal["fitted"] | None = "fitted" if judge.threshold == "fitted" else judge.cut
    if judge.panel and judge.vote != "mean":
        threshold = None
    purpose = read_purpose(run.store)
    sampling = replace(REVIEW_SAMPLE_STAGE, reads=(*REVIEW_SAMPLE_STAGE.reads, *TABLES_READ[purpose]))
    draw = (
        call(review_sample, settings.review, seed=seed)
        if purpose == "validate"
        else call(review_sample, settings.review, seed=seed, purpose=purpose, threshold=judge.cut)
    )
    sampling = sampling.reading(*unjudged_tables(settings))
    validating = (
        replace(VALIDATE_STAGE, reads=(*VALIDATE_STAGE.reads, "calibration"))
        if judge.threshold == "fitted"
        else VALIDATE_STAGE
    )
    # Rates of another judge, or of other verdicts, are none of this run's.
    probed = [JUDGE_PROBE.name] if JUDGE_PROBE.name in run.parts() and not run.is_outdated(PROBE_STAGE) else []
    return [
        Step(sampling, draw),
        Step(NEAR_MISSES_STAGE, call(near_misses)),
        reviews_step(run),
        Step(validating, call(_validate, settings.evaluate.only("n_resamples"), threshold=threshold, seed=seed)),
        Step(GATE_STAGE.reading(*probed), call(gate, settings.validation)),
        replace(corrected_recalls(settings), enabled="rankings" in run.parts()),
        evaluate_systems.correction(settings, enabled="test_rankings" in run.parts()),
    ]


def corrected_recalls(settings: Settings) -> Step:
    """The retrievers' recall corrected by people's labels."""
    depths = (settings.pool.depth, settings.pool.search_depth)
    stage = CORRECTED_AUDIT_STAGE.reading(*unjudged_tables(settings))
    return Step(stage, call(corrected_audit, depths=depths, seed=settings.seed))


def draw_sample(run: Run, settings: Settings) -> None:
    """Draw the pairs to review unless they are up to date, without a flow: the first two of the steps.

    Raises:
        ArtifactError: the run has no verdicts or labels yet, or another process is writing to it.
    """
    with run.lock():
        for step in steps(run, settings)[:2]:
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
    """Whether the run may be published, in a sentence.

    Raises:
        NotPublishable: a limit is not met; an unknown value does not meet it.
        ArtifactError: no pair is labelled, and no limit is set.
    """
    tables = all_tables(run)
    rows = release(tables)
    if release_outcome(rows) == "not asked":
        _require_labels(run, tables)
        return "No release limit is set; use --min-kappa, --max-null-rate, --min-recall and --max-probe-rate."
    require_release(rows, run.store.url)
    passed_text = ", ".join(
        f"{row['figure']} is {row['value']:.3f} ({row['asked']:g})" for row in rows if row["passed"]
    )
    return f"{run.store.url} may be published: {passed_text}; limits in parentheses."


def _require_labels(run: Run, tables: Tables) -> None:
    counts = tables.sql(
        "SELECT labelled, outside FROM validation WHERE tenant IS NULL AND retriever IS NULL"
    ).to_pylist()
    if any(row["labelled"] for row in counts):
        return
    outside = sum(row["outside"] for row in counts)
    outside_text = f" ({outside:,} labels are for pairs outside the sample)" if outside else ""
    raise ArtifactError(_no_labels(run, outside_text))


def _no_labels(run: Run, outside_text: str = "") -> str:
    return (
        f"no pair of the review sample of {run.store.url} has a human label{outside_text}; label some with `darklode "
        f"review {run.store.url}`, then run this again"
    )


JOB = Job("validate-benchmark", validate_benchmark, refusals=(NotPublishable,))
