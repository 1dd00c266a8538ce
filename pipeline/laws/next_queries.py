"""Select the next queries to label: clusters without labels first, then the largest disagreement."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Tables
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.relations import Relation, materialize
from darklode.pipeline.prepare.cluster_sampling import QueryLsa, k_means, n_clusters
from darklode.pipeline.train.data.pairs import near_held_out_queries
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.law_tables import NEXT_QUERIES
from darklode.schemas.settings import CleanSettings

NEW_CLUSTER_REASON, DISPUTED_REASON = "its cluster has no label", "its cluster is disputed"
"""Reasons in `next_queries` for selecting a query."""

OVERLAP_DEPTH = 10
"""Number of top ranks at which the retrievers' lists are compared."""

OPTIONAL_TABLES = ("rankings", "pool", "panel_verdicts", "raw_queries", "rejects", "log_queries", "query_clusters")
"""Tables used besides those of training; a missing one counts as empty."""

# All queries of a build: prepared ones, and those that cluster sampling rejected without a representative.
# Disagreement is from 0 to 1, the larger of two. Retrievers: 0 if all return the same chunks, 1 if no two share one.
# Judges: the share of pairs on which a panel splits; without a panel, how near the probabilities are to one half.
BUILD_QUERIES_SQL = f"""
    WITH retriever_disagreement AS (
        SELECT tenant, query_id, (count(DISTINCT chunk_id) * count(DISTINCT retriever) / count(*) - 1)
               / (count(DISTINCT retriever) - 1) AS value
        FROM rankings WHERE rank <= {OVERLAP_DEPTH} GROUP BY tenant, query_id HAVING count(DISTINCT retriever) > 1
    ), panel_votes AS (
        SELECT tenant, query_id, chunk_id, count(DISTINCT relevant) > 1 AS is_split FROM panel_verdicts GROUP BY ALL
    ), panel_disagreement AS (
        SELECT tenant, query_id, avg(CAST(is_split AS INTEGER)) AS value FROM panel_votes GROUP BY ALL
    ), uncertainty AS (
        SELECT tenant, query_id, avg(1 - abs(2 * probability - 1) ORDER BY chunk_id) AS value FROM verdicts
        WHERE probability IS NOT NULL GROUP BY tenant, query_id
    ), labels AS (
        SELECT tenant, query_id, bool_or(relevance > 0) AS labelled FROM qrels GROUP BY tenant, query_id
    )
    SELECT query_id, text, split <> 'train' AS held, coalesce(labelled, false) AS labelled,
           split = 'train' AND labelled IS NULL AS candidate, n_represented AS count,
           greatest(retriever_disagreement.value, coalesce(panel_disagreement.value, uncertainty.value)) AS disagreement
    FROM queries LEFT JOIN labels USING (tenant, query_id) LEFT JOIN retriever_disagreement USING (tenant, query_id)
    LEFT JOIN panel_disagreement USING (tenant, query_id) LEFT JOIN uncertainty USING (tenant, query_id)
    WHERE tenant = $tenant
    UNION ALL
    SELECT query_id, text, false, false, true, count, NULL FROM raw_queries SEMI JOIN (
        SELECT tenant, id AS query_id FROM rejects
        WHERE "table" = 'queries' AND reason = 'cluster sampling' AND represented_by IS NULL
    ) USING (tenant, query_id) WHERE tenant = $tenant
    ORDER BY query_id
"""

# All queries of a run mined from a log: labelled if they have triplets; held out unless they are in the train split of
# `query_clusters` and not in `mined_test`.
LOG_QUERIES_SQL = """
    SELECT query_id, text, held, labelled, NOT held AND NOT labelled AS candidate, 1 AS count,
           CAST(NULL AS DOUBLE) AS disagreement
    FROM (
        SELECT query_id, text, coalesce(split, '') <> 'train' OR query_id IN (
                   SELECT query_id FROM mined_test WHERE tenant = $tenant) AS held,
               query_id IN (SELECT query_id FROM triplets WHERE tenant = $tenant) AS labelled
        FROM log_queries LEFT JOIN query_clusters USING (tenant, query_id) WHERE tenant = $tenant
    ) ORDER BY query_id
"""

# All queries of the plan's own files: unlabelled candidates.
FILE_QUERIES_SQL = """
    SELECT query_id, text, false AS held, false AS labelled, true AS candidate, count,
           CAST(NULL AS DOUBLE) AS disagreement
    FROM raw_queries WHERE tenant = $tenant ORDER BY query_id
"""

# Numbers all queries; the order decides which of equal texts is selected: a run's before a file's.
NUMBERED_QUERIES_SQL = """
    SELECT row_number() OVER () - 1 AS n, CAST($tenant AS VARCHAR) AS tenant, *,
           CASE WHEN held THEN 'test' WHEN candidate THEN 'train' ELSE 'validation' END AS split
    FROM all_queries
"""

