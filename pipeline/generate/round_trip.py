"""Round-trip filter (Promptagator, 3.2): keep a query if a retriever retrieves the text it was generated from."""

from __future__ import annotations

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.base.artifacts.parquet_writer import TABLE_GROUP_ROWS
from darklode.pipeline.retrieve.pool import CANDIDATES_SQL
from darklode.schemas.tables import POOL

ROUND_TRIP_STAGE = Stage("round_trip", 1, ("queries", "rankings", "written_queries"), ("pool",))

OWN_TEXT_PAIRS_SQL = f"""
    WITH candidates AS ({CANDIDATES_SQL})
    FROM candidates SEMI JOIN written_queries USING (tenant, query_id, chunk_id) WHERE best_rank <= $depth
    ORDER BY tenant, query_id, chunk_id
"""


def round_trip(tables: Tables, output: Output, *, depth: int) -> None:
    """Write each query with its own text to the pool, if some retriever ranks the text in its top `depth`.

    Args:
        tables: `queries`, `rankings` and `written_queries`.
        output: `pool`, which the judge then reads.
        depth: maximum rank.
    """
    with output.row_group_writer("pool", PART_ROWS) as take:
        for rows in tables.stream(OWN_TEXT_PAIRS_SQL, {"depth": depth}, TABLE_GROUP_ROWS):
            take(POOL.rows(dict(zip(rows.column_names, rows.columns, strict=True))))
    total, n_pairs = tables.rows("queries"), sum(part.rows for part in output.parts["pool"])
    lost = {"its own text is not retrieved": total - n_pairs} if total > n_pairs else {}
    output.count(FunnelStep(ROUND_TRIP_STAGE.name, "queries", total, "queries with their texts", n_pairs, lost))
