"""Differences between two runs: added, removed and changed rows, matched by key.

The functions take the connection that `attach_both` opens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.artifacts.database import scratch
from darklode.schemas.tables import TABLES


@dataclass(frozen=True)
class TableComparison:
    """How a table is compared.

    Attributes:
        subject: name of its rows in the output.
        table: name of the table.
        value: SQL of a row's value: rows of both runs with the same key but different values count as changed.
    """

    subject: str
    table: str
    value: str


TABLE_COMPARISONS = (
    TableComparison("documents", "documents", "content_hash"),
    TableComparison("chunks", "chunks", "content_hash"),
    TableComparison("queries", "queries", "(text, split)"),
    TableComparison("pool", "pool", "true"),
    TableComparison("labels", "qrels", "relevance > 0"),
    TableComparison("triplets", "triplets", "negative_ids"),
)
"""In data order. A label changes when its pair switches between relevant and not relevant."""

# Rows of both runs, matched by key; `present` is null for the run that lacks the row.
_JOINED_RUNS_SQL = """
    FROM (SELECT {keys}, {value} AS value, true AS present FROM old_{table}) old
    FULL JOIN (SELECT {keys}, {value} AS value, true AS present FROM new_{table}) new USING ({keys})
"""

_COUNTS_SQL = """
    SELECT $1 AS "table", count(old.present) AS before, count(new.present) AS after,
           count(*) FILTER (new.present IS NULL) AS removed,
           count(*) FILTER (old.present IS NULL) AS added,
           count(*) FILTER (old.present AND new.present AND old.value IS DISTINCT FROM new.value) AS changed
"""

# Why only one run has a label: the first reason that applies to the run without it.
_LABEL_REASONS_SQL = """
    WITH pairs AS (
        SELECT tenant, query_id, chunk_id, old.present IS NULL AS is_added,
               coalesce(new.relevance, old.relevance) > 0 AS positive
        FROM (SELECT *, true AS present FROM old_qrels) old FULL JOIN (SELECT *, true AS present FROM new_qrels) new
             USING (tenant, query_id, chunk_id)
        WHERE old.present IS NULL OR new.present IS NULL
    ), reasons AS (
        SELECT pairs.*,
               if(is_added, old_query.query_id, new_query.query_id) IS NULL AS no_query,
               if(is_added, old_chunk.chunk_id, new_chunk.chunk_id) IS NULL AS no_chunk,
               if(is_added, old_candidate.chunk_id, new_candidate.chunk_id) IS NULL AS no_candidate
        FROM pairs
        LEFT JOIN old_queries old_query USING (tenant, query_id)
        LEFT JOIN new_queries new_query USING (tenant, query_id)
        LEFT JOIN old_chunks old_chunk USING (tenant, chunk_id) LEFT JOIN new_chunks new_chunk USING (tenant, chunk_id)
        LEFT JOIN old_pool old_candidate USING (tenant, query_id, chunk_id)
        LEFT JOIN new_pool new_candidate USING (tenant, query_id, chunk_id)
    )
    SELECT if(is_added, 'added', 'removed') AS labels,
           CASE WHEN no_query THEN if(is_added, 'query added', 'query removed')
                WHEN no_chunk THEN if(is_added, 'chunk added', 'chunk removed')
                WHEN no_candidate THEN if(is_added, 'pair added to the pool', 'pair removed from the pool')
                ELSE if(is_added, 'pair was not judged, or its verdict was null',
                        'pair not judged, or its verdict is null')
           END AS reason,
           count(*) FILTER (positive) AS relevant, count(*) FILTER (NOT positive) AS not_relevant
    FROM reasons GROUP BY ALL ORDER BY labels, count(*) DESC, reason
"""

# Pairs that are relevant in one run and not in the other, with the judge's probabilities.
_FLIPPED_LABELS_SQL = """
    SELECT new.relevance > 0 AS relevant, q.text AS query, c.text AS chunk,
           old_verdict.probability AS before, new_verdict.probability AS after, new.tenant, new.query_id, new.chunk_id
    FROM old_qrels old JOIN new_qrels new USING (tenant, query_id, chunk_id)
    JOIN new_queries q USING (tenant, query_id) JOIN new_chunks c USING (tenant, chunk_id)
    LEFT JOIN old_verdicts old_verdict USING (tenant, query_id, chunk_id)
    LEFT JOIN new_verdicts new_verdict USING (tenant, query_id, chunk_id)
    WHERE (old.relevance > 0) <> (new.relevance > 0)
    QUALIFY row_number() OVER (
        PARTITION BY new.relevance > 0
        ORDER BY abs(new_verdict.probability - old_verdict.probability) DESC NULLS LAST, tenant, query_id, chunk_id
    ) <= $n
    ORDER BY relevant DESC, abs(new_verdict.probability - old_verdict.probability) DESC NULLS LAST,
             tenant, query_id, chunk_id
