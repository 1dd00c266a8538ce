"""Daily statistics of searches, and a hash sample of queries and documents; unchanged days are not read again."""

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.relations import drop, materialize, view
from darklode.pipeline.mine.days import digests
from darklode.pipeline.mine.evidence import Exposures
from darklode.schemas.mining import LogSettings

DAY_FIGURES_STAGE = Stage("day_figures", 2, ("impressions",), ("day_figures", "day_marks"))

MAX_POSITION = 20
"""Number of positions counted one by one; lower positions count as the last of them."""
MARKS_PER_DAY = 4096
"""Sampled queries and documents per day: those with the smallest hashes, so that every day samples the same ones."""
N_HEAD_QUERIES = 500
"""Number of most frequent queries of a day whose shown documents are sampled."""

DAY_FIGURES_SQL = """
    WITH search_rows AS (
        SELECT tenant, search_id, min(query_id) AS query_id, min(session_id) AS session_id,
               hour(min(time) AT TIME ZONE 'UTC') AS hour, min(time) AS time, count(*) AS n_shown,
               count(*) FILTER (clicked) AS n_clicked, bit_xor(md5_number_lower(doc_id)) AS shown_hash
        FROM {people} GROUP BY tenant, search_id
    ), tenants AS (SELECT tenant, count(*) AS rows FROM {impressions} GROUP BY tenant),
    all_shown AS (SELECT tenant, count(*) AS shown FROM {shown} GROUP BY tenant),
    sums AS (
        SELECT tenant, count(*) AS impressions, count(*) FILTER (clicked) AS clicks,
               count(DISTINCT query_id) AS queries, count(DISTINCT doc_id) AS documents,
               count(*) FILTER (position IS NULL) AS without_position
        FROM {people} GROUP BY tenant
    ), searches AS (
        SELECT tenant, count(*) AS searches, count(DISTINCT session_id) AS sessions,
               count(*) FILTER (session_id IS NULL) AS without_session
        FROM search_rows GROUP BY tenant
    ), distinct_searches AS (
        SELECT tenant, count(*) AS distinct_searches
        FROM (SELECT DISTINCT tenant, query_id, time, n_shown, n_clicked, shown_hash FROM search_rows) GROUP BY tenant
    ), top_queries AS (
        SELECT tenant, max(n) AS top_query
        FROM (SELECT tenant, count(*) AS n FROM search_rows GROUP BY tenant, query_id) GROUP BY tenant
    ), top_sessions AS (
        SELECT tenant, max(n) AS top_session
        FROM (SELECT tenant, count(session_id) AS n FROM search_rows GROUP BY tenant, session_id) GROUP BY tenant
    ), position_counts AS (
        SELECT tenant, least(position, $max_position) AS place, count(*) AS n, count(*) FILTER (clicked) AS clicked
        FROM {people} WHERE position IS NOT NULL GROUP BY ALL
    ), position_lists AS (
        SELECT tenant, list(coalesce(n, 0) ORDER BY place) AS shown_at,
               list(coalesce(clicked, 0) ORDER BY place) AS clicked_at
        FROM tenants CROSS JOIN (SELECT unnest(range(1, $max_position + 1)) AS place)
        LEFT JOIN position_counts USING (tenant, place) GROUP BY tenant
    ), hour_counts AS (SELECT tenant, hour, count(*) AS n FROM search_rows GROUP BY ALL),
    hour_lists AS (
        SELECT tenant, list(coalesce(n, 0) ORDER BY hour) AS searched_at
        FROM tenants CROSS JOIN (SELECT unnest(range(24)) AS hour) LEFT JOIN hour_counts USING (tenant, hour)
        GROUP BY tenant
    )
    SELECT tenant, CAST($day AS DATE) AS date, rows, rows - shown AS repeats, shown - coalesce(impressions, 0) AS bots,
           coalesce(impressions, 0) AS impressions, coalesce(searches, 0) AS searches, coalesce(clicks, 0) AS clicks,
           coalesce(sessions, 0) AS sessions, coalesce(queries, 0) AS queries, coalesce(documents, 0) AS documents,
           coalesce(without_position, 0) AS without_position,
           coalesce(without_session, 0) AS without_session,
           coalesce(searches - distinct_searches, 0) AS twins, coalesce(top_query, 0) AS top_query,
           coalesce(top_session, 0) AS top_session, shown_at, clicked_at, searched_at
    FROM tenants JOIN all_shown USING (tenant) JOIN position_lists USING (tenant) JOIN hour_lists USING (tenant)
    LEFT JOIN sums USING (tenant) LEFT JOIN searches USING (tenant) LEFT JOIN distinct_searches USING (tenant)
    LEFT JOIN top_queries USING (tenant) LEFT JOIN top_sessions USING (tenant)
    ORDER BY tenant
"""

