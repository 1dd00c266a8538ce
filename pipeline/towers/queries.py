"""The stage `tower_queries`: all queries of a tenant with their split; a student needs no labels."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.relations import Relation, materialize
from darklode.pipeline.ingest.queries import INGEST_QUERIES, ingest_queries
from darklode.pipeline.train.data.pairs import near_held_out_queries
from darklode.pipeline.train.data.sources import TrainingSource, resolve_tenant
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import TABLES
from darklode.schemas.tower_tables import TOWER_QUERIES

QUERIES_STAGE = Stage("tower_queries", 1, (INGEST_QUERIES.writes[0],), (TOWER_QUERIES.name,))

HELD_SHARE = 10
"""Each of the two held-out sets has at most one query in this many, test queries not counted."""

BUILD_TABLES = ("queries",)
LOG_TABLES = ("query_spellings", "triplets", "mined_test")

BUILD_QUERIES_SQL = "SELECT DISTINCT text, split = 'test' AS test FROM queries WHERE tenant = $tenant ORDER BY ALL"

# A query of the run's test set is a test query in all its spellings, even if it also occurs before the test period.
LOG_QUERIES_SQL = """
    WITH test_query_ids AS (SELECT DISTINCT query_id FROM mined_test WHERE tenant = $tenant)
    SELECT DISTINCT * FROM (
        SELECT query AS text, query_id IN (FROM test_query_ids) AS test FROM query_spellings WHERE tenant = $tenant
        UNION ALL SELECT query, split NOT IN ('train', 'validation') FROM triplets WHERE tenant = $tenant
        UNION ALL SELECT query, true FROM mined_test WHERE tenant = $tenant
    ) ORDER BY ALL
"""

FILE_QUERIES_SQL = "SELECT DISTINCT text FROM raw_queries WHERE tenant = $tenant ORDER BY text"
OTHER_TENANTS_SQL = "SELECT count(*) FROM raw_queries WHERE tenant <> $tenant"

DISTINCT_QUERIES_SQL = """
    SELECT text, min(index) AS index, bool_or(test) AS test FROM {all_queries}
    WHERE trim(text) <> '' GROUP BY text
