"""The stage `generated_queries`: each query's outcome, and how similar the kept ones are to real queries."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.generate.realism import cluster_coverage, compare_queries, shares
from darklode.schemas.generation_tables import (
    GENERATED_QUERIES,
    GENERATION_CHECK,
    GENERATION_CLUSTERS,
    REAL_QUERIES,
    SIEVED_QUERIES,
    WRITTEN_QUERIES,
)

OUTCOME = Stage(
    "generated_queries",
    3,
    (REAL_QUERIES.name, WRITTEN_QUERIES.name, SIEVED_QUERIES.name, "rankings", "pool", "verdicts", "triplets"),
    (GENERATED_QUERIES.name, GENERATION_CHECK.name, GENERATION_CLUSTERS.name),
)

OUTCOMES = """
    WITH ranks AS (
        SELECT tenant, query_id, min(rank) AS rank FROM rankings
        SEMI JOIN written_queries USING (tenant, query_id, chunk_id) GROUP BY tenant, query_id
    ), taught AS (SELECT DISTINCT tenant, query_id, true AS taught FROM triplets)
    SELECT w.tenant, w.query_id, w.chunk_id, w.text, CAST($1 AS VARCHAR) AS source,
           CAST($2 AS VARCHAR) AS generator_id, CAST(r.rank AS INTEGER) AS round_trip_rank,
           v.relevant AS judged, coalesce(t.taught, false) AS kept,
           CASE WHEN taught THEN NULL WHEN s.reason IS NOT NULL THEN s.reason
                WHEN p.query_id IS NULL THEN 'its own text is not retrieved'
                WHEN v.relevant THEN 'less likely than triplets.min_probability'
                WHEN NOT v.relevant THEN 'judged not relevant' ELSE 'unreadable verdict' END AS reason
    FROM written_queries w JOIN sieved_queries s USING (tenant, query_id) LEFT JOIN ranks r USING (tenant, query_id)
    LEFT JOIN pool p USING (tenant, query_id) LEFT JOIN verdicts v USING (tenant, query_id)
    LEFT JOIN taught t USING (tenant, query_id) ORDER BY w.tenant, w.query_id
"""

REAL = """
    SELECT tenant, "group", text FROM real_queries WHERE split = 'train' ORDER BY tenant, query_id
"""


def write_outcome(tables: Tables, output: Output, *, source: str, generator_id: str, seed: int) -> None:
    """Write each query's outcome, and compare kept queries with the tenant's real train queries.

    Args:
        tables: the tables of all earlier stages.
        output: `generated_queries`, `generation_check` and `generation_clusters`.
        source: the kind of writer.
        generator_id: of the writer.
        seed: of the samples compared, and of the classifier's folds.
    """
    rows = tables.sql(OUTCOMES, [source, generator_id]).cast(GENERATED_QUERIES.schema)
    output.write(GENERATED_QUERIES.name, rows)
    real = tables.sql(REAL)
    for tenant in pc.unique(rows["tenant"]).to_pylist():
        retained = rows.filter(pc.and_(rows["kept"], pc.equal(rows["tenant"], tenant)))
        real_queries = real.filter(pc.equal(real["tenant"], tenant))
        clusters, usual = cluster_coverage(real_queries, retained, seed)
        output.write(GENERATION_CLUSTERS.name, clusters.cast(GENERATION_CLUSTERS.schema))
        measures = [*compare_queries(real_queries["text"], retained["text"], seed), *shares(clusters, usual)]
        measure_rows = [{"tenant": tenant, **measure} for measure in measures]
        output.write(GENERATION_CHECK.name, pa.Table.from_pylist(measure_rows, GENERATION_CHECK.schema))
    _reject(output, rows, tables.read(SIEVED_QUERIES.name))
    reasons = rows["reason"].drop_null()
    counts = {measure["values"]: measure["counts"] for measure in pc.value_counts(reasons).to_pylist()}
    kept_count = rows.num_rows - len(reasons)
    output.count(
        FunnelStep(OUTCOME.name, "written queries", rows.num_rows, "queries", kept_count, dict(sorted(counts.items())))
    )


def _reject(output: Output, rows: pa.Table, sieved: pa.Table) -> None:
    """Write the queries dropped after the filters to `rejects`."""
    passed = sieved.filter(pc.is_null(sieved["reason"]))["query_id"].combine_chunks()
    gone = rows.filter(pc.and_(pc.is_in(rows["query_id"], passed), pc.invert(rows["kept"])))
    if gone.num_rows:
        reject_columns = {
            "tenant": gone["tenant"],
            "id": gone["query_id"],
            "payload": gone["text"],
            "reason": gone["reason"],
        }
        output.reject(OUTCOME.name, "queries", reject_columns)
