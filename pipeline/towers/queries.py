"""The stage `tower_queries`: a tenant's queries and passages with their split; a student needs no labels."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import duckdb
import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.relations import Relation, materialize
from darklode.pipeline.base.types import Ints
from darklode.pipeline.ingest.queries import INGEST_QUERIES, ingest_queries
from darklode.pipeline.towers.held_out import HeldOut, choose_held_out
from darklode.pipeline.towers.passages import sample_passages
from darklode.pipeline.train.data.pairs import near_held_out_queries
from darklode.pipeline.train.data.sources import TrainingSource, resolve_tenant
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import TABLES
from darklode.schemas.tower_tables import TOWER_QUERIES

QUERIES_STAGE = Stage("tower_queries", 3, (INGEST_QUERIES.writes[0],), (TOWER_QUERIES.name,))

HELD_SHARE = 10
"""Held-out clusters have at most one query in this many, test queries not counted; validation of the queries left."""

NEAR_REASON = "near to a test or held-out query"

BUILD_TABLES = ("queries", "chunks")
LOG_TABLES = ("query_spellings", "triplets", "mined_test", "documents")

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

# A text of several sources belongs to the first one, but is held out if one of its sources is.
DISTINCT_QUERIES_SQL = """
    SELECT text, arg_min(index, place) AS index, arg_min(source, place) AS source, bool_or(test) AS test,
           bool_or(held_out) AS held_out
    FROM (SELECT *, source = $held_source AND index = $held_index AS held_out,
                 CASE source WHEN 'queries' THEN 0 WHEN 'file' THEN 1 ELSE 2 END * 1000000 + index AS place
          FROM {all_queries})
    WHERE trim(text) <> '' GROUP BY text
"""

TRAINING_TEXTS_SQL = """
    SELECT text FROM {distinct_queries} WHERE NOT test AND source <> 'documents' ORDER BY md5(concat($seed, ' ', text))
