"""Daily click evidence by query and document, query spellings, and which queries a day contains first.

Repeated events and bots are removed before counting.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, Unit, digest, key_of
from darklode.pipeline.base.artifacts.database import pieces
from darklode.pipeline.base.artifacts.output import RESULT_ROWS
from darklode.pipeline.base.artifacts.parquet_writer import TABLE_GROUP_ROWS
from darklode.pipeline.base.query_normalization import normal_form
from darklode.pipeline.base.relations import Relation, drop, materialize
from darklode.pipeline.base.sharding import Pieces, Spread, here
from darklode.pipeline.mine.admission.admitted_log import AdmittedRows
from darklode.pipeline.mine.days import chain_fingerprints, digests
from darklode.pipeline.mine.session_split import NO_SESSION_SPLIT_SQL, SessionSplit
from darklode.schemas.mining import ClickSettings, LogSettings
from darklode.schemas.tables import TABLES

EVIDENCE = Stage(
    "click_evidence",
    5,
    ("click_model",),
    ("click_evidence", "query_spellings", "reformulations"),
    consults=("impressions", "log_days"),
)

# Positions unknown to the click model use the nearest known one above; rows without a position count as position 1.
# With negatives `skipped`, a document counts as examined only if it or a lower one was clicked. Python fills in
# `{session_split}`, the split of the row's session.
DAILY_EVIDENCE_SQL = """
    WITH searches AS (
        SELECT tenant, search_id, max(position) FILTER (clicked) AS lowest_click, max(position) AS lowest
        FROM {people} GROUP BY tenant, search_id
    ), exposures AS (
        SELECT p.*, NOT $skipped OR p.clicked OR coalesce(p.position < s.lowest_click, false) AS exposed,
               p.position / s.lowest AS depth,
               coalesce(p.position, 1) AS model_position, {session_split} AS session_split
        FROM {people} p JOIN searches s USING (tenant, search_id)
    )
    SELECT p.tenant, CAST($day AS DATE) AS date, query_id, doc_id,
           session_split, min(depth) AS depth,
           count(*) FILTER (exposed) AS exposures,
           count(*) FILTER (clicked) AS clicks,
           count(*) FILTER (clicked AND coalesce(dwell_seconds >= $dwell, true)) AS satisfied,
           CAST(sum(CAST(hazard AS DECIMAL(18, 6)) * CASE WHEN clicked THEN 0.5 ELSE 1 END) AS DOUBLE) AS expected,
           CAST(sum(CAST(CASE WHEN NOT $skipped THEN examination_probability
                                   WHEN examination_probability >= 0 THEN 1 END AS DECIMAL(18, 6)))
                FILTER (exposed) AS DOUBLE) AS examinations
    FROM exposures p
    ASOF LEFT JOIN click_model m ON p.tenant = m.tenant AND p.model_position >= m.position
    GROUP BY p.tenant, query_id, doc_id, session_split
    ORDER BY p.tenant, query_id, doc_id, session_split NULLS FIRST
"""

DAILY_SPELLINGS_SQL = """
    WITH first_sessions AS (
        SELECT tenant, query_id, arg_min({session}, {{'time': time, 'search': search_id}}) AS session
        FROM {people} GROUP BY tenant, query_id
    ), spellings AS (
        SELECT tenant, query_id, query, count(DISTINCT search_id) AS searches
        FROM {impressions} ANTI JOIN {bots} USING (tenant, session_id) GROUP BY tenant, query_id, query
    )
    SELECT tenant, CAST($day AS DATE) AS date, query_id, query, searches, {session_split} AS session_split
    FROM spellings JOIN first_sessions USING (tenant, query_id) ORDER BY tenant, query_id, query
