"""mine-logs: search logs to triplets. Each night adds its days, and redoes only what their clicks affect."""

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

from darklode.flows import factories
from darklode.flows.config import load_settings, read_project
from darklode.flows.jobs.job import RUN_SECTIONS, Job
from darklode.flows.mining_history import history_of
from darklode.flows.night_summary import (
    days,
    decide,
    report_held_days,
    report_new_days,
    request_refit,
    warn_of_misplaced,
    with_test_days,
)
from darklode.flows.paths import FlowPath
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.preflight import check_flow, mining_checks
from darklode.flows.runs import output_run, write_run
from darklode.flows.sources import fetched, local_path
from darklode.flows.stage_runner import finish, report_leakage, run_step
from darklode.pipeline.base.artifacts import Output, Run, StageCall, Step, Tables, call, key_of
from darklode.pipeline.base.errors import HeldBack
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.ingest.logs import INGEST_LOGS, ingest_logs, log_sources
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.mine.admission.daily_statistics import DAY_FIGURES_STAGE, day_figures
from darklode.pipeline.mine.admission.decisions import DecisionRequest
from darklode.pipeline.mine.admission.stage import ADMIT_DAYS, admit_days
from darklode.pipeline.mine.association.stage import ASSOCIATE, SESSION_TABLES, associate
from darklode.pipeline.mine.click_model import CLICK_MODEL_STAGE, click_model
from darklode.pipeline.mine.evidence import EVIDENCE, LOG_QUERIES_STAGE, evidence, log_queries
from darklode.pipeline.mine.history import EarlierRun, History
from darklode.pipeline.mine.multi_hop import LendingRules
from darklode.pipeline.mine.one_hop import OneHop
from darklode.pipeline.mine.pairs import PAIRS_STAGE, mined_pairs
from darklode.pipeline.mine.relevance.stage import RELEVANCE, relevance
from darklode.pipeline.mine.relevance.verification import VERIFY, verify
from darklode.pipeline.mine.session_split import SessionSplit, session_split
from darklode.pipeline.mine.splits import MINED_SPLITS, mined_splits
from darklode.pipeline.mine.term_weighting.kinds import TermWeighterKind
from darklode.pipeline.mine.term_weighting.log import FIT_TERM_WEIGHTS, fit_term_weights
from darklode.pipeline.mine.term_weighting.port import WEIGHT_TERMS, TermWeighterFactory, weight_terms
from darklode.pipeline.prepare.chunk import CHUNK, chunk
from darklode.pipeline.triplets.held_out import HELD_OUT_OF_LOG, held_out
from darklode.pipeline.triplets.mined import MINED_TRIPLETS, mined_triplets
from darklode.pipeline.triplets.test_set import TEST_SET, test_set
from darklode.schemas.mining import AssociateSettings, MiningSettings
from darklode.schemas.run_inputs import MinedInputs
from darklode.schemas.settings import Settings

NO_TEST_DAY = "9999-12-31"  # after all days of a log: every day is training data
BOT_SETTINGS = "bot_queries_per_minute", "bot_click_share"
"""Settings of `logs` that decide whose searches count; the others decide how the log is read."""


def mine_logs(  # noqa: PLR0913 (the parameters of the Prefect flow)
    logs: FlowPath | None = None,
    docs: FlowPath | None = None,
    out: FlowPath | None = None,
    *,
    first: date | None = None,
    last: date | None = None,
    refresh: bool = False,
    accept_days: list[str] | None = None,
    discard_days: list[str] | None = None,
    reason: str | None = None,
    test_days: int | None = None,
    report: bool = True,
    preset: str | None = None,
    settings: dict[str, Any] | None = None,
    config: FlowPath | None = None,
) -> None:
    """Mine search logs into triplets; a second run reads only new and changed days.

    Args:
        logs: file, folder or s3:// prefix of search logs; default: `paths.logs` of `config`.
        docs: file or folder of documents; default: `paths.docs` of `config`.
        out: the run's folder or s3:// prefix; default: `paths.mined` of `config`.
        first: first day to read; default: all days. Days read before are kept.
        last: last day to read.
        refresh: fit term weights and click model again, on all settled days.
        accept_days: days held back to include, as 2026-03-11 or TENANT:2026-03-11.
        discard_days: days to leave out for good.
        reason: reason for these decisions, for the record.
        test_days: use the last N days of the log as test data; `mining.test_from` moves with the log.
        report: write report.html and the card's figures; otherwise a report that is out of date is deleted.
        preset: base of the settings.
        settings: overrides of preset and config, as nested sections.
        config: settings file with paths, as `darklode init` writes it, on the machine that runs the job.

    Raises:
        HeldBack: a day of the log is held back; everything else is published.
    """
    project = read_project(config, preset)
    resolved = load_settings(project.preset, config, values=settings)
    logs, docs, out = project.place("logs", logs), project.place("docs", docs), project.place("mined", out)
    dates, request = days(first, last), DecisionRequest(accept_days or (), discard_days or (), reason)
    check_flow(lambda: mining_checks(logs, docs, out, resolved, dates, request))
    factories.fetch_ranker(resolved)
    run, inputs = output_run(out, MinedInputs), MinedInputs(logs=logs, docs=docs)
    with run.lock(), spread_over(resolved.runner, run) as spread, ExitStack() as sources:
        write_run(run, inputs, resolved)
        sources.enter_context(fetched(run, resolved, {"docs": docs, "logs": logs}, dates))
        night = _steps_of(run, inputs, resolved, dates, spread)
        n_read = [step.stage for step in night].index(ADMIT_DAYS) + 1
        _read_days(run, night[:n_read], resolved, request)
        if refresh:
            request_refit(run, history_of(run, resolved))
        if test_days:
            resolved = with_test_days(history_of(run, resolved), resolved, test_days)
            write_run(run, inputs, resolved)
            night = _steps_of(run, inputs, resolved, dates, spread)
        warn_of_misplaced(run)
        for step in night[n_read:]:
            if step.enabled:
                run_step(run, step)
        report_leakage(run)
        finish(run, report=report)
        report_held_days(run)


