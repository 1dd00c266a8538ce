"""Triplets for training: each positive of a query with its hard negatives."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from schemas.settings import TripletSettings
from schemas.tables import TRIPLETS

TRIPLETS_STAGE = Stage("triplets", 1, ("queries", "chunks", "rankings", "pool", "qrels"), ("triplets",))

BLOCK = 4096  # triplets whose texts are joined at a time

POSITIVES = """
    CREATE TEMP TABLE positives AS
    SELECT tenant, query_id, chunk_id, fused_score AS score, split
    FROM qrels JOIN pool USING (tenant, query_id, chunk_id) JOIN queries USING (tenant, query_id)
    WHERE relevance > 0 AND split <> 'test'
"""

TEXTS = "CREATE TEMP TABLE texts AS SELECT tenant, chunk_id, sha256(text) AS text_hash FROM chunks"

# Only what the judge called not relevant, never what it could not read or was not asked.
JUDGED = """
    CREATE TEMP TABLE judged AS
    SELECT tenant, query_id, chunk_id, 0 AS tier, fused_score AS score
    FROM qrels JOIN pool USING (tenant, query_id, chunk_id)
    WHERE relevance = 0 AND (tenant, query_id) IN (SELECT (tenant, query_id) FROM positives)
    QUALIFY row_number() OVER (PARTITION BY tenant, query_id ORDER BY fused_score DESC, chunk_id) <= 4 * $negatives
"""

# Beyond the pool, and only for queries whose judged negatives do not suffice.
MINED = """
    CREATE TEMP TABLE mined AS
    WITH short AS (
        SELECT tenant, query_id FROM (SELECT DISTINCT tenant, query_id FROM positives)
        LEFT JOIN judged USING (tenant, query_id)
        GROUP BY tenant, query_id HAVING count(chunk_id) < 4 * $negatives
    )
    SELECT tenant, query_id, chunk_id, 1 AS tier,
           CAST(sum(CAST(1.0 / (60 + rank) AS DECIMAL(18, 12))) AS FLOAT) AS score
    FROM rankings SEMI JOIN short USING (tenant, query_id) ANTI JOIN pool USING (tenant, query_id, chunk_id)
    GROUP BY tenant, query_id, chunk_id
"""

# A text that equals one of the query's positives is none of its negatives, and no text is a negative twice.
CANDIDATES = """
    CREATE TEMP TABLE candidates AS
    SELECT c.tenant, c.query_id, c.chunk_id, c.tier, c.score
    FROM (SELECT * FROM judged UNION ALL SELECT * FROM mined) c
    JOIN texts t USING (tenant, chunk_id)
    ANTI JOIN (
        SELECT p.tenant, p.query_id, t.text_hash FROM positives p JOIN texts t USING (tenant, chunk_id)
    ) same ON same.tenant = c.tenant AND same.query_id = c.query_id AND same.text_hash = t.text_hash
    QUALIFY row_number() OVER (
        PARTITION BY c.tenant, c.query_id, t.text_hash ORDER BY c.tier, c.score DESC, c.chunk_id
    ) = 1
"""

# NV-Retriever's positive-aware mining: an unjudged chunk that scores nearly as high as the positive may be one itself.
CHOSEN = """
    CREATE TEMP TABLE chosen AS
    WITH near AS (
        SELECT p.tenant, p.query_id, p.chunk_id AS positive_id, p.score AS positive_score, p.split,
               c.chunk_id AS negative_id, c.score AS negative_score,
               row_number() OVER (
                   PARTITION BY p.tenant, p.query_id, p.chunk_id
                   ORDER BY c.tier, c.score DESC, c.chunk_id
               ) AS place
        FROM positives p LEFT JOIN candidates c
          ON c.tenant = p.tenant AND c.query_id = p.query_id
         AND (c.tier = 0 OR c.score < p.score - abs(p.score) * $margin)
        QUALIFY place <= $negatives
    )
    SELECT tenant, query_id, positive_id, any_value(positive_score) AS positive_score, any_value(split) AS split,
           coalesce(list(negative_id ORDER BY place) FILTER (negative_id IS NOT NULL), []) AS negative_ids,
           coalesce(list(negative_score ORDER BY place) FILTER (negative_id IS NOT NULL), []) AS negative_scores,
           row_number() OVER (ORDER BY tenant, query_id, any_value(positive_score) DESC, positive_id) - 1 AS number
    FROM near GROUP BY tenant, query_id, positive_id
"""

BLOCK_OF_TRIPLETS = """
    WITH block AS (SELECT * FROM chosen WHERE number >= $first AND number < $first + $rows),
    negatives AS (
        SELECT number, list(text ORDER BY place) AS negatives
        FROM (SELECT number, tenant, unnest(negative_ids) AS chunk_id, generate_subscripts(negative_ids, 1) AS place
              FROM block)
        JOIN chunks USING (tenant, chunk_id) GROUP BY number
    )
    SELECT substr(sha256(concat_ws(chr(0), b.tenant, b.query_id, b.positive_id, 'pooled')), 1, 24) AS triplet_id,
           b.tenant, b.query_id, q.text AS query, b.positive_id, c.text AS positive,
           b.negative_ids, coalesce(n.negatives, []) AS negatives, b.positive_score, b.negative_scores,
           'pooled' AS source, b.split
    FROM block b
    JOIN queries q ON q.tenant = b.tenant AND q.query_id = b.query_id
    JOIN chunks c ON c.tenant = b.tenant AND c.chunk_id = b.positive_id
    LEFT JOIN negatives n USING (number)
    ORDER BY number
"""


def triplets(tables: Tables, output: Output, settings: TripletSettings) -> None:
    """Write one triplet per positive of a train or validation query.

    Negatives, hardest first: pool members judged not relevant; then, where these do not suffice, chunks beyond the
    pool whose fused score lies below s⁺ − |s⁺|·margin. A shortfall is counted, never filled with random text.
    Scores are the fused retrieval scores of both, on one scale.

    Source: DevRev-Search, A.4 (16 hard negatives); NV-Retriever (Moreira et al. 2024), TopK-PercPos.
    """
    limits = {"negatives": settings.negatives}
    with tables.connect() as connection:
        connection.execute(POSITIVES)
        connection.execute(TEXTS)
        connection.execute(JUDGED, limits)
        connection.execute(MINED, limits)
        connection.execute(CANDIDATES)
        connection.execute(CHOSEN, limits | {"margin": settings.margin})
        rows, short = _totals(connection, settings.negatives)
        for block in _blocks(connection, rows):
            output.write("triplets", TRIPLETS.rows(dict(zip(block.column_names, block.columns, strict=True))))
            output.progress(sum(part.rows for part in output.parts["triplets"]), rows)
    output.facts["short_of_negatives"] = short
    output.count(FunnelStep("triplets", "positives of train and validation", rows, "triplets", rows))


def _totals(connection: duckdb.DuckDBPyConnection, wanted: int) -> tuple[int, int]:
    counts = "SELECT count(*), count(*) FILTER (len(negative_ids) < $wanted) FROM chosen"
    found = connection.execute(counts, {"wanted": wanted}).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])


def _blocks(connection: duckdb.DuckDBPyConnection, rows: int) -> Iterator[pa.Table]:
    for first in range(0, rows, BLOCK):
        yield connection.sql(BLOCK_OF_TRIPLETS, params={"first": first, "rows": BLOCK}).to_arrow_table()