"""

# A reformulation: a search and the next one of its session, for another query, within $max_pause_minutes.
DAILY_REFORMULATIONS_SQL = """
    WITH searches AS (
        SELECT tenant, session_id, search_id, query_id, min(time) AS time, min({session_split}) AS session_split
        FROM {people} WHERE session_id IS NOT NULL GROUP BY tenant, session_id, search_id, query_id
    ), steps AS (
        SELECT tenant, query_id, session_split, lead(query_id) OVER steps AS next_query_id,
               date_diff('second', time, lead(time) OVER steps) <= $max_pause_minutes * 60 AS is_soon
        FROM searches WINDOW steps AS (PARTITION BY tenant, session_id ORDER BY time, search_id, query_id)
    ), clicked AS (
        SELECT DISTINCT tenant, query_id, doc_id FROM {people} WHERE clicked
    ), reformulations AS (
        SELECT tenant, query_id, next_query_id, session_split, count(*) AS searches
        FROM steps WHERE is_soon AND query_id <> next_query_id GROUP BY ALL
    )
    SELECT tenant, CAST($day AS DATE) AS date, query_id, next_query_id, session_split, searches,
           EXISTS (
               FROM clicked a JOIN clicked b USING (tenant, doc_id)
               WHERE tenant = r.tenant AND a.query_id = r.query_id AND b.query_id = r.next_query_id
           ) AS shares_click
    FROM reformulations r ORDER BY tenant, query_id, next_query_id, session_split NULLS FIRST
"""
MAX_PAUSE_MINUTES = 30
"""Maximum time between a search and its reformulation: the usual limit of a session (Jansen and others, 2007)."""

# Rows of the earlier evidence of a day that its present evidence lacks.
COUNT_LOST_EVIDENCE_SQL = """
    SELECT count(*) FROM click_evidence e ANTI JOIN present_evidence p
    ON e.tenant = p.tenant AND e.query_id = p.query_id AND e.doc_id = p.doc_id
       AND coalesce(e.session_split, '') = coalesce(p.session_split, '')
"""


@dataclass(frozen=True)
class LogDay:
    """A shard that summarizes one day of the log.

    Attributes:
        log: the admitted rows, restricted to the day.
        day: ISO date.
        click: what counts as exposed and as satisfied.
        logs: the bot rules.
        sessions: assignment of sessions to splits; None: sessions are not assigned.
        folder: where the shard's result is saved, so that an interrupted run can resume.
    """

    log: AdmittedRows
    day: str
    click: ClickSettings
    logs: LogSettings
    sessions: SessionSplit | None
    folder: str

    @property
    def name(self) -> str:
        return f"click_evidence {self.day}"


def evidence(
    tables: Tables,
    output: Output,
    click: ClickSettings,
    logs: LogSettings,
    *,
    sessions: SessionSplit | None = None,
    spread: Spread = here,
) -> None:
    """Sum each admitted day by query and document, and by spelling; unchanged days are not read again.

    Args:
        tables: tables that contain `impressions`, `click_model` and, after admission, `log_days`.
        output: receives `click_evidence`, `query_spellings` and `reformulations`, and the fact `contains`.
        click: what counts as exposed and as satisfied.
        logs: the bot rules.
        sessions: assignment of sessions to splits, by which the counts are divided; None: they are not divided.
        spread: runs the shards, one per day.

    Source: ScalingNote, 4.1 (clicked documents; documents exposed but not clicked).
    """
    log = AdmittedRows.from_tables(tables)
    model_fingerprint = digest(tables.parts("click_model"))
    facts_of_days: list[dict[str, object]] = []
    contains: dict[str, list[str]] = {}
    day_fingerprints = {
        day: key_of(rows_fingerprint, model_fingerprint) for day, rows_fingerprint in log.digests().items()
    }
    folder = f"progress/{EVIDENCE.name}"
    shards = {
        day: LogDay(log.only_day(day), day, click, logs, sessions, f"{folder}/{output.unit_key(day, fingerprint)}")
        for day, fingerprint in day_fingerprints.items()
    }
    missing_days = [day for day, fingerprint in day_fingerprints.items() if not output.is_recorded(day, fingerprint)]
    results = spread(summarize_day, [shards[day] for day in missing_days])
    for n_done, (day, fingerprint) in enumerate(day_fingerprints.items(), 1):
        with output.unit(day, fingerprint) as unit:
            if not unit.done:
                # A recorded day whose parts turn out damaged was not in `missing_days`: it is summarized here.
                pieces_of_day = next(results) if day in missing_days else summarize_day(shards[day])
                unit.facts |= _write_day(output, pieces_of_day)
                unit.facts["contains"] = _contained_versions(output, unit, day)
        facts_of_days.append(unit.facts)
        output.progress(n_done, len(log.days), day)
        contains[day] = unit.facts["contains"]
    output.facts["contains"] = contains
    output.count(_funnel_step(facts_of_days))


def _contained_versions(output: Output, unit: Unit, day: str) -> list[str]:
    """Fingerprints of earlier versions of the day's evidence of which this version lost no rows."""
    earlier = output.previous_tables("click_evidence")
    parts = earlier.by_day("click_evidence").get(day) if earlier else None
    if not earlier or not parts:
        return []
    with earlier.with_parts("click_evidence", parts).connect() as connection:
        connection.register("present_evidence", output.read_unit(unit, "click_evidence"))
        n_lost_rows = connection.sql(COUNT_LOST_EVIDENCE_SQL).fetchall()[0][0]
    earlier_versions: list[str] = output.earlier_facts.get("contains", {}).get(day, [])
    return [] if n_lost_rows else [*earlier_versions, digests({day: parts})[day]]


