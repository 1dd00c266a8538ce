"""mine-logs: search logs in, triplets out; every night it adds a day and redoes what that day's clicks touched."""

from collections.abc import Collection
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

from darklode.flows import factories
from darklode.flows.config import load_settings, read_project
from darklode.flows.executor import preflight
from darklode.flows.jobs.night_summary import (
    ask_to_learn,
    days,
    decide,
    is_learning_requested,
    report_held_days,
    report_new_days,
    tell_misplaced,
    testing_on,
)
from darklode.flows.paths import Place
from darklode.flows.prefect.sharding import spread_over
from darklode.flows.runs import output_run, record
from darklode.flows.stage_runner import finish, run_step
from darklode.pipeline.base.artifacts import Output, Run, StageCall, Step, Tables, call, key_of
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.pipeline.ingest.files import source_fingerprint
from darklode.pipeline.ingest.logs import INGEST_LOGS, ingest_logs, log_sources
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.mine.admission.daily_statistics import DAY_FIGURES_STAGE, day_figures
from darklode.pipeline.mine.admission.decisions import DecisionRequest
from darklode.pipeline.mine.admission.stage import ADMIT_DAYS, admit_days
from darklode.pipeline.mine.association.stage import ASSOCIATE, associate
from darklode.pipeline.mine.click_model import CLICK_MODEL_STAGE, click_model
from darklode.pipeline.mine.evidence import EVIDENCE, LOG_QUERIES_STAGE, evidence, log_queries
from darklode.pipeline.mine.history import EarlierRun, History
from darklode.pipeline.mine.one_hop import OneHop
from darklode.pipeline.mine.pairs import PAIRS_STAGE, mined_pairs
from darklode.pipeline.mine.relevance.stage import RELEVANCE, relevance
from darklode.pipeline.mine.relevance.verification import VERIFY, verify
from darklode.pipeline.mine.splits import MINED_SPLITS, mined_splits
from darklode.pipeline.mine.term_weighting.kinds import PlannerKind
from darklode.pipeline.mine.term_weighting.log import FIT_PLANNER, fit_planner
from darklode.pipeline.mine.term_weighting.port import PLAN_QUERIES, PlannerFactory, plan_queries
from darklode.pipeline.prepare.chunk import CHUNK, chunk
from darklode.pipeline.triplets.held_out import HELD_OUT, held_out
from darklode.pipeline.triplets.mined import MINED_TRIPLETS, mined_triplets
from darklode.pipeline.triplets.test_set import TEST_SET, test_set
from darklode.schemas.mining import AssociateSettings, MiningSettings
from darklode.schemas.settings import Settings

NEVER = "9999-12-31"
BOTS = "bot_queries_per_minute", "bot_click_share"
"""The settings of `logs` that are about whose searches count, and not about how the log is read."""


def mine_logs(  # noqa: PLR0913 (they are the form in which Prefect asks for a run)
    logs: Place | None = None,
    docs: Place | None = None,
    out: Place | None = None,
    *,
    first: date | None = None,
    last: date | None = None,
    refresh: bool = False,
    accept_days: list[str] | None = None,
    discard_days: list[str] | None = None,
    reason: str | None = None,
    test_days: int | None = None,
    preset: str | None = None,
    settings: dict[str, Any] | None = None,
    config: Place | None = None,
) -> None:
    """Mine search logs into triplets; run again, it reads only the days that are new or changed.

    Args:
        logs: file, folder or s3:// prefix of search logs; by default the config's.
        docs: file or folder of documents, likewise.
        out: the run's folder or s3:// prefix; by default the config's `mined`.
        first: first day to read; by default all that the log holds. Days read before stay.
        last: last day to read.
        refresh: learn planner and click model anew, from all settled days.
        accept_days: days that were held back and are right, as 2026-03-11, or TENANT:2026-03-11.
        discard_days: days that are to be left out for good.
        reason: why they are accepted or discarded, for the record.
        test_days: so many days at the end of the log are test data: `mining.test_from` goes along with the nights.
        preset: where the settings start from.
        settings: what differs from preset and config, as nested sections.
        config: settings file with paths, as `darklode init` writes it, on the machine that works.

    Raises:
        HeldBack: a day of the log is held back; everything else is published.
    """
    config_file = read_project(config, preset)
    chosen = load_settings(config_file.preset, config, values=settings)
    logs, docs, out = config_file.place("logs", logs), config_file.place("docs", docs), config_file.place("mined", out)
    dates, wish = days(first, last), DecisionRequest(accept_days or (), discard_days or (), reason)
    preflight(lambda checks: checks.of_mine(logs, docs, out, chosen, dates, wish))
    factories.fetch_ranker(chosen)
    run = output_run(out, mined=True)
    with run.lock(), spread_over(chosen.runner, run) as spread:
        record(run, {"logs": logs, "docs": docs}, chosen)
        job = steps(run, logs, docs, chosen, dates, spread)
        admitted = [step.stage for step in job].index(ADMIT_DAYS) + 1
        for step in job[:admitted]:
            before = run.manifest(step.stage)
            after = run_step(run, step) if step.enabled else before
            if step.stage is INGEST_LOGS and after:
                report_new_days(before, after)
                decide(run, history_of(run, chosen), wish)
        if refresh:
            ask_to_learn(run, history_of(run, chosen))
        if test_days:
            chosen = testing_on(history_of(run, chosen), chosen, test_days)
            record(run, {"logs": logs, "docs": docs}, chosen)
            job = steps(run, logs, docs, chosen, dates, spread)
        tell_misplaced(run)
        for step in job[admitted:]:
            if step.enabled:
                run_step(run, step)
        finish(run, chosen, job)
        report_held_days(run)


