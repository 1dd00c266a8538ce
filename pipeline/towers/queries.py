"""The stage `tower_queries`: all queries of a tenant with their split; a student needs no labels."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.relations import Relation, materialize
from darklode.pipeline.ingest.queries import INGEST_QUERIES, ingest_queries
from darklode.pipeline.train.data.pairs import give_way
from darklode.pipeline.train.data.sources import TrainingSource, resolve_tenant
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import TABLES
from darklode.schemas.tower_tables import TOWER_QUERIES

QUERIES = Stage("tower_queries", 1, (INGEST_QUERIES.writes[0],), (TOWER_QUERIES.name,))

HELD_SHARE = 10
"""Each of the two held-out sets has at most one query in this many, test queries not counted."""

OF_A_BUILD = ("queries",)
OF_A_LOG = ("query_spellings", "triplets", "mined_test")

BUILD = "SELECT DISTINCT text, split = 'test' AS test FROM queries WHERE tenant = $tenant ORDER BY ALL"

# A query of the run's test set is a test query in all its spellings, even if it also occurs before the test period.
LOG = """
    WITH tests AS (SELECT DISTINCT query_id FROM mined_test WHERE tenant = $tenant)
    SELECT DISTINCT * FROM (
        SELECT query AS text, query_id IN (FROM tests) AS test FROM query_spellings WHERE tenant = $tenant
        UNION ALL SELECT query, split NOT IN ('train', 'validation') FROM triplets WHERE tenant = $tenant
        UNION ALL SELECT query, true FROM mined_test WHERE tenant = $tenant
    ) ORDER BY ALL
"""

FILES = "SELECT DISTINCT text FROM raw_queries WHERE tenant = $tenant ORDER BY text"
OTHERS = "SELECT count(*) FROM raw_queries WHERE tenant <> $tenant"

EVERY = """
    SELECT text, min(index) AS index, bool_or(test) AS test FROM {given}
    WHERE trim(text) <> '' GROUP BY text
"""

# The order in which queries are held out depends only on the seed and their texts.
SIDES = """
    WITH placed AS (
        SELECT *, row_number() OVER (PARTITION BY test ORDER BY md5(concat($seed, ' ', text)), text) AS place
        FROM {every}
    ), held AS (
        SELECT least($most, count(*) FILTER (NOT test) // $share) AS many FROM {every}
    )
    SELECT row_number() OVER (ORDER BY text) - 1 AS n, CAST($tenant AS VARCHAR) AS tenant, text, index,
           CASE WHEN test THEN 'test' WHEN place <= many THEN 'validation' WHEN place <= 2 * many THEN 'unseen'
                ELSE 'train' END AS split
    FROM placed, held
"""

KEPT = """
    SELECT tenant, text AS query, CAST(index AS INTEGER) AS index, split FROM {sides}
    WHERE n NOT IN (FROM {near}) ORDER BY query
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
    with tables.connect(FILES) as connection:
        query_tables = [
            *(_run_queries(source, tenant_name) for source in sources),
            _file_queries(connection, tenant_name),
        ]
        connection.register("given", pa.concat_tables(query_tables))
        every = materialize(connection, EVERY, given=Relation("given"))
        parameters = {"tenant": tenant_name, "seed": str(seed), "most": held_out, "share": HELD_SHARE}
        sides = materialize(connection, SIDES, parameters, every=every)
        near_held_out = give_way(connection, sides)
        rows = connection.sql(KEPT.format(sides=sides, near=near_held_out)).to_arrow_table()
        output.write(TOWER_QUERIES.name, rows.cast(TABLES[TOWER_QUERIES.name].schema))
        _count(connection, output, every, rows)
        (n_other_tenants,) = connection.execute(OTHERS, {"tenant": tenant_name}).fetchall()[0]
    output.facts |= {"tenant": tenant_name, "rows of other tenants in files": int(n_other_tenants)}
    if not output.facts["train"]:
        raise ArtifactError("the runs have no training query that does not nearly duplicate a test query")


def _count(connection: duckdb.DuckDBPyConnection, output: Output, every: Relation, rows: pa.Table) -> None:
    """Count kept queries, and those dropped as near-duplicates of test or held-out queries."""
    n_queries, n_also_elsewhere = connection.sql(
        f"SELECT (SELECT count(*) FROM {every}),"
        " (SELECT count(*) FROM (SELECT text FROM given GROUP BY text HAVING bool_or(test) AND NOT bool_and(test)))"
    ).fetchall()[0]
    n_dropped = int(n_queries) - rows.num_rows
    dropped = {"near to a test or held-out query": n_dropped} if n_dropped else {}
    output.count(FunnelStep("tower_queries", "queries", int(n_queries), "queries", rows.num_rows, dropped))
    sides = rows["split"].to_pylist()
    output.facts |= {side: sides.count(side) for side in ("train", "validation", "unseen", "test")}
    output.facts["also asked elsewhere, of test"] = int(n_also_elsewhere)


def _tables(source: TrainingSource) -> tuple[str, ...]:
    return OF_A_LOG if source.mined else OF_A_BUILD


def _run_queries(source: TrainingSource, tenant: str) -> pa.Table:
    query = LOG if source.mined else BUILD
    with source.run.tables(*_tables(source)).connect(query) as connection:
        rows = connection.sql(query, params={"tenant": tenant}).to_arrow_table()
    return _given(rows["text"], source.number, rows["test"])


def _file_queries(connection: duckdb.DuckDBPyConnection, tenant: str) -> pa.Table:
    texts = connection.sql(FILES, params={"tenant": tenant}).to_arrow_table()["text"]
    return _given(texts, 0, pa.chunked_array([pa.array([False] * len(texts), pa.bool_())]))


def _given(texts: pa.ChunkedArray, number: int, test: pa.ChunkedArray) -> pa.Table:
    index = pa.repeat(pa.scalar(number, pa.int32()), len(texts))
    return pa.table({"text": texts.cast(pa.string()), "index": index, "test": test.cast(pa.bool_())})