"""

# The order in which queries are held out depends only on the seed and their texts. Passages are only trained on.
SPLIT_QUERIES_SQL = """
    WITH candidates AS (
        SELECT *, held_out OR text IN (SELECT text FROM held_out_clusters) AS unseen FROM {distinct_queries}
    ), shuffled_queries AS (
        SELECT *, row_number() OVER (
            PARTITION BY test, unseen, source = 'documents' ORDER BY md5(concat($seed, ' ', text)), text
        ) AS place FROM candidates
    ), held_out_size AS (
        SELECT least($max_held_out,
                     count(*) FILTER (NOT test AND NOT unseen AND source <> 'documents') // $share) AS n_held_out
        FROM candidates
    )
    SELECT row_number() OVER (ORDER BY text) - 1 AS n, CAST($tenant AS VARCHAR) AS tenant, text, index, source,
           CASE WHEN test THEN 'test' WHEN unseen THEN if(place <= $max_held_out, 'unseen', NULL)
                WHEN source <> 'documents' AND place <= n_held_out THEN 'validation' ELSE 'train' END AS split
    FROM shuffled_queries, held_out_size
"""

KEPT_QUERIES_SQL = """
    SELECT tenant, text AS query, CAST(index AS INTEGER) AS index, source, split FROM {split_queries}
    WHERE split IS NOT NULL AND n NOT IN (FROM {near_held_out}) ORDER BY query
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


def tower_queries(  # noqa: PLR0913 (tables, sources and options of the stage)
    tables: Tables,
    output: Output,
    sources: Sequence[TrainingSource],
    *,
    tenant: str | None,
    held_out: int,
    seed: int,
    hold_out: str | None = None,
    with_passages: bool = True,
) -> None:
    """Write each query and passage once, with its split.

    Test queries of a run are `test`. Of several sources (runs, and the files together) a small one is held out as
    `unseen`; without such a source, whole clusters of queries are. Queries and passages that nearly duplicate one
    further from training are dropped.

    Args:
        tables: hold `raw_queries`, the queries of the files.
        output: receives `tower_queries`.
        sources: the runs.
        tenant: the tenant; None: the only one.
        held_out: maximum size of a held-out set.
        seed: seed of the draw.
        hold_out: see `choose_held_out`.
        with_passages: whether passages of the runs' texts are trained on, too.

    Raises:
        ArtifactError: there is nothing to train on, or several tenants.
        SettingsError: `hold_out` names no source, or the only one.
    """
    tenant_name = resolve_tenant(list(sources), tenant)
    with tables.connect(FILE_QUERIES_SQL) as connection:
        query_tables = [
            *(_run_queries(source, tenant_name) for source in sources),
            _file_queries(connection, tenant_name),
        ]
        chosen = choose_held_out(query_tables, [source.run.store.url for source in sources], hold_out)
        passages = [
            _passages(source, tenant_name, seed, len(sources))
            for source in sources
            if with_passages and chosen.trains_on(source)
        ]
        connection.register("all_queries", pa.concat_tables([*query_tables, *passages]))
        _write(connection, output, chosen, {"tenant": tenant_name, "seed": str(seed)}, held_out)
        (n_other_tenants,) = connection.execute(OTHER_TENANTS_SQL, {"tenant": tenant_name}).fetchall()[0]
    output.facts |= {"tenant": tenant_name, "rows of other tenants in files": int(n_other_tenants)}
    if output.facts["train"] == output.facts["passages"]:
        raise ArtifactError("the runs have no training query that does not nearly duplicate a test query")


def _write(
    connection: duckdb.DuckDBPyConnection, output: Output, chosen: HeldOut, parameters: dict[str, str], held_out: int
) -> None:
    """Split `all_queries`, write what is kept, and count it."""
    held_source = {"held_source": chosen.source, "held_index": chosen.index}
    distinct_queries = materialize(connection, DISTINCT_QUERIES_SQL, held_source, all_queries=Relation("all_queries"))
    clustered: list[str] = []
    if chosen.is_clusters:
        sql = TRAINING_TEXTS_SQL.format(distinct_queries=distinct_queries)
        texts = connection.sql(sql, params={"seed": parameters["seed"]}).to_arrow_table()["text"].to_pylist()
        clustered = held_out_clusters(texts, min(held_out, len(texts) // HELD_SHARE), int(parameters["seed"]))
    connection.register("held_out_clusters", pa.table({"text": pa.array(clustered, pa.string())}))
    options = parameters | {"max_held_out": held_out, "share": HELD_SHARE}
    split_queries = materialize(connection, SPLIT_QUERIES_SQL, options, distinct_queries=distinct_queries)
    near_held_out = near_held_out_queries(connection, Relation(f"(FROM {split_queries} WHERE split IS NOT NULL)"))
    kept_sql = KEPT_QUERIES_SQL.format(split_queries=split_queries, near_held_out=near_held_out)
    rows = connection.sql(kept_sql).to_arrow_table()
    output.write(TOWER_QUERIES.name, rows.cast(TABLES[TOWER_QUERIES.name].schema))
    _count(connection, output, split_queries, rows)
    output.facts["held out"] = chosen.name


def held_out_clusters(texts: Sequence[str], n: int, seed: int) -> list[str]:
    """Queries of whole clusters, about n in all, so that what is held out is not one word from what is trained on.

    Args:
        texts: queries in the order of the draw.
        n: number of queries; 0: none.
        seed: seed of the clustering.
    """
    if n == 0:
        return []
    from darklode.pipeline.prepare.cluster_sampling import QueryLsa, k_means

    vectors = QueryLsa.fit(list(texts), seed).encode_queries(list(texts))
    clusters, _ = k_means(vectors, max(2, isqrt(len(texts))), seed)
    chosen_rows: list[Ints] = []
    for cluster in dict.fromkeys(clusters.tolist()):
        rows = np.flatnonzero(clusters == cluster)
        if sum(map(len, chosen_rows)) + len(rows) <= n:
            chosen_rows.append(rows)
    return [texts[row] for rows in chosen_rows for row in rows]


def _count(connection: duckdb.DuckDBPyConnection, output: Output, split_queries: Relation, rows: pa.Table) -> None:
    """Count kept queries and passages, and those dropped as near-duplicates of test or held-out queries."""
    connection.register("kept_queries", rows)
    dropped_rows = connection.sql(
        "SELECT CASE WHEN split IS NULL THEN 'surplus of the held-out source' WHEN source = 'documents'"
        f" THEN 'passage near to a held-out query' ELSE '{NEAR_REASON}' END AS reason, count(*)"
        f" FROM {split_queries} WHERE text NOT IN (SELECT query FROM kept_queries) GROUP BY 1 ORDER BY 1"
    ).fetchall()
    (n_also_elsewhere,) = connection.sql(
        "SELECT count(*) FROM (SELECT text FROM all_queries WHERE source <> 'documents' GROUP BY text"
        " HAVING bool_or(test) AND NOT bool_and(test))"
    ).fetchall()[0]
    dropped = {str(reason): int(n) for reason, n in dropped_rows}
    n_texts = rows.num_rows + sum(dropped.values())
    output.count(FunnelStep("tower_queries", "queries", n_texts, "queries", rows.num_rows, dropped))
    sides = rows["split"].to_pylist()
    output.facts |= {side: sides.count(side) for side in ("train", "validation", "unseen", "test")}
    output.facts["passages"] = rows["source"].to_pylist().count("documents")
    output.facts["also asked elsewhere, of test"] = int(n_also_elsewhere)


def _tables(source: TrainingSource) -> tuple[str, ...]:
    return LOG_TABLES if source.mined else BUILD_TABLES


def _run_queries(source: TrainingSource, tenant: str) -> pa.Table:
    query = LOG_QUERIES_SQL if source.mined else BUILD_QUERIES_SQL
    with source.run.tables(*_tables(source)).connect(query) as connection:
        rows = connection.sql(query, params={"tenant": tenant}).to_arrow_table()
    return _query_rows(rows["text"], source.number, "queries", rows["test"])


def _file_queries(connection: duckdb.DuckDBPyConnection, tenant: str) -> pa.Table:
    texts = connection.sql(FILE_QUERIES_SQL, params={"tenant": tenant}).to_arrow_table()["text"]
    return _query_rows(texts, 0, "file")


def _passages(source: TrainingSource, tenant: str, seed: int, n_runs: int) -> pa.Table:
    texts = sample_passages(source, tenant, seed, n_runs)
    return _query_rows(pa.chunked_array([pa.array(texts, pa.string())]), source.number, "documents")


def _query_rows(texts: pa.ChunkedArray, number: int, source: str, test: pa.ChunkedArray | None = None) -> pa.Table:
    columns = {"text": texts.cast(pa.string())}
    columns["index"] = pa.repeat(pa.scalar(number, pa.int32()), len(texts))
    columns["source"] = pa.repeat(source, len(texts))
    columns["test"] = pa.repeat(pa.scalar(False), len(texts)) if test is None else test.cast(pa.bool_())
    return pa.table(columns)
