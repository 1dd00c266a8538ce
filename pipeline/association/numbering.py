"""Queries and terms as numbers: what the joins run on."""

import duckdb

_QUERIES = """
    CREATE TABLE numbered_queries AS
    SELECT (row_number() OVER (ORDER BY tenant, query_id) - 1)::INTEGER AS q, tenant, query_id, date FROM log_queries
"""

_TERMS = """
    CREATE TABLE numbered_terms AS
    SELECT (row_number() OVER (ORDER BY tenant, term) - 1)::INTEGER AS t, tenant, term
    FROM (SELECT DISTINCT tenant, term FROM query_terms)
"""

_PLACED = """
    CREATE TABLE placed_terms AS
    SELECT q, date, t, importance, row_number() OVER (PARTITION BY q ORDER BY importance DESC, t)::INTEGER AS place
    FROM query_terms JOIN numbered_queries USING (tenant, query_id) JOIN numbered_terms USING (tenant, term)
"""


def number(connection: duckdb.DuckDBPyConnection) -> None:
    """Make three tables from `log_queries` and `query_terms`.

    `numbered_queries` (q, tenant, query_id, date), q from 0 in order of tenant and query_id; `numbered_terms` (t,
    tenant, term) in the same way: a term of another tenant is another term; `placed_terms` (q, date, t, importance,
    place), place 1 for a query's most important term, equal ones in the order of their terms' UTF-8 bytes.
    """
    for statement in (_QUERIES, _TERMS, _PLACED):
        connection.execute(statement)