def _read_days(run: Run, night: list[Step], settings: Settings, request: DecisionRequest) -> None:
    """Run the steps up to the admission of days; decisions are recorded once the log is read."""
    for step in night:
        before = run.manifest(step.stage)
        after = run_step(run, step) if step.enabled else before
        if step.stage is INGEST_LOGS and after:
            report_new_days(before, after)
            decide(run, history_of(run, settings), request)


def _steps_of(
    run: Run, inputs: MinedInputs, settings: Settings, dates: Collection[date] | None = None, spread: Spread = here
) -> list[Step]:
    """The steps of a run, which read the snapshots of sources that are no local files."""
    logs = local_path(run, "logs", inputs.logs, settings)
    return steps(run, logs, local_path(run, "docs", inputs.docs, settings), settings, dates, spread)


def steps(
    run: Run,
    logs: str,
    docs: str,
    settings: Settings,
    dates: Collection[date] | None = None,
    spread: Spread = here,
) -> list[Step]:
    """The steps in data order; what depends on the run's earlier nights is looked up when a step is planned."""
    history = history_of(run, settings)
    return [
        *_ingest_steps(logs, docs, settings, history, dates, spread),
        *_evidence_steps(settings, history, spread),
        *_association_steps(settings, history, spread),
        *_triplet_steps(settings, history),
    ]


def _ingest_steps(
    logs: str, docs: str, settings: Settings, history: History, dates: Collection[date] | None, spread: Spread
) -> list[Step]:
    """Documents and log, up to the admission of days."""
    needs_chunks = settings.relevance.ranker != "none" or factories.verifies(settings)
    return [
        Step(
            INGEST_DOCUMENTS,
            call(ingest_documents, settings.ingest.but("queries")),
            lambda: {"the documents' files": source_fingerprint(docs)},
            source=docs,
        ),
        Step(CHUNK, call(chunk, settings.chunk, spread), untracked=("spread",), enabled=needs_chunks),
        Step(
            INGEST_LOGS,
            lambda: call(
                ingest_logs,
                settings.logs.but(*BOT_SETTINGS),
                settings.ingest.only("tenant", "require_tenant", "max_row_bytes", "max_reject_share"),
                dates=dates,
                earlier_days=history.sources(),
            ),
            lambda: {"the log's files": key_of(log_sources(logs, settings.logs, dates, history.sources()))},
            untracked=("dates", "earlier_days"),
            source=logs,
        ),
        Step(DAY_FIGURES_STAGE, call(day_figures, settings.logs.only(*BOT_SETTINGS))),
        Step(
            ADMIT_DAYS,
            lambda: call(admit_days, settings.admission, history=history.admission_state()),
            lambda: {"files and decisions": key_of(history.admission_state().identity)},
            untracked=("history",),
        ),
    ]


def _evidence_steps(settings: Settings, history: History, spread: Spread) -> list[Step]:
    """Clicks of the admitted days by query, and the splits of the queries."""
    mining, bots = settings.mining, settings.logs.only(*BOT_SETTINGS)

    def clicks_through() -> date | None:
        return None if settings.click.model == "paper" else history.learned_through()

    return [
        Step(
            CLICK_MODEL_STAGE,
            lambda: call(click_model, settings.click.only("model"), bots, through=clicks_through()),
            lambda: history.shown_until(clicks_through()),
            untracked=("through",),
        ),
        Step(
            EVIDENCE,
            call(
                evidence,
                settings.click.only("model", "negatives", "min_dwell_seconds"),
                bots,
                sessions=_sessions(settings),
                spread=spread,
            ),
            lambda: {"the admitted days": key_of(history.admitted_days())},
            untracked=("spread",),
        ),
        Step(LOG_QUERIES_STAGE, call(log_queries)),
        Step(
            MINED_SPLITS,
            call(
                mined_splits,
                validation_share=settings.split.validation_share,
                test_from=mining.test_from,
                seed=settings.seed,
            ),
        ),
    ]


