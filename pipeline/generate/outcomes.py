"""The stage `generated_queries`: each query's outcome, and how similar the kept ones are to real queries."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.generate.realism import cluster_coverage, compare_queries, shares
from darklode.pipeline.generate.saturation import saturation_curve, usual_similarity
from darklode.schemas.generation_tables import (
    FILTERED_QUERIES,
    GENERATED_QUERIES,
    GENERATION_CHECK,
    GENERATION_CLUSTERS,
    GENERATION_SATURATION,
    REAL_QUERIES,
    WRITTEN_QUERIES,
)

OUTCOME_STAGE = Stage(
    "generated_queries",
    5,
    (REAL_QUERIES.name, WRITTEN_QUERIES.name, FILTERED_QUERIES.name, "rankings", "pool", "verdicts", "triplets"),
    (GENERATED_QUERIES.name, GENERATION_CHECK.name, GENERATION_CLUSTERS.name, GENERATION_SATURATION.name),
)

# Outcome of each generated query: kept if it is in a triplet, else the first reason that applies.
OUTCOMES_SQL = """
    WITH source_text_ranks AS (
        SELECT tenant, query_id, min(rank) AS rank FROM rankings
        SEMI JOIN written_queries USING (tenant, query_id, chunk_id) GROUP BY tenant, query_id
    ), kept_queries AS (SELECT DISTINCT tenant, query_id, true AS is_kept FROM triplets)
    SELECT w.tenant, w.query_id, w.chunk_id, w.text, CAST($1 AS VARCHAR) AS source,
           CAST($2 AS VARCHAR) AS generator_id, CAST(r.rank AS INTEGER) AS round_trip_rank,
           v.relevant AS judged, coalesce(t.is_kept, false) AS kept,
           CASE WHEN is_kept THEN NULL WHEN s.reason IS NOT NULL THEN s.reason
                WHEN p.query_id IS NULL THEN 'its own text is not retrieved'
                WHEN v.relevant THEN 'uncertain by labels.training_precision'
                WHEN NOT v.relevant THEN 'judged not relevant' ELSE 'unreadable verdict' END AS reason
    FROM written_queries w JOIN filtered_queries s USING (tenant, query_id)
    LEFT JOIN source_text_ranks r USING (tenant, query_id)
    LEFT JOIN pool p USING (tenant, query_id) LEFT JOIN verdicts v USING (tenant, query_id)
    LEFT JOIN kept_queries t USING (tenant, query_id) ORDER BY w.tenant, w.query_id
"""

# Real train queries with their clusters ("group"), with which generated queries are compared.
REAL_QUERIES_SQL = """
    SELECT tenant, "group", text FROM real_queries WHERE split = 'train' ORDER BY tenant, query_id
"""


def write_outcome(tables: Tables, output: Output, *, source: str, generator_id: str, seed: int) -> None:
    """Write each generated query's outcome, and compare the kept ones with the tenant's real train queries.

    A query is kept if it became a triplet: it passed the filters, retrieved its text and was judged relevant.

    Args:
        tables: the tables of all earlier stages.
        output: `generated_queries`, `generation_check`, `generation_clusters` and `generation_saturation`.
        source: the kind of writer, such as `llm`.
        generator_id: identifies the writer: its model, prompt and settings.
        seed: seed of the samples compared, and of the classifier's folds.
    """
    rows = tables.sql(OUTCOMES_SQL, [source, generator_id]).cast(GENERATED_QUERIES.schema)
    output.write(GENERATED_QUERIES.name, rows)
    all_real_queries = tables.sql(REAL_QUERIES_SQL)
    for tenant in pc.unique(rows["tenant"]).to_pylist():
        kept_queries = rows.filter(pc.and_(rows["kept"], pc.equal(rows["tenant"], tenant)))
        real_queries = all_real_queries.filter(pc.equal(all_real_queries["tenant"], tenant))
        clusters, usual_share = cluster_coverage(real_queries, kept_queries, seed)
        output.write(GENERATION_CLUSTERS.name, clusters.cast(GENERATION_CLUSTERS.schema))
        similarity = usual_similarity(real_queries["text"].to_pylist(), real_queries["group"].to_pylist())
        curve = saturation_curve(kept_queries["text"].to_pylist(), similarity)
        curve_rows = [{"tenant": tenant, **row} for row in curve]
        output.write(GENERATION_SATURATION.name, pa.Table.from_pylist(curve_rows, GENERATION_SATURATION.schema))
        measures = [
            *compare_queries(real_queries["text"], kept_queries["text"], seed),
            *shares(clusters, usual_share),
        ]
        measure_rows = [{"tenant": tenant, **measure} for measure in measures]
        output.write(GENERATION_CHECK.name, pa.Table.from_pylist(measure_rows, GENERATION_CHECK.schema))
    _reject(output, rows, tables.read(FILTERED_QUERIES.name))
    reasons = rows["reason"].drop_null()
    counts = {reason_count["values"]: reason_count["counts"] for reason_count in pc.value_counts(reasons).to_pylist()}
    kept_count = rows.num_rows - len(reasons)
    output.count(
        FunnelStep(
            OUTCOME_STAGE.name, "written queries", rows.num_rows, "queries", kept_count, dict(sorted(counts.items()))
        )
    )


def _reject(output: Output, rows: pa.Table, filtered: pa.Table) -> None:
    """Write the queries that passed the filters but were not kept to `rejects`; `filtered` has the filters' reasons."""
    passed_ids = filtered.filter(pc.is_null(filtered["reason"]))["query_id"].combine_chunks()
    dropped = rows.filter(pc.and_(pc.is_in(rows["query_id"], passed_ids), pc.invert(rows["kept"])))
    if dropped.num_rows:
        reject_columns = {
            "tenant": dropped["tenant"],
            "id": dropped["query_id"],
            "payload": dropped["text"],
            "reason": dropped["reason"],
        }
        output.reject(OUTCOME_STAGE.name, "queries", reject_columns)