def summarize_day(shard: LogDay) -> Pieces:
    """Summarize a day of the log.

    Yields:
        Rows of `click_evidence`, of `query_spellings` and of `reformulations`, one table of the rejected bots, and one
            table with the counts as JSON, in this order: `_write_day` tells them apart by their columns.
    """
    log, day = shard.log, shard.day
    with log.tables.connect() as connection:
        impressions = log.impressions(connection, day)
        exposures = Exposures.from_impressions(connection, impressions, shard.logs)
        bots = exposures.bot_rows(connection)
        parameters = {"day": day, "skipped": shard.click.negatives == "skipped", "dwell": shard.click.min_dwell_seconds}
        sessions = shard.sessions
        names = {"people": exposures.people, "impressions": impressions, "bots": exposures.bots}
        split_of_row = sessions.split_sql(f"({sessions.id_sql})") if sessions else NO_SESSION_SPLIT_SQL
        evidence_sql = DAILY_EVIDENCE_SQL.format(**names, session_split=split_of_row)
        yield from pieces(connection, evidence_sql, parameters, TABLE_GROUP_ROWS)
        split_of_first = sessions.split_sql("session") if sessions else NO_SESSION_SPLIT_SQL
        session_of_row = sessions.id_sql if sessions else NO_SESSION_SPLIT_SQL
        spellings_sql = DAILY_SPELLINGS_SQL.format(**names, session=session_of_row, session_split=split_of_first)
        yield from pieces(connection, spellings_sql, {"day": day}, TABLE_GROUP_ROWS)
        reformulations_sql = DAILY_REFORMULATIONS_SQL.format(**names, session_split=split_of_row)
        pause = {"day": day, "max_pause_minutes": MAX_PAUSE_MINUTES}
        yield from pieces(connection, reformulations_sql, pause, TABLE_GROUP_ROWS)
        messages = [f"{rows} impressions on {day}" for rows in bots["rows"].to_pylist()]
        yield bots.drop_columns(["rows"]).append_column("payload", pa.array(messages, pa.string()))
        yield pa.table({"counts": [json.dumps(_counts(connection, impressions, exposures, bots))]})


def _write_day(output: Output, day_pieces: Pieces) -> dict[str, object]:
    """Write the result of `summarize_day`; returns the day's counts."""
    output_tables = [TABLES[name] for name in EVIDENCE.writes]
    pieces_of_day = iter(day_pieces)
    piece = next(pieces_of_day)
    for table in output_tables:
        with output.row_group_writer(table.name, RESULT_ROWS) as write_rows:
            while set(piece.column_names) == set(table.schema.names):
                write_rows(piece.cast(table.schema))
                piece = next(pieces_of_day)
    bots = piece
    if bots.num_rows:
        output.reject(EVIDENCE.name, "impressions", dict(zip(bots.column_names, bots.columns, strict=True)))
    counts: dict[str, object] = json.loads(next(pieces_of_day)["counts"][0].as_py())
    return counts


