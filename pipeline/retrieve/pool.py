"""The stage `pool`: candidates to judge from the retrievers' rankings."""

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.base.artifacts.parquet_writer import TABLE_GROUP_ROWS
from darklode.schemas.pooling import PoolSettings
from darklode.schemas.tables import POOL

POOL_STAGE = Stage("pool", 1, ("queries", "rankings"), ("pool",))

RRF_K = 60
"""Constant k of reciprocal rank fusion, 1 / (k + rank): the value of Cormack, Clarke and Büttcher (2009)."""

# Sums of decimals are exact, so that the order in which DuckDB's threads add them cannot change a score.
FUSED_SCORE_SQL = f"sum(CAST(1.0 / ({RRF_K} + rank) AS DECIMAL(18, 12)))"

CANDIDATES_SQL = f"""
    SELECT tenant, query_id, chunk_id,
           coalesce(list(retriever ORDER BY retriever) FILTER (rank <= $depth), []) AS retrievers,
           min(rank) AS best_rank,
           CAST({FUSED_SCORE_SQL} AS FLOAT) AS fused_score
    FROM rankings
    GROUP BY tenant, query_id, chunk_id
"""

# Judged chunks that no retriever's list selected.
JUDGED_CANDIDATES_SQL = """
    SELECT tenant, query_id, chunk_id, coalesce(retrievers, []) AS retrievers, best_rank,
           coalesce(fused_score, 0)::FLOAT AS fused_score
    FROM judged_chunks LEFT JOIN candidates USING (tenant, query_id, chunk_id)
    ANTI JOIN selected USING (tenant, query_id, chunk_id) WHERE relevance IS NOT NULL
"""

SELECTION_SQL = {
    "union": "SELECT * FROM candidates WHERE best_rank <= $depth",
    "rrf": """
        SELECT * FROM candidates
        QUALIFY row_number() OVER (PARTITION BY tenant, query_id ORDER BY fused_score DESC, chunk_id) <= $budget
    """,
}


def pool(tables: Tables, output: Output, settings: PoolSettings) -> None:
    """Select each query's candidates, best fused score first.

    `union`: the top `depth` of every retriever (DevRev-Search, 3.3). `rrf`: the best `budget` by reciprocal rank fusion
    (`RRF_K`) of the full rankings. Chunks judged before (`judged_chunks`) are added, whether or not a retriever found
    them.
    """
    judged = f"UNION ALL {JUDGED_CANDIDATES_SQL}" if "judged_chunks" in tables else ""
    query = f"""
        WITH candidates AS ({CANDIDATES_SQL}), selected AS ({SELECTION_SQL[settings.method]})
        SELECT * FROM (SELECT * FROM selected {judged}) ORDER BY tenant, query_id, fused_score DESC, chunk_id
    """
    values = {"depth": settings.depth} | ({"budget": settings.budget} if settings.method == "rrf" else {})
    with output.row_group_writer("pool", PART_ROWS) as take:
        for rows in tables.stream(query, values, TABLE_GROUP_ROWS):
            take(POOL.rows(dict(zip(rows.column_names, rows.columns, strict=True))))
    _count_candidates(tables, output)


def _count_candidates(tables: Tables, output: Output) -> None:
    queries = tables.rows("queries")
    counts = tables.sql("SELECT count(DISTINCT (tenant, query_id)) AS n FROM rankings")
    n_with_candidates = int(counts["n"][0].as_py())
    candidates = sum(part.rows for part in output.parts["pool"])
    dropped = {"no candidate found": queries - n_with_candidates} if queries > n_with_candidates else {}
    output.count(FunnelStep("pool", "queries", queries, "candidates", candidates, dropped))
