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
from darklode.pipeline.base.artifacts.tables import scratch
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


COMPARED = (
    TableComparison("documents", "documents", "content_hash"),
    TableComparison("chunks", "chunks", "content_hash"),
    TableComparison("queries", "queries", "(text, split)"),
    TableComparison("pool", "pool", "true"),
    TableComparison("labels", "qrels", "relevance > 0"),
    TableComparison("triplets", "triplets", "negative_ids"),
)
"""In data order. A label changes when its pair switches between relevant and not relevant."""

# Rows of both runs, matched by key; `here` is null for the run that lacks the row.
_BOTH = """
    FROM (SELECT {keys}, {value} AS value, true AS here FROM old_{table}) old
    FULL JOIN (SELECT {keys}, {value} AS value, true AS here FROM new_{table}) new USING ({keys})
"""

_COUNTS = """
    SELECT $1 AS "table", count(old.here) AS before, count(new.here) AS after,
           count(*) FILTER (new.here IS NULL) AS removed,
           count(*) FILTER (old.here IS NULL) AS added,
           count(*) FILTER (old.here AND new.here AND old.value IS DISTINCT FROM new.value) AS changed
"""

# Why only one run has a label: the first reason that applies to the run without it.
_REASONS = """
    WITH pairs AS (
        SELECT tenant, query_id, chunk_id, old.here IS NULL AS came,
               coalesce(new.relevance, old.relevance) > 0 AS positive
        FROM (SELECT *, true AS here FROM old_qrels) old FULL JOIN (SELECT *, true AS here FROM new_qrels) new
             USING (tenant, query_id, chunk_id)
        WHERE old.here IS NULL OR new.here IS NULL
    ), other AS (
        SELECT pairs.*,
               if(came, oq.query_id, nq.query_id) IS NULL AS no_query,
               if(came, oc.chunk_id, nc.chunk_id) IS NULL AS no_chunk,
               if(came, op.chunk_id, np.chunk_id) IS NULL AS no_candidate
        FROM pairs
        LEFT JOIN old_queries oq USING (tenant, query_id) LEFT JOIN new_queries nq USING (tenant, query_id)
        LEFT JOIN old_chunks oc USING (tenant, chunk_id) LEFT JOIN new_chunks nc USING (tenant, chunk_id)
        LEFT JOIN old_pool op USING (tenant, query_id, chunk_id)
        LEFT JOIN new_pool np USING (tenant, query_id, chunk_id)
    )
    SELECT if(came, 'added', 'removed') AS labels,
           CASE WHEN no_query THEN if(came, 'query added', 'query removed')
                WHEN no_chunk THEN if(came, 'chunk added', 'chunk removed')
                WHEN no_candidate THEN if(came, 'pair added to the pool', 'pair removed from the pool')
                ELSE if(came, 'pair was not judged, or its verdict was null', 'pair not judged, or its verdict is null')
           END AS reason,
           count(*) FILTER (positive) AS relevant, count(*) FILTER (NOT positive) AS not_relevant
    FROM other GROUP BY ALL ORDER BY labels, count(*) DESC, reason
"""

# Pairs that are relevant in one run and not in the other, with the judge's probabilities.
_FLIPPED = """
    SELECT new.relevance > 0 AS relevant, q.text AS query, c.text AS chunk,
           ov.probability AS before, nv.probability AS after, new.tenant, new.query_id, new.chunk_id
    FROM old_qrels old JOIN new_qrels new USING (tenant, query_id, chunk_id)
    JOIN new_queries q USING (tenant, query_id) JOIN new_chunks c USING (tenant, chunk_id)
    LEFT JOIN old_verdicts ov USING (tenant, query_id, chunk_id)
    LEFT JOIN new_verdicts nv USING (tenant, query_id, chunk_id)
    WHERE (old.relevance > 0) <> (new.relevance > 0)
    QUALIFY row_number() OVER (
        PARTITION BY new.relevance > 0
        ORDER BY abs(nv.probability - ov.probability) DESC NULLS LAST, tenant, query_id, chunk_id
    ) <= $n
    ORDER BY relevant DESC, abs(nv.probability - ov.probability) DESC NULLS LAST, tenant, query_id, chunk_id
"""

# SQL of the text that is shown as an example of a row.
_TEXTS = {
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
            for table in (*(comparison.table for comparison in COMPARED), "verdicts"):
                tables.view(connection, f"{prefix}_{table}", table)
        yield connection


def counts(runs: duckdb.DuckDBPyConnection) -> pa.Table:
    """Row counts before and after, and removed, added and changed rows, per table that either run has."""
    count_rows = pa.concat_tables(
        runs.sql(_COUNTS + _join_sql(comparison), params=[comparison.subject]).to_arrow_table()
        for comparison in COMPARED
    )
    return count_rows.filter(pc.greater(pc.add(count_rows["before"], count_rows["after"]), 0))


def label_reasons(runs: duckdb.DuckDBPyConnection) -> pa.Table:
    """Reasons why labels exist in one run only, with counts of relevant and not relevant pairs."""
    return runs.sql(_REASONS).to_arrow_table()


def changed_verdicts(runs: duckdb.DuckDBPyConnection, n: int) -> pa.Table:
    """Pairs whose label flipped, now relevant first: at most `n` per direction, largest change of probability first.

    `before` and `after` are the judge's probabilities, null if unknown.
    """
    return runs.sql(_FLIPPED, params={"n": n}).to_arrow_table()


def examples(runs: duckdb.DuckDBPyConnection, n: int) -> Iterator[tuple[str, pa.Table]]:
    """At most `n` added, removed and changed rows of each table with texts, with the text before and after.

    Rows are chosen by a hash of their key, so the choice is reproducible.
    """
    for comparison in COMPARED:
        if comparison.subject in _TEXTS:
            yield comparison.subject, runs.sql(_examples_sql(comparison), params={"n": n}).to_arrow_table()


def _examples_sql(comparison: TableComparison) -> str:
    """SQL of at most `$n` added, removed and changed rows of a table."""
    keys = ", ".join(TABLES[comparison.table].key)
    run_rows = "SELECT {keys}, {value} AS value, {text}, true AS here FROM {run}_{table}"
    parameters = {
        "keys": keys,
        "value": comparison.value,
        "text": _TEXTS[comparison.subject],
        "table": comparison.table,
    }
    return f"""
        SELECT CASE WHEN new.here IS NULL THEN 'removed' WHEN old.here IS NULL THEN 'added' ELSE 'changed' END
               AS change, {keys}, old.text AS before, new.text AS after
        FROM ({run_rows.format(run="old", **parameters)}) old
        FULL JOIN ({run_rows.format(run="new", **parameters)}) new USING ({keys})
        WHERE old.value IS DISTINCT FROM new.value OR old.here IS NULL OR new.here IS NULL
        QUALIFY row_number() OVER (PARTITION BY change ORDER BY md5(concat_ws('/', {keys})), {keys}) <= $n
        ORDER BY change, {keys}
    """


def _join_sql(comparison: TableComparison) -> str:
    """FROM clause that joins the rows of both runs."""
    return _BOTH.format(keys=", ".join(TABLES[comparison.table].key), value=comparison.value, table=comparison.table)