"""

# The order in which queries are held out depends only on the seed and their texts.
SPLIT_QUERIES_SQL = """
    WITH shuffled_queries AS (
        SELECT *, row_number() OVER (PARTITION BY test ORDER BY md5(concat($seed, ' ', text)), text) AS place
        FROM {distinct_queries}
    ), held_out_size AS (
        SELECT least($max_held_out, count(*) FILTER (NOT test) // $share) AS n_held_out FROM {distinct_queries}
    )
    SELECT row_number() OVER (ORDER BY text) - 1 AS n, CAST($tenant AS VARCHAR) AS tenant, text, index,
           CASE WHEN test THEN 'test' WHEN place <= n_held_out THEN 'validation'
                WHEN place <= 2 * n_held_out THEN 'unseen' ELSE 'train' END AS split
    FROM shuffled_queries, held_out_size
"""

KEPT_QUERIES_SQL = """
    SELECT tenant, text AS query, CAST(index AS INTEGER) AS index, split FROM {split_queries}
    WHERE n NOT IN (FROM {near_held_out}) ORDER BY query
"""


def content(source: TrainingSource) -> str:
    """Fingerprint of the rows of a run that are read here."""
    names = _tables(source)
    tables = source.run.tables(*names)
    return " ".join(tables.content(name) for name in names)


def read_files(paths: Sequence[str], output: Output, settings: IngestSettings) -> None:
    """Read query files in the formats of `build` into `raw_queries` and `rejects`."""
    for path in paths:
        ingest_queries(path, output, settings)


def tower_queries(
    tables: Tables, output: Output, sources: Sequence[TrainingSource], *, tenant: str | None, held_out: int, seed: int
) -> None:
    """Write each query once, with its split.

    Test queries of a run are `test`; of the others two held-out sets are drawn by seed and text. Queries that nearly
    duplicate one further from training are dropped.

    Args:
        tables: hold `raw_queries`, the queries of the files.
        output: receives `tower_queries`.
        sources: the runs.
        tenant: the tenant; None: the only one.
        held_out: maximum size of a held-out set; a tenth of the non-test queries is the other limit.
        seed: seed of the draw.

    Raises:
        ArtifactError: there is nothing to train on, or several tenants.
    """
    tenant_name = resolve_tenant(list(sources), tenant)
    with tables.connect(FILE_QUERIES_SQL) as connection:
        query_tables = [
            *(_run_queries(source, tenant_name) for source in sources),
            _file_queries(connection, tenant_name),
        ]
        connection.register("all_queries", pa.concat_tables(query_tables))
        distinct_queries = materialize(connection, DISTINCT_QUERIES_SQL, all_queries=Relation("all_queries"))
        parameters = {"tenant": tenant_name, "seed": str(seed), "max_held_out": held_out, "share": HELD_SHARE}
        split_queries = materialize(connection, SPLIT_QUERIES_SQL, parameters, distinct_queries=distinct_queries)
        near_held_out = near_held_out_queries(connection, split_queries)
        rows = connection.sql(
            KEPT_QUERIES_SQL.format(split_queries=split_queries, near_held_out=near_held_out)
        ).to_arrow_table()
        output.write(TOWER_QUERIES.name, rows.cast(TABLES[TOWER_QUERIES.name].schema))
        _count(connection, output, distinct_queries, rows)
        (n_other_tenants,) = connection.execute(OTHER_TENANTS_SQL, {"tenant": tenant_name}).fetchall()[0]
    output.facts |= {"tenant": tenant_name, "rows of other tenants in files": int(n_other_tenants)}
    if not output.facts["train"]:
        raise ArtifactError("the runs have no training query that does not nearly duplicate a test query")


def _count(connection: duckdb.DuckDBPyConnection, output: Output, distinct_queries: Relation, rows: pa.Table) -> None:
    """Count kept queries, and those dropped as near-duplicates of test or held-out queries."""
    n_queries, n_also_elsewhere = connection.sql(
        f"SELECT (SELECT count(*) FROM {distinct_queries}),"
        " (SELECT count(*) FROM (SELECT text FROM all_queries GROUP BY text"
        " HAVING bool_or(test) AND NOT bool_and(test)))"
    ).fetchall()[0]
    n_dropped = int(n_queries) - rows.num_rows
    dropped = {"near to a test or held-out query": n_dropped} if n_dropped else {}
    output.count(FunnelStep("tower_queries", "queries", int(n_queries), "queries", rows.num_rows, dropped))
    sides = rows["split"].to_pylist()
    output.facts |= {side: sides.count(side) for side in ("train", "validation", "unseen", "test")}
    output.facts["also asked elsewhere, of test"] = int(n_also_elsewhere)


def _tables(source: TrainingSource) -> tuple[str, ...]:
    return LOG_TABLES if source.mined else BUILD_TABLES


def _run_queries(source: TrainingSource, tenant: str) -> pa.Table:
    query = LOG_QUERIES_SQL if source.mined else BUILD_QUERIES_SQL
    with source.run.tables(*_tables(source)).connect(query) as connection:
        rows = connection.sql(query, params={"tenant": tenant}).to_arrow_table()
    return _query_rows(rows["text"], source.number, rows["test"])


def _file_queries(connection: duckdb.DuckDBPyConnection, tenant: str) -> pa.Table:
    texts = connection.sql(FILE_QUERIES_SQL, params={"tenant": tenant}).to_arrow_table()["text"]
    return _query_rows(texts, 0, pa.chunked_array([pa.array([False] * len(texts), pa.bool_())]))


def _query_rows(texts: pa.ChunkedArray, number: int, test: pa.ChunkedArray) -> pa.Table:
    index = pa.repeat(pa.scalar(number, pa.int32()), len(texts))
    return pa.table({"text": texts.cast(pa.string()), "index": index, "test": test.cast(pa.bool_())})