def steps(
    run: Run,
    logs: str,
    docs: str,
    settings: Settings,
    dates: Collection[date] | None = None,
    spread: Spread = here,
) -> list[Step]:
    """The stages, in data order; what some of them learn from the run itself is looked up when they are planned."""
    config, seed, mining = settings, settings.seed, settings.mining
    judges, bots = Judges.from_settings(config), config.logs.only(*BOTS)
    ranks, verifies = config.relevance.ranker != "none", factories.verifies(config)
    hop = OneHop(config.click, before=str(mining.test_from or NEVER), seed=seed)
    apart = config.split.group_by == "cluster_and_positives"
    history, planner = history_of(run, config), as_kind(config.term_weighting, PlannerKind)
    learned_spread = spread if planner.LEARNS else here  # a file lies on this machine alone, a server is asked by one

    def clicks_through() -> date | None:
        return None if config.click.model == "paper" else history.learned_through()

    return [
        Step(
            INGEST_DOCUMENTS,
            call(ingest_documents, config.ingest.but("queries")),
            lambda: {"the documents' files": source_fingerprint(docs)},
            source=docs,
        ),
        Step(CHUNK, call(chunk, config.chunk, spread), untracked=("spread",), enabled=ranks or verifies),
        Step(
            INGEST_LOGS,
            lambda: call(
                ingest_logs,
                config.logs.but(*BOTS),
                config.ingest.only("tenant", "require_tenant", "max_row_bytes", "max_reject_share"),
                dates=dates,
                earlier_days=history.sources(),
            ),
            lambda: {"the log's files": key_of(log_sources(logs, config.logs, dates, history.sources()))},
            untracked=("dates", "earlier_days"),
            source=logs,
        ),
        Step(DAY_FIGURES_STAGE, call(day_figures, bots)),
        Step(
            ADMIT_DAYS,
            lambda: call(admit_days, config.admission, standing=history.admission_state()),
            lambda: {"files and decisions": key_of(history.admission_state().identity)},
            untracked=("standing",),
        ),
        Step(
            CLICK_MODEL_STAGE,
            lambda: call(click_model, config.click.only("model"), bots, through=clicks_through()),
            lambda: history.shown_until(clicks_through()),
            untracked=("through",),
        ),
        Step(
            EVIDENCE,
            call(evidence, config.click.only("model", "negatives", "min_dwell_seconds"), bots, spread),
            lambda: {"the admitted days": key_of(history.admitted_days())},
            untracked=("spread",),
        ),
        Step(LOG_QUERIES_STAGE, call(log_queries)),
        Step(
            MINED_SPLITS,
            call(
                mined_splits,
                validation_share=config.split.validation_share,
                test_from=mining.test_from,
                seed=seed,
            ),
        ),
        Step(
            FIT_PLANNER,
            lambda: call(fit_planner, through=history.learned_through()),
            lambda: history.clicked_until(history.learned_through()),
            untracked=("through",),
            enabled=planner.LEARNS,
        ),
        Step(
            PLAN_QUERIES,
            lambda: _planning(
                partial(planner.planner, history.learned_tables("planner_terms"), config.cache), learned_spread
            ),
            untracked=("maker", "spread"),
        ),
        Step(ASSOCIATE, call(associate, config.associate.but("max_lenders_per_query"), spread), untracked=("spread",)),
        Step(
            RELEVANCE,
            lambda: call(
                relevance,
                config.relevance.only("ranker", "top_k", "top_t"),
                ranker=factories.ranker(config, history.learned_through()),
                seed=seed,
            ),
        ),
        Step(
            PAIRS_STAGE,
            lambda: call(
                _pairs,
                hop,
                config.associate.only("max_lenders_per_query"),
                mining.only("merge"),
                history.earlier_run(),
                spread,
            ),
            untracked=("spread",),
        ),
        Step(
            VERIFY,
            call(verify, mining.only("verify_share"), judge_for=judges, seed=seed),
            enabled=verifies,
        ),
        Step(
            replace(MINED_TRIPLETS, reads=(*MINED_TRIPLETS.reads, *_contradiction_tables(config))),
            call(
                mined_triplets,
                mining.only("text_characters"),
                config.triplets.only("text_form"),
                apart=apart,
                seed=seed,
            ),
        ),
        Step(
            TEST_SET,
            call(
                test_set,
                replace(hop, before=NEVER),
                mining.only("test_from", "test_pool_size", "test_multi_hop"),
                apart=apart,
                lenders=config.associate.max_lenders_per_query,
            ),
        ),
        Step(HELD_OUT.reading(*TEST_SET.writes[:1]), call(held_out)),
    ]


def _contradiction_tables(settings: Settings) -> tuple[str, ...]:
    """The table of verdicts where a refuted positive is to make no triplet."""
    return VERIFY.writes[:1] if factories.verifies(settings) and not settings.mining.keep_refuted else ()


def history_of(run: Run, settings: Settings) -> History:
    """What a night finds of earlier ones."""
    return History(
        run,
        refresh_days=settings.term_weighting.refresh_days,
        late_days=settings.logs.max_late_days,
        test_from=settings.mining.test_from,
        requested_date=lambda: is_learning_requested(run),
    )


def _planning(maker: PlannerFactory, spread: Spread) -> StageCall:
    return call(plan_queries, planner=maker(), maker=maker, spread=spread)


def _pairs(  # noqa: PLR0913, PLR0917 (each is a part of the fingerprint, but for the last)
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
        mining,
        max_associations=lending.max_lenders_per_query,
        contains=past.contains,
        spread=spread,
    )