def _counts(
    connection: duckdb.DuckDBPyConnection, impressions: Relation, exposures: Exposures, bots: pa.Table
) -> dict[str, object]:
    """Counts of a day: its rows, repeated rows, rows of bots by reason, and the rows kept."""
    relations = (impressions, exposures.shown, exposures.people)
    counts_sql = ", ".join(f"(SELECT count(*) FROM {relation})" for relation in relations)
    n_rows, n_shown, n_kept = connection.sql(f"SELECT {counts_sql}").fetchall()[0]
    rows_by_reason: dict[str, int] = {}
    for bot in bots.to_pylist():
        rows_by_reason[bot["reason"]] = rows_by_reason.get(bot["reason"], 0) + bot["rows"]
    return {"rows": n_rows, "repeats": n_rows - n_shown, "bots": rows_by_reason, "kept": n_kept}


def _funnel_step(facts_of_days: list[dict[str, object]]) -> FunnelStep:
    """The counts of all days as one funnel step. Units keep them as facts, so that skipped days count, too."""
    dropped: dict[str, int] = {}
    for facts in facts_of_days:
        reasons = {"repeated, or a click joined to its impression": facts["repeats"], **facts["bots"]}  # type: ignore[dict-item]
        for reason, rows in reasons.items():
            dropped[reason] = dropped.get(reason, 0) + int(rows)  # type: ignore[call-overload]
    sums = {name: sum(int(facts[name]) for facts in facts_of_days) for name in ("rows", "kept")}  # type: ignore[call-overload]
    dropped_rows = {reason: rows for reason, rows in sorted(dropped.items()) if rows}
    return FunnelStep("click_evidence", "impressions", sums["rows"], "impressions", sums["kept"], dropped_rows)


MIN_BOT_EXPOSURES = 50
"""Minimum exposures of a session to detect a bot by its click share: a person may click on all of a few results."""

SEARCH_DOCUMENTS_SQL = """
    SELECT tenant, search_id, query_id, doc_id, min(position) AS position, bool_or(clicked) AS clicked,
           max(dwell_seconds) AS dwell_seconds, min(session_id) AS session_id, min(user_id) AS user_id,
           min(timestamp) AS time
    FROM {impressions} GROUP BY tenant, search_id, query_id, doc_id
"""

# Rows without a session_id cannot be attributed to a user, so they are never bots.
BOT_SESSIONS_SQL = """
    WITH rapid_sessions AS (
        SELECT tenant, session_id, 'bot: too many searches a minute' AS reason
        FROM {shown} WHERE session_id IS NOT NULL AND $per_minute > 0
        GROUP BY tenant, session_id, time_bucket(INTERVAL 1 MINUTE, time)
        HAVING count(DISTINCT search_id) > $per_minute
    ), click_all_sessions AS (
        SELECT tenant, session_id, 'bot: clicks on everything' AS reason
        FROM {shown} WHERE session_id IS NOT NULL AND $click_share > 0
        GROUP BY tenant, session_id
        HAVING count(*) >= $min_exposures AND count(*) FILTER (clicked) >= $click_share * count(*)
    )
    SELECT tenant, session_id, max(reason) AS reason
    FROM (FROM rapid_sessions UNION ALL FROM click_all_sessions) GROUP BY tenant, session_id
"""

