"""The round trip: a query stays where some retriever finds the text that it was written for (Promptagator, 3.2)."""

from __future__ import annotations

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.base.artifacts.parquet_writer import TABLE_GROUP_ROWS
from darklode.pipeline.retrieve.pool import CANDIDATES
from darklode.schemas.tables import POOL

ROUND_TRIP = Stage("round_trip", 1, ("queries", "rankings", "written_queries"), ("pool",))

OWN = f"""
    WITH candidates AS ({CANDIDATES})
    FROM candidates SEMI JOIN written_queries USING (tenant, query_id, chunk_id) WHERE best_rank <= $depth
    ORDER BY tenant, query_id, chunk_id
"""


def round_trip(tables: Tables, output: Output, *, depth: int) -> None:
    """Write each query with its own text, where that is among the first of a retriever: this pair the judge is asked.

    Args:
        tables: holds `queries`, `rankings` and `written_queries`.
        output: takes `pool`.
        depth: how many of a list are the first.
    """
    with output.row_group_writer("pool", PART_ROWS) as take:
        for rows in tables.stream(OWN, {"depth": depth}, TABLE_GROUP_ROWS):
            take(POOL.rows(dict(zip(rows.column_names, rows.columns, strict=True))))
    total, n_pairs = tables.rows("queries"), sum(part.rows for part in output.parts["pool"])
    lost = {"its own text is not found": total - n_pairs} if total > n_pairs else {}
    output.count(FunnelStep(ROUND_TRIP.name, "queries", total, "queries with their texts", n_pairs, lost))