def _association_steps(settings: Settings, history: History, spread: Spread) -> list[Step]:
    """Term weights, associations, relevance and pairs (ScalingNote, Algorithm 1)."""
    seed, mining = settings.seed, settings.mining
    term_weighting = as_kind(settings.term_weighting, TermWeighterKind)
    # A weight file exists on this machine only, and a server is called from one process.
    learned_spread = spread if term_weighting.LEARNS else here
    return [
        Step(
            FIT_TERM_WEIGHTS,
            lambda: call(fit_term_weights, through=history.learned_through()),
            lambda: history.clicked_until(history.learned_through()),
            untracked=("through",),
            enabled=term_weighting.LEARNS,
        ),
        Step(
            WEIGHT_TERMS,
            lambda: _weighting(
                partial(term_weighting.term_weighter, history.learned_tables("learned_term_weights"), settings.cache),
                learned_spread,
            ),
            untracked=("factory", "spread"),
        ),
        Step(
            ASSOCIATE.reading(*SESSION_TABLES) if settings.associate.rule == "guarded" else ASSOCIATE,
            call(associate, settings.associate.but("max_lenders_per_query"), spread),
            untracked=("spread",),
        ),
        Step(
            RELEVANCE,
            lambda: call(
                relevance,
                settings.relevance.only("ranker", "top_k", "top_t"),
                ranker=factories.ranker(settings, history.learned_through()),
                seed=seed,
            ),
        ),
        Step(
            PAIRS_STAGE,
            lambda: call(
                _pairs,
                _one_hop(settings),
                settings.associate.only("max_lenders_per_query", "rule"),
                mining.only("merge"),
                history.earlier_run(),
                spread,
            ),
            untracked=("spread",),
        ),
    ]


def _triplet_steps(settings: Settings, history: History) -> list[Step]:
    """Verification by the judge, triplets and test set."""
    seed, mining = settings.seed, settings.mining
    verifies, judges = factories.verifies(settings), Judges.from_settings(settings)
    apart = "positive" in settings.split.group_by
    return [
        Step(
            VERIFY,
            call(verify, mining.only("verify_share"), judge_for=judges, seed=seed),
            enabled=verifies,
        ),
        Step(
            replace(MINED_TRIPLETS, reads=(*MINED_TRIPLETS.reads, *_contradiction_tables(settings))),
            call(
                mined_triplets,
                mining.only("text_characters"),
                settings.triplets.only("text_form"),
                apart=apart,
                seed=seed,
            ),
        ),
        Step(
            TEST_SET,
            call(
                test_set,
                replace(_one_hop(settings), before=NO_TEST_DAY, by_session=False),
                mining.only("test_from", "test_pool_size", "test_multi_hop"),
                apart=apart,
                lending=settings.associate.only("max_lenders_per_query", "rule"),
            ),
        ),
        Step(
            HELD_OUT_OF_LOG,
            call(held_out, sessions=_sessions(settings)),
            lambda: {"the admitted days": key_of(history.admitted_days())},
        ),
    ]


def _sessions(settings: Settings) -> SessionSplit | None:
    return session_split(settings.split.group_by, settings.split.validation_share, settings.seed)


def _one_hop(settings: Settings) -> OneHop:
    return OneHop(
        settings.click,
        before=str(settings.mining.test_from or NO_TEST_DAY),
        seed=settings.seed,
        by_session=_sessions(settings) is not None,
    )


def _contradiction_tables(settings: Settings) -> tuple[str, ...]:
    """The verdicts, if positives that the judge refutes become no triplets."""
    return VERIFY.writes[:1] if factories.verifies(settings) and not settings.mining.keep_refuted else ()


def _weighting(factory: TermWeighterFactory, spread: Spread) -> StageCall:
    return call(weight_terms, weighter=factory(), factory=factory, spread=spread)


def _pairs(  # noqa: PLR0913, PLR0917 (each is part of the fingerprint, except the last)
    tables: Tables,
    output: Output,
    hop: OneHop,
    lending: AssociateSettings,
    mining: MiningSettings,
    past: EarlierRun,
    spread: Spread,
) -> None:
    mined_pairs(
        tables,
        output,
        hop,
        LendingRules(lending.max_lenders_per_query, mining.merge, lending.rule == "guarded"),
        contains=past.contains,
        spread=spread,
    )


JOB = Job(
    "mine-logs",
    mine_logs,
    MinedInputs,
    _steps_of,
    can_plan=True,
    sections=RUN_SECTIONS,
    refusals=(HeldBack,),
)