BOT_ROWS_SQL = """
    SELECT tenant, session_id AS id, reason, count(*) AS rows
    FROM {shown} JOIN {bots} USING (tenant, session_id) GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True)
class Exposures:
    """Exposures of a day's users: one row per search and document.

    Clicks logged as separate rows, and repeated events, are merged into the impression of their search.

    Attributes:
        shown: exposures, also of bots: tenant, search_id, query_id, doc_id, position, clicked, dwell_seconds,
            session_id, user_id, time.
        bots: sessions of bots: tenant, session_id, reason.
    """

    shown: Relation
    bots: Relation

    @classmethod
    def from_impressions(
        cls, connection: duckdb.DuckDBPyConnection, impressions: Relation, settings: LogSettings
    ) -> Exposures:
        """Merge the impressions of one day by search and document, and detect its bots."""
        limits = {
            "per_minute": settings.bot_queries_per_minute,
            "click_share": settings.bot_click_share,
            "min_exposures": MIN_BOT_EXPOSURES,
        }
        shown = materialize(connection, SEARCH_DOCUMENTS_SQL, impressions=impressions)
        return cls(shown, materialize(connection, BOT_SESSIONS_SQL, limits, shown=shown))

    @property
    def people(self) -> str:
        """SQL of the rows of `shown` without bots."""
        return f"(SELECT * FROM {self.shown} ANTI JOIN {self.bots} USING (tenant, session_id))"

    def bot_rows(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        """Sessions of bots: tenant, id, reason, rows of `shown`."""
        rows: pa.Table = connection.sql(BOT_ROWS_SQL.format(shown=self.shown, bots=self.bots)).to_arrow_table()
        return rows

    def drop(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Drop the relations, which releases their memory."""
        drop(connection, self.shown, self.bots)


LOG_QUERIES_STAGE = Stage("log_queries", 3, ("query_spellings",), ("log_queries",))

FIRST_DAYS_SQL = """
    CREATE TEMP TABLE first_days AS
    SELECT tenant, query_id, min(date) AS date FROM query_spellings ANTI JOIN known_queries USING (tenant, query_id)
    GROUP BY tenant, query_id
"""

NEW_QUERIES_OF_A_DAY_SQL = """
    SELECT tenant, query_id, first(query ORDER BY searches DESC, query) AS text, date,
           any_value(session_split) AS session_split
    FROM query_spellings SEMI JOIN first_days USING (tenant, query_id, date) WHERE date = CAST($day AS DATE)
    GROUP BY tenant, query_id, date ORDER BY tenant, query_id
"""


def log_queries(tables: Tables, output: Output) -> None:
    """Write the queries that each day contains first, in the most frequent spelling of that day.

    This depends on all earlier days: a late day recomputes all days after it.
    """
    days = tables.by_day("query_spellings")
    chain = chain_fingerprints(digests(days))
    done_days = [day for day, fingerprint in chain.items() if output.is_done(day, fingerprint)]
    for day in done_days:
        with output.unit(day, chain[day]):
            pass  # entering a finished unit adds its parts to the output
    missing_days = [day for day in chain if day not in done_days]
    missing_parts = [part for day in missing_days for part in days[day]]
    with tables.with_parts("query_spellings", missing_parts).connect() as connection:
        output.current_tables("log_queries").view(connection, "known_queries", "log_queries")
        connection.execute(FIRST_DAYS_SQL)
        for day in missing_days:
            with output.unit(day, chain[day]):
                _write_first_queries(day, connection, output)
            output.progress(sum(part.rows for part in output.parts["log_queries"]), None, day)
    n_queries = sum(part.rows for part in output.parts["log_queries"])
    output.count(FunnelStep("log_queries", "spellings", tables.rows("query_spellings"), "queries", n_queries))


def _write_first_queries(day: str, connection: duckdb.DuckDBPyConnection, output: Output) -> None:
    """Write the queries that the log contains for the first time on a day."""
    with output.row_group_writer("log_queries", RESULT_ROWS) as write_rows:
        for rows in pieces(connection, NEW_QUERIES_OF_A_DAY_SQL, {"day": day}, TABLE_GROUP_ROWS):
            columns = {name: rows[name] for name in rows.column_names}
            write_rows(TABLES["log_queries"].rows(columns | {"normal_form": normal_form(rows["text"])}))
