"""What the training and the validation split share: queries, reworded queries, positives, sessions and users."""

from itertools import accumulate

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.relations import materialize
from darklode.pipeline.mine.admission.admitted_log import AdmittedRows
from darklode.pipeline.mine.session_split import SessionSplit
from darklode.schemas.tables import TABLES

MEASURED_DAYS, MEASURED_ROWS = 28, 1 << 19
"""Sessions and users are counted in the last days of the log only, at most so many days and impressions (but always
the last day), so that the cost of a night does not grow.
"""

# Queries with the same words, whatever their order and case. It does not use the near-duplicate keys by which queries
# are split, so it also tests them.
TEXT_LEAKAGE_SQL = r"""
    WITH query_texts AS MATERIALIZED (
        SELECT tenant, query_id, split, any_value(query) AS query FROM triplets GROUP BY tenant, query_id, split
    ), items AS (
        SELECT 'queries' AS measure, tenant, query_id AS item, split FROM query_texts UNION ALL
        SELECT DISTINCT 'positives', tenant, positive_id, split FROM triplets UNION ALL
        SELECT 'reworded queries', tenant, array_to_string(list_sort(list_distinct(
            regexp_extract_all(lower(query), '[\pL\pM\pN]+'))), ' '), split
        FROM query_texts
    )
    FROM items
"""

# The queries whose clicks support triplets of a split, the lenders of its multi-hop triplets included.
EVIDENCE_QUERIES_SQL = """
    SELECT DISTINCT tenant, coalesce(via_query_id, query_id) AS query_id, split FROM triplets
    WHERE source LIKE 'click%'
"""

SESSION_QUERIES_OF_A_DAY_SQL = """
    INSERT INTO session_queries SELECT DISTINCT tenant, session_id, user_id, query_id FROM {impressions}
"""

# `searched` counts the searches of a session for queries of a split, also those that are no evidence for them.
SESSION_LEAKAGE_SQL = """
    WITH searches AS (
        SELECT DISTINCT tenant, session_id, user_id, e.split, {counts} AS counts
        FROM session_queries JOIN {evidence_queries} e USING (tenant, query_id)
        JOIN query_clusters c USING (tenant, query_id)
    )
    SELECT 'sessions' AS measure, tenant, session_id AS item, split FROM searches WHERE counts UNION ALL
    SELECT 'users', tenant, user_id, split FROM searches WHERE counts UNION ALL
    SELECT 'sessions, all searches', tenant, session_id, split FROM searches
"""

COUNTS_SQL = """
    WITH items AS (
        SELECT measure, tenant, item, bool_or(split = 'train') AS in_train,
               bool_or(split = 'validation') AS in_validation
        FROM ({items}) WHERE item IS NOT NULL GROUP BY measure, tenant, item
    )
    SELECT measure, count(*) FILTER (in_train) AS train, count(*) FILTER (in_validation) AS validation,
           count(*) FILTER (in_train AND in_validation) AS shared
    FROM items GROUP BY measure
    ORDER BY list_position(['queries', 'reworded queries', 'positives', 'sessions', 'users'], measure) NULLS LAST
"""


def measure_leakage(tables: Tables, sessions: SessionSplit | None) -> pa.Table:
    """Count what the training and the validation triplets share.

    Args:
        tables: must contain `triplets`; with `impressions` and `query_clusters`, sessions and users of `measured_days`
            are counted, too.
        sessions: the assignment by which sessions count as evidence; None: all sessions do.

    Returns:
        Rows of `split_leakage`; a measure without any item has none.
    """
    with tables.connect("triplets query_clusters") as connection:
        items = [TEXT_LEAKAGE_SQL]
        if "impressions" in tables and "query_clusters" in tables:
            items.append(_session_items(connection, tables, sessions))
        counts = [connection.sql(COUNTS_SQL.format(items=of_kind)).to_arrow_table() for of_kind in items]
    return pa.concat_tables(counts).cast(TABLES["split_leakage"].schema)


def _session_items(connection: duckdb.DuckDBPyConnection, tables: Tables, sessions: SessionSplit | None) -> str:
    """SQL of the sessions and users of each split."""
    connection.execute(
        "CREATE TEMP TABLE session_queries (tenant VARCHAR, session_id VARCHAR, user_id VARCHAR, query_id VARCHAR)"
    )
    log = AdmittedRows.from_tables(tables)
    for day in measured_days(log):
        connection.execute(SESSION_QUERIES_OF_A_DAY_SQL.format(impressions=log.impressions(connection, day)))
    evidence_queries = materialize(connection, EVIDENCE_QUERIES_SQL)
    session_split = sessions.split_sql(f"({sessions.id_sql})") if sessions else None
    counts = f"coalesce({session_split} = c.split, true)" if session_split else "true"
    return SESSION_LEAKAGE_SQL.format(counts=counts, evidence_queries=evidence_queries)


def measured_days(log: AdmittedRows) -> list[str]:
    """The last days of the log in which sessions are counted, latest first."""
    days = sorted(log.days, reverse=True)[:MEASURED_DAYS]
    rows = accumulate(sum(part.rows for part in log.days[day]) for day in days)
    return [day for day, n_rows in zip(days, rows, strict=True) if day == days[0] or n_rows <= MEASURED_ROWS]
