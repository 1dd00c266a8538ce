"""The distinct queries of the log, each on the day on which it was first searched."""

import duckdb
import pyarrow as pa

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from pipeline.artifacts.tables import pieces
from pipeline.mining.days import Days, chained, digests
from schemas.tables import TABLES

LOG_QUERIES_STAGE = Stage("log_queries", 1, ("click_evidence", "impressions"), ("log_queries",))

ROWS = 1 << 19

FIRST_DAYS = """
    CREATE TEMP TABLE first_days AS
    SELECT tenant, query_id, min(date) AS date FROM click_evidence ANTI JOIN known USING (tenant, query_id)
    GROUP BY tenant, query_id
"""

FIRST_ON = """
    SELECT tenant, query_id, min(query) AS text, CAST($day AS DATE) AS date
    FROM that_day SEMI JOIN (FROM first_days WHERE date = CAST($day AS DATE)) USING (tenant, query_id)
    GROUP BY tenant, query_id ORDER BY tenant, query_id
"""


def log_queries(tables: Tables, output: Output) -> None:
    """Write the queries that each day is the first to hold.

    Which these are depends on all days before: a day that comes late is looked at with all that follow it.
    """
    days, shown = tables.by_day("click_evidence"), tables.by_day("impressions", "timestamp")
    chain = chained(digests(days))
    known: list[pa.Table] = [TABLES["log_queries"].empty()]
    standing = [day for day, basis in chain.items() if output.stands(day, basis)]
    for day in standing:
        with output.unit(day, chain[day]) as unit:
            known.append(output.written(unit, "log_queries"))
    missing = [day for day in chain if day not in standing]
    evidence = tables.of("click_evidence", [part for day in missing for part in days[day]])
    with evidence.connect() as connection:
        connection.register("known", pa.concat_tables(known).select(["tenant", "query_id"]))
        connection.execute(FIRST_DAYS)
        for day in missing:
            with output.unit(day, chain[day]):
                _write(connection, tables, output, day, shown)
            output.progress(sum(part.rows for part in output.parts["log_queries"]), None, day)
    rows = sum(part.rows for part in output.parts["log_queries"])
    output.count(FunnelStep("log_queries", "impressions", tables.rows("impressions"), "queries", rows))


def _write(connection: duckdb.DuckDBPyConnection, tables: Tables, output: Output, day: str, shown: Days) -> None:
    tables.of("impressions", shown[day]).view(connection, "that_day", "impressions")
    for rows in pieces(connection, FIRST_ON, {"day": day}, ROWS):
        output.write("log_queries", rows.cast(TABLES["log_queries"].schema))