# The lower half of an MD5, without its last bit: a signed column takes it.
DAY_MARKS_SQL = """
    WITH hashed_rows AS (
        SELECT *, CAST(md5_number_lower(query_id) >> 1 AS BIGINT) AS query,
               CAST(md5_number_lower(doc_id) >> 1 AS BIGINT) AS document,
               CAST(md5_number_lower(concat_ws(chr(0), query_id, doc_id)) >> 1 AS BIGINT) AS pair
        FROM {people}
    ), queries AS (
        SELECT tenant, 'query' AS kind, query AS mark, NULL::BIGINT AS query, count(DISTINCT search_id) AS shown,
               count(*) FILTER (clicked) AS clicks
        FROM hashed_rows GROUP BY tenant, mark
    ), documents AS (
        SELECT tenant, 'document', document AS mark, NULL::BIGINT, count(*), count(*) FILTER (clicked)
        FROM hashed_rows GROUP BY tenant, mark
    ), head_queries AS (
        SELECT tenant, mark AS query FROM queries
        QUALIFY row_number() OVER (PARTITION BY tenant ORDER BY shown DESC, mark) <= $head
    ), pairs AS (
        SELECT tenant, 'pair', pair AS mark, query, count(*), count(*) FILTER (clicked)
        FROM hashed_rows SEMI JOIN head_queries USING (tenant, query) GROUP BY tenant, mark, query
    ), sampled_marks AS (
        FROM (FROM queries UNION ALL FROM documents)
        QUALIFY row_number() OVER (PARTITION BY tenant, kind ORDER BY mark) <= $max_marks
    )
    SELECT tenant, CAST($day AS DATE) AS date, kind, mark, query, shown, clicks
    FROM (FROM sampled_marks UNION ALL FROM pairs) ORDER BY tenant, kind, mark
"""


def day_figures(tables: Tables, output: Output, logs: LogSettings) -> None:
    """Summarize each day of the log by tenant.

    Args:
        tables: tables that contain `impressions`.
        output: receives `day_figures` and `day_marks`, one part per day.
        logs: settings; the bot rules decide which sessions do not count.
    """
    parts_by_day = tables.by_day("impressions", "timestamp")
    for n_done, (day, fingerprint) in enumerate(digests(parts_by_day).items(), 1):
        with output.unit(day, fingerprint) as unit:
            if not unit.done:
                _summarize_day(tables.with_parts("impressions", parts_by_day[day]), output, day, logs)
        output.progress(n_done, len(parts_by_day), day)


def _summarize_day(tables: Tables, output: Output, day: str, logs: LogSettings) -> None:
    """Write the statistics and samples of one day; `tables` has the impressions of that day only."""
    with tables.connect() as connection:
        impressions = view(connection, tables, "impressions")
        exposures = Exposures.from_impressions(connection, impressions, logs)
        people = materialize(connection, f"FROM {exposures.people}")
        relations = {"impressions": impressions, "shown": exposures.shown, "people": people}
        parameters = {"day": day, "max_position": MAX_POSITION}
        output.write_answer("day_figures", connection, DAY_FIGURES_SQL.format(**relations), parameters)
        output.write_answer(
            "day_marks",
            connection,
            DAY_MARKS_SQL.format(**relations),
            {"day": day, "head": N_HEAD_QUERIES, "max_marks": MARKS_PER_DAY},
        )
        drop(connection, people)