"""

# SQL of the text that is shown as an example of a row.
_EXAMPLE_TEXT_SQL = {
    "documents": "coalesce(title, doc_id) AS text",
    "chunks": "text",
    "queries": "concat(text, ' [', split, ']') AS text",
    "triplets": "concat(left(query, 30), ' → ', left(positive, 30), ' ≠ ', left(negatives[1], 30)) AS text",
}


@contextmanager
def attach_both(old: Tables, new: Tables) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with the compared tables of both runs as views old_<table> and new_<table>.

    Args:
        old: `duckdb_views.all_tables` of the older run.
        new: `duckdb_views.all_tables` of the newer run.
    """
    with scratch() as connection:
        for prefix, tables in (("old", old), ("new", new)):
            for table in (*(comparison.table for comparison in TABLE_COMPARISONS), "verdicts"):
                tables.view(connection, f"{prefix}_{table}", table)
        yield connection


def counts(runs: duckdb.DuckDBPyConnection) -> pa.Table:
    """Row counts before and after, and removed, added and changed rows, per table that either run has."""
    count_rows = pa.concat_tables(
        runs.sql(_COUNTS_SQL + _join_sql(comparison), params=[comparison.subject]).to_arrow_table()
        for comparison in TABLE_COMPARISONS
    )
    return count_rows.filter(pc.greater(pc.add(count_rows["before"], count_rows["after"]), 0))


def label_reasons(runs: duckdb.DuckDBPyConnection) -> pa.Table:
    """Reasons why labels exist in one run only, with counts of relevant and not relevant pairs."""
    return runs.sql(_LABEL_REASONS_SQL).to_arrow_table()


def changed_verdicts(runs: duckdb.DuckDBPyConnection, n: int) -> pa.Table:
    """Pairs whose label flipped, now relevant first: at most `n` per direction, largest change of probability first.

    `before` and `after` are the judge's probabilities, null if unknown.
    """
    return runs.sql(_FLIPPED_LABELS_SQL, params={"n": n}).to_arrow_table()


def examples(runs: duckdb.DuckDBPyConnection, n: int) -> Iterator[tuple[str, pa.Table]]:
    """At most `n` added, removed and changed rows of each table with texts, with the text before and after.

    Rows are chosen by a hash of their key, so the choice is reproducible.
    """
    for comparison in TABLE_COMPARISONS:
        if comparison.subject in _EXAMPLE_TEXT_SQL:
            yield comparison.subject, runs.sql(_examples_sql(comparison), params={"n": n}).to_arrow_table()


def _examples_sql(comparison: TableComparison) -> str:
    """SQL of at most `$n` added, removed and changed rows of a table."""
    keys = ", ".join(TABLES[comparison.table].key)
    run_rows = "SELECT {keys}, {value} AS value, {text}, true AS present FROM {run}_{table}"
    parameters = {
        "keys": keys,
        "value": comparison.value,
        "text": _EXAMPLE_TEXT_SQL[comparison.subject],
        "table": comparison.table,
    }
    return f"""
        SELECT CASE WHEN new.present IS NULL THEN 'removed' WHEN old.present IS NULL THEN 'added' ELSE 'changed' END
               AS change, {keys}, old.text AS before, new.text AS after
        FROM ({run_rows.format(run="old", **parameters)}) old
        FULL JOIN ({run_rows.format(run="new", **parameters)}) new USING ({keys})
        WHERE old.value IS DISTINCT FROM new.value OR old.present IS NULL OR new.present IS NULL
        QUALIFY row_number() OVER (PARTITION BY change ORDER BY md5(concat_ws('/', {keys})), {keys}) <= $n
        ORDER BY change, {keys}
    """


def _join_sql(comparison: TableComparison) -> str:
    """FROM clause that joins the rows of both runs."""
    return _JOINED_RUNS_SQL.format(
        keys=", ".join(TABLES[comparison.table].key), value=comparison.value, table=comparison.table
    )
