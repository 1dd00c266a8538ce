"""evaluate-systems: evaluate retrievers, encoders and other systems on a run's test queries."""

from collections.abc import Mapping
from typing import Any

from darklode.flows import factories
from darklode.flows.jobs.job import Job
from darklode.flows.paths import FlowPath
from darklode.flows.preflight import check_flow, evaluation_checks
from darklode.flows.reviews import is_reviewed, reviews_step, unjudged_tables
from darklode.flows.runs import read_run, write_run
from darklode.flows.stage_runner import finish, run_step
from darklode.pipeline.base.artifacts import Run, Step, call, key_of
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.evaluate.auc import AUC_STAGE, auc
from darklode.pipeline.evaluate.corrected import CORRECTED_EVALUATION_STAGE, corrected_evaluation
from darklode.pipeline.evaluate.measures import depth_of
from darklode.pipeline.evaluate.online_metrics import ONLINE_STAGE, online
from darklode.pipeline.evaluate.online_verdicts import DEFAULT_SEARCHES, ONLINE_VERDICTS_STAGE, online_verdicts
from darklode.pipeline.evaluate.pair_labels import MANUAL_LABELS_STAGE, manual_labels
from darklode.pipeline.evaluate.pair_scores import MANUAL_SCORES_STAGE, manual_scores
from darklode.pipeline.evaluate.rankings import CHUNK_RANKINGS_STAGE, RANKINGS_STAGE, rank_all
from darklode.pipeline.evaluate.run_files import RunFile
from darklode.pipeline.evaluate.stage import EVALUATION_STAGE, evaluate
from darklode.pipeline.evaluate.test_queries import BUILD_STAGE, LOG_STAGE, of_a_build, of_a_log
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.prepare.chunk import CHUNK, chunk
from darklode.pipeline.report.experiment_trackers import report_evaluation
from darklode.schemas.settings import Settings


def evaluate_systems(out: FlowPath, settings: dict[str, Any] | None = None) -> None:
    """Evaluate systems on the test queries of a finished run, and update its card and report.

    Args:
        out: the run's folder or s3:// prefix.
        settings: overrides of the run's settings, in the sections evaluate, encoders, retrievers and seed.

    Raises:
        ArtifactError: the run has no test queries.
        MissingPart: the package of a tracker in `evaluate.report_to` is not installed.
    """
    run = Run(out)
    check_flow(lambda: evaluation_checks(out, settings or {}))
    with run.lock():
        record = read_run(run)
        resolved = record.with_overrides(settings or {})
        reviewed = is_reviewed(run) and not record.is_mined
        answers = [reviews_step(run)] if reviewed else []
        for step in [*answers, *steps(resolved, mined=record.is_mined, reviewed=reviewed)]:
            if step.enabled:
                run_step(run, step)
        write_run(run, record.inputs, resolved)
        finish(run)
    judge = {"judge": resolved.judge.kind, "seed": resolved.seed}
    report_evaluation(all_tables(run), resolved.evaluate.report_to, judge)


def steps(settings: Settings, *, mined: bool = False, reviewed: bool = False) -> list[Step]:
    """The steps in data order; figures are corrected by people's labels if a sample was reviewed."""
    evaluate_settings = settings.evaluate
    systems = factories.systems(settings, mined=mined)
    identities = factories.identities(systems)
    files = {name: source_fingerprint(name) for name in evaluate_settings.run_files}
    if mined:
        held_out = Step(LOG_STAGE, call(of_a_log, text_characters=settings.mining.text_characters))
    else:
        held_out = Step(BUILD_STAGE, call(of_a_build))
    return [
        held_out,
        Step(
            RANKINGS_STAGE if mined else CHUNK_RANKINGS_STAGE,
            call(
                rank_all,
                depth=depth_of(evaluate_settings.measures),
                systems=systems,
                identities=identities,
                run_files=evaluate_settings.run_files,
            ),
            lambda: {"the systems": key_of(identities), "the run files": key_of(files)},
            untracked=("systems", "identities", "run_files"),
        ),
        Step(
            EVALUATION_STAGE,
            call(
                evaluate,
                evaluate_settings.only("measures", "n_resamples", "permutations"),
                systems=[*systems, *(RunFile(name).name for name in evaluate_settings.run_files)],
                seed=settings.seed,
            ),
        ),
        correction(settings, enabled=reviewed and not mined),
        *_label_steps(settings, systems, identities),
        *_log_steps(settings, mined=mined),
    ]


def correction(settings: Settings, *, enabled: bool) -> Step:
    """The systems' measures corrected by people's labels."""
    evaluate_settings = settings.evaluate.only("measures")
    return Step(
        CORRECTED_EVALUATION_STAGE.reading(*unjudged_tables(settings)),
        call(corrected_evaluation, evaluate_settings, seed=settings.seed),
        enabled=enabled,
    )


def _label_steps(settings: Settings, systems: Mapping[str, Any], identities: Mapping[str, Any]) -> list[Step]:
    """AUC on human labels; enabled by `evaluate.human_labels`."""
    file, characters = settings.evaluate.human_labels or "", settings.mining.text_characters
    enabled = bool(file and systems)
    return [
        Step(
            MANUAL_LABELS_STAGE,
            call(
                manual_labels,
                settings.ingest.only("tenant", "require_tenant", "max_row_bytes", "max_reject_share"),
                file=file,
                text_characters=characters,
            ),
            lambda: {"the labels' file": source_fingerprint(file)},
            untracked=("file",),
            enabled=enabled,
        ),
        Step(
            MANUAL_SCORES_STAGE,
            call(manual_scores, systems=systems, identities=identities),
            lambda: {"the systems": key_of(identities)},
            untracked=("systems", "identities"),
            enabled=enabled,
        ),
        Step(
            AUC_STAGE,
            call(auc, settings.evaluate.only("n_resamples", "permutations"), systems=list(systems), seed=settings.seed),
            enabled=enabled,
        ),
    ]


def _log_steps(settings: Settings, *, mined: bool) -> list[Step]:
    """Online metrics of a log, and the judge's verdicts on the results it showed."""
    evaluate_settings, seed = settings.evaluate, settings.seed
    bots = settings.logs.only("bot_queries_per_minute", "bot_click_share")
    searches = judged_searches(settings)
    judged = Step(
        ONLINE_VERDICTS_STAGE,
        call(online_verdicts, bots, searches=searches, judge_for=Judges.from_settings(settings), seed=seed),
        enabled=mined and searches > 0,
    )
    stage = ONLINE_STAGE.reading(*ONLINE_VERDICTS_STAGE.writes) if judged.enabled else ONLINE_STAGE
    return [
        Step(CHUNK, call(chunk, settings.chunk), enabled=judged.enabled),
        judged,
        Step(
            stage,
            call(online, bots, evaluate_settings.only("n_resamples", "permutations"), searches=searches, seed=seed),
            enabled=mined,
        ),
    ]


def judged_searches(settings: Settings) -> int:
    """Searches to judge per tenant and variant; by default none unless the judge is asked about logs."""
    if settings.evaluate.judged_searches is None:
        return DEFAULT_SEARCHES if factories.judges_logs(settings) else 0
    return settings.evaluate.judged_searches


JOB = Job("evaluate-systems", evaluate_systems)