# Candidates in order of labelling, without duplicate texts: first one of each cluster without labels; then turn by turn
# through the clusters, the most disputed first. Within a cluster, the most frequent text comes first.
# Reads the relations {numbered} and {near_labelled} (n), and `cluster_assignments` (n, cluster), which is registered.
RANKED_CANDIDATES_SQL = """
    WITH candidates AS (
        SELECT *, row_number() OVER (PARTITION BY lower(trim(text)) ORDER BY n) AS copy,
               sum(count) OVER (PARTITION BY lower(trim(text))) AS total_count
        FROM {numbered} WHERE candidate AND n NOT IN (FROM {near_labelled})
    ), clusters AS (
        SELECT cluster, count(*) FILTER (labelled AND NOT held) AS labels,
               avg(disagreement ORDER BY n) FILTER (NOT held) AS disagreement
        FROM {numbered} JOIN cluster_assignments USING (n) GROUP BY cluster
    ), ranked_candidates AS (
        SELECT q.tenant, q.query_id, q.text AS query, cluster, c.labels AS cluster_labels, c.disagreement,
               CAST(total_count AS BIGINT) AS count,
               row_number() OVER (PARTITION BY cluster ORDER BY total_count DESC, q.n) AS rank_in_cluster
        FROM candidates q JOIN cluster_assignments USING (n) JOIN clusters c USING (cluster) WHERE copy = 1
    )
    SELECT tenant, query_id, query,
           row_number() OVER (
               ORDER BY cluster_labels = 0 AND rank_in_cluster = 1 DESC, rank_in_cluster,
                        disagreement DESC NULLS LAST, count DESC, query_id
           ) AS rank,
           CASE WHEN cluster_labels = 0 THEN $new_cluster ELSE $disputed END AS reason,
           CAST(cluster AS BIGINT) AS cluster, cluster_labels, rank_in_cluster, disagreement, count
    FROM ranked_candidates ORDER BY rank
"""


def next_queries(
    tables: Tables, output: Output, sources: Sequence[TrainingSource], *, tenant: str, size: int, seed: int
) -> int:
    """Write the next batch of queries to label.

    First comes the most frequent candidate of each cluster without labels. Then the clusters take turns, those with the
    largest disagreement first.

    Candidates are the unlabelled queries of the runs and those of files. Clusters are k-means over character n-grams of
    all queries, as in cleaning. Candidates that nearly duplicate a labelled or held-out query are dropped.

    Args:
        tables: holds `raw_queries`, the queries of the plan's own files.
        output: receives `next_queries`.
        sources: the runs behind the grid; none for a file of points.
        tenant: the tenant whose queries are used.
        size: maximum number of queries to select.
        seed: seed of the clustering.

    Returns:
        Number of candidates that could be selected, without duplicates.
    """
    query_tables = [_run_queries(source, tenant) for source in sources]
    with tables.connect(FILE_QUERIES_SQL) as connection:
        query_tables.append(_plain(connection.sql(FILE_QUERIES_SQL, params={"tenant": tenant}).to_arrow_table()))
        connection.register("all_queries", pa.concat_tables(query_tables))
        numbered = materialize(connection, NUMBERED_QUERIES_SQL, {"tenant": tenant})
        connection.register("cluster_assignments", _assign_clusters(connection, numbered, seed))
        near_labelled = near_held_out_queries(connection, numbered)
        chosen_query = RANKED_CANDIDATES_SQL.format(numbered=numbered, near_labelled=near_labelled)
        reasons = {"new_cluster": NEW_CLUSTER_REASON, "disputed": DISPUTED_REASON}
        ordered_candidates = connection.sql(chosen_query, params=reasons).to_arrow_table()
        (n_unlabelled,) = connection.sql(f"SELECT count(*) FILTER (candidate) FROM {numbered}").fetchall()[0]
    rows = ordered_candidates.slice(0, size)
    output.write(NEXT_QUERIES.name, rows.cast(NEXT_QUERIES.schema))
    n_duplicates = int(n_unlabelled) - ordered_candidates.num_rows
    drop_counts = {"near to a labelled or held-out query, or said twice": n_duplicates}
    drop_counts["left for later"] = ordered_candidates.num_rows - rows.num_rows
    dropped = {reason: count for reason, count in drop_counts.items() if count}
    output.count(
        FunnelStep("next_queries", "unlabelled queries", int(n_unlabelled), "next queries", rows.num_rows, dropped)
    )
    return int(ordered_candidates.num_rows)


def _run_queries(source: TrainingSource, tenant: str) -> pa.Table:
    """All queries of a run, with ids that are unique over all runs; columns as in `FILE_QUERIES_SQL`."""
    query = LOG_QUERIES_SQL if source.mined else BUILD_QUERIES_SQL
    with all_tables(source.run).connect(query) as connection:
        rows = connection.sql(query, params={"tenant": tenant}).to_arrow_table()
    return _plain(source.with_prefix(rows, "query_id"))


def _plain(rows: pa.Table) -> pa.Table:
    """The queries of a build, a log or files with the same column types, so that they can be concatenated.

    Types are assigned by position: the three queries select the same columns in the same order.
    """
    types = (pa.string(), pa.string(), pa.bool_(), pa.bool_(), pa.bool_(), pa.int64(), pa.float64())
    return rows.cast(pa.schema(list(zip(rows.column_names, types, strict=True))))


def _assign_clusters(connection: duckdb.DuckDBPyConnection, numbered: Relation, seed: int) -> pa.Table:
    """The columns `n` (row number) and `cluster` of each query, by k-means over character n-grams."""
    texts = connection.sql(f"SELECT text FROM {numbered} ORDER BY n").to_arrow_table()["text"].to_pylist()
    clusters = []
    if texts:
        vectors = QueryLsa.fit(texts, seed).encode_queries(texts)
        clusters = k_means(vectors, n_clusters(len(texts), CleanSettings()), seed)[0].tolist()
    return pa.table({"n": pa.array(range(len(texts)), pa.int64()), "cluster": pa.array(clusters, pa.int64())})
