"""mine-logs: search logs in, triplets out; every night it adds a day and redoes what that day's clicks touched."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows import tools
from flows.build_benchmark import plain, write_funnel
from flows.config import DEFAULT_PRESET, load_settings, merge, resolve
from flows.mine_record import Sources, ask_to_learn, asked_to_learn, record
from flows.mine_watch import tell_what_came, watch
from flows.planning import planning
from flows.publishing import publish_report
from flows.steps import Step, run_step
from pipeline.artifacts import Run, Stage, key_of
from pipeline.association.stage import ASSOCIATE, associate
from pipeline.chunk import CHUNK, chunk
from pipeline.errors import SettingsError
from pipeline.ingest import (
    INGEST_DOCUMENTS,
    INGEST_LOGS,
    ingest_documents,
    ingest_logs,
    log_sources,
    source_fingerprint,
)
from pipeline.mining.card import mined_card
from pipeline.mining.click_model import CLICK_MODEL_STAGE, click_model
from pipeline.mining.days import digests, settled, until
from pipeline.mining.evidence import EVIDENCE, evidence
from pipeline.mining.log_queries import LOG_QUERIES_STAGE, log_queries
from pipeline.mining.one_hop import OneHop
from pipeline.mining.pairs import PAIRS_STAGE, mined_pairs
from pipeline.mining.test_set import TEST_SET, test_set
from pipeline.mining.triplets import MINED_TRIPLETS, mined_triplets
from pipeline.planners.plan import PLAN_QUERIES
from pipeline.relevance.stage import RELEVANCE, relevance
from pipeline.relevance.verify import VERIFY, verify
from pipeline.views import views_sql
from schemas.settings import Settings

NEVER = "9999-12-31"


@flow(name="mine-logs", persist_result=False)
def mine_logs(  # noqa: PLR0913 (they are the form in which Prefect asks for a run)
    logs: str,
    docs: str,
    out: str,
    *,
    first: date | None = None,
    last: date | None = None,
    refresh: bool = False,
    preset: str = DEFAULT_PRESET,
    settings: dict[str, Any] | None = None,
) -> None:
    """Mine search logs into triplets; run again, it reads only the days that are new or changed.

    Args:
        logs: file, folder or s3:// prefix of search logs.
        docs: file or folder of documents.
        out: the run's folder or s3:// prefix.
        first: first day to read; by default all that the log holds. Days read before stay.
        last: last day to read.
        refresh: learn planner and click model anew, from all settled days.
        preset: where the settings start from.
        settings: what differs from the preset, as nested sections.
    """
    chosen = resolve(merge(load_settings(preset).model_dump(mode="json"), settings or {}))
    run, dates = Run(out), _dates(first, last)
    with run.lock():
        sources = record(run, logs, docs, chosen)
        for step in steps(run, sources, chosen, dates):
            before = run.manifest(step.stage)
            if step.stage.name == MINED_TRIPLETS.name:
                watch(run, chosen.mining)
            after = run_step(run, step)
            if step.stage is INGEST_LOGS:
                tell_what_came(before, after)
                if refresh:
                    ask_to_learn(run)
        finish(run, chosen)


def steps(run: Run, sources: Sources, settings: Settings, dates: Collection[date] | None = None) -> Iterator[Step]:
    """The stages, in data order; each is made when the one before it is complete."""
    ingest, seed = settings.ingest, settings.seed
    yield Step(
        INGEST_DOCUMENTS,
        plain(ingest, leave="queries"),
        lambda _, output: ingest_documents(sources.docs, output, ingest),
        lambda: {"the documents' files": source_fingerprint(sources.docs)},
    )
    if settings.relevance.ranker != "none" or settings.mining.verify_share:
        yield Step(CHUNK, plain(settings.chunk), lambda tables, output: chunk(tables, output, settings.chunk))
    yield _log_step(run, sources, settings, dates)
    yield from _evidence_steps(run, settings)
    yield from _query_steps(run, settings)
    yield from _pair_steps(run, settings, seed)


def _log_step(run: Run, sources: Sources, settings: Settings, dates: Collection[date] | None) -> Step:
    manifest = run.manifest(INGEST_LOGS)
    known: Mapping[str, Any] = manifest.facts["sources"] if manifest else {}
    logs, ingest = settings.logs, settings.ingest
    read = {name: value for name, value in plain(logs).items() if not name.startswith("bot_")}
    return Step(
        INGEST_LOGS,
        read | {"tenant": ingest.tenant, "max_row_bytes": ingest.max_row_bytes},
        lambda _, output: ingest_logs(sources.logs, output, logs, ingest, dates=dates, known=known),
        lambda: {"the log's files": key_of(log_sources(sources.logs, logs, dates, known))},
    )


def _evidence_steps(run: Run, settings: Settings) -> Iterator[Step]:
    """The click model, the days' evidence, and the log's queries."""
    click, logs = settings.click, settings.logs
    bots = {name: value for name, value in plain(logs).items() if name.startswith("bot_")}
    through = _through(run, settings) if click.model != "paper" else None
    yield Step(
        CLICK_MODEL_STAGE,
        {"model": click.model} | bots,
        lambda _, output: click_model(run.tables("impressions"), output, click, logs, through=through),
        lambda: {"the settled days": _settled_days(run, "impressions", "timestamp", through)},
    )
    yield Step(
        EVIDENCE,
        {"model": click.model, "negatives": click.negatives, "min_dwell_seconds": click.min_dwell_seconds} | bots,
        lambda tables, output: evidence(tables, output, click, logs),
    )
    yield Step(LOG_QUERIES_STAGE, {}, log_queries)


def _query_steps(run: Run, settings: Settings) -> Iterator[Step]:
    """What is known of each query: its terms, its associates, and what the ranker finds for it."""
    through = _through(run, settings)
    yield from planning(run, settings.planner, through, _settled_days(run, "click_evidence", "date", through))
    yield Step(
        ASSOCIATE,
        plain(settings.associate, leave="max_per_query"),
        lambda tables, output: associate(tables, output, settings.associate),
    )
    ranker = tools.ranker(settings, through)
    read = ("log_queries",) if settings.relevance.ranker == "none" else ("log_queries", "chunks")
    yield Step(
        RELEVANCE,
        plain(settings.relevance) | {"version": ranker.version, "seed": settings.seed},
        lambda _, output: relevance(run.tables(*read), output, settings.relevance, ranker=ranker, seed=settings.seed),
    )


def _pair_steps(run: Run, settings: Settings, seed: int) -> Iterator[Step]:
    """Pairs, triplets and the test set."""
    click, most, mining = settings.click, settings.associate.max_per_query, settings.mining
    hop = OneHop(click, before=str(mining.test_from or NEVER), seed=seed)
    made = run.manifest(EVIDENCE)
    contains = made.facts["contains"] if made else {}
    made_by = {stage.name: _settings_of(run, stage) for stage in (PLAN_QUERIES, ASSOCIATE, RELEVANCE)}
    yield Step(
        PAIRS_STAGE,
        plain(click) | {"before": hop.before, "seed": seed, "max_per_query": most} | made_by,
        lambda tables, output: mined_pairs(tables, output, hop, most=most, contains=contains),
    )
    if mining.verify_share:
        yield Step(
            VERIFY,
            tools.judge_identity(settings.judge) | {"verify_share": mining.verify_share, "seed": seed},
            lambda tables, output: verify(tables, output, mining, judge_for=tools.judge_for(settings), seed=seed),
        )
    share = settings.split.validation_share
    refuted = (VERIFY.writes[0],) if mining.verify_share and not mining.keep_refuted else ()
    yield Step(
        replace(MINED_TRIPLETS, reads=(*MINED_TRIPLETS.reads, *refuted)),
        {name: getattr(mining, name) for name in ("text_characters", "median_share", "small_share")}
        | {"validation_share": share, "seed": seed},
        lambda tables, output: mined_triplets(tables, output, mining, validation_share=share, seed=seed),
    )
    yield Step(
        TEST_SET,
        plain(click) | {"test_from": str(mining.test_from), "most": mining.test_pool, "seed": seed},
        lambda tables, output: test_set(
            tables, output, replace(hop, before=NEVER), test_from=mining.test_from, most=mining.test_pool
        ),
    )


def _through(run: Run, settings: Settings) -> date | None:
    """The last day from which planner and click model learn; never one of the test period."""
    days = [date.fromisoformat(day) for day in run.tables("impressions").by_day("impressions", "timestamp")]
    test_from = settings.mining.test_from
    days = [day for day in days if test_from is None or day < test_from]
    if not days:
        return None
    refresh_days, late_days = settings.planner.refresh_days, settings.logs.late_days
    return settled(days[0], days[-1], refresh_days=refresh_days, late_days=late_days, asked=asked_to_learn(run))


def _settled_days(run: Run, table: str, column: str, through: date | None) -> str:
    return key_of(until(digests(run.tables(table).by_day(table, column)), through))


def _settings_of(run: Run, stage: Stage) -> dict[str, Any]:
    """What decided a complete stage's rows besides what it read: where this changes, rows may have gone."""
    manifest = run.manifest(stage)
    return manifest.settings if manifest else {}


def _dates(first: date | None, last: date | None) -> list[date] | None:
    """All days from the first to the last; None: whatever there is.

    Raises:
        SettingsError: only one of them is given, or the last is before the first.
    """
    if first is None and last is None:
        return None
    if first is None or last is None or last < first:
        raise SettingsError(f"name a first and a last day, the first not after the last (got {first} and {last})")
    return [first + timedelta(number) for number in range((last - first).days + 1)]


def finish(run: Run, settings: Settings) -> None:
    """Write what lies beside the tables: the funnel, the views for DuckDB, the dataset card and the report."""
    write_funnel(run)
    run.store.write("views.sql", views_sql(run).encode())
    text = mined_card(run, settings)
    run.store.write("README.md", text.encode())
    create_markdown_artifact(text, key="mined-dataset-card", description=run.store.url)
    publish_report(run, settings)
