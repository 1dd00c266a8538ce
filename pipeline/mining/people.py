"""One day's impressions without repeats and without bots: what every other look at the log starts from."""

import duckdb
import pyarrow as pa

from schemas.mining import LogSettings

BOT_EXPOSURES = 50
"""Exposures from which a session's share of clicks can tell a bot."""

SHOWN = """
    CREATE OR REPLACE TEMP TABLE shown AS
    SELECT tenant, search_id, query_id, doc_id, min(position) AS position, bool_or(clicked) AS clicked,
           max(dwell_seconds) AS dwell_seconds, min(session_id) AS session_id, min(timestamp) AS time
    FROM {source} GROUP BY tenant, search_id, query_id, doc_id
"""

# A session without a name is nobody's: nothing can be said of how much one user searched.
BOTS = """
    CREATE OR REPLACE TEMP TABLE bots AS
    WITH hasty AS (
        SELECT tenant, session_id, 'bot: too many searches a minute' AS reason
        FROM shown WHERE session_id IS NOT NULL AND $per_minute > 0
        GROUP BY tenant, session_id, time_bucket(INTERVAL 1 MINUTE, time)
        HAVING count(DISTINCT search_id) > $per_minute
    ), greedy AS (
        SELECT tenant, session_id, 'bot: clicks on everything' AS reason
        FROM shown WHERE session_id IS NOT NULL AND $click_share > 0
        GROUP BY tenant, session_id
        HAVING count(*) >= $exposures AND count(*) FILTER (clicked) >= $click_share * count(*)
    )
    SELECT tenant, session_id, max(reason) AS reason
    FROM (FROM hasty UNION ALL FROM greedy) GROUP BY tenant, session_id
"""

PEOPLE = "CREATE OR REPLACE TEMP VIEW people AS SELECT * FROM shown ANTI JOIN bots USING (tenant, session_id)"

CAUGHT = """
    SELECT tenant, session_id AS id, reason, count(*) AS rows
    FROM shown JOIN bots USING (tenant, session_id) GROUP BY ALL ORDER BY ALL
"""


def people(connection: duckdb.DuckDBPyConnection, settings: LogSettings, source: str = "impressions") -> pa.Table:
    """Make the view `people` from the impressions of one day, in the view `source`: one row per search and document.

    A click that the log holds as a row of its own, and an event that it repeats, join the impression of their search.

    Returns:
        The bots' sessions: tenant, id, reason, rows (how many rows of `people` they would have had).
    """
    connection.execute(SHOWN.format(source=source))
    limits = {
        "per_minute": settings.bot_queries_per_minute,
        "click_share": settings.bot_click_share,
        "exposures": BOT_EXPOSURES,
    }
    connection.execute(BOTS, limits)
    connection.execute(PEOPLE)
    caught: pa.Table = connection.sql(CAUGHT).to_arrow_table()
    return caught
