"""Triplets for training: each positive of a query with its hard negatives."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.schemas.settings import TripletSettings
from darklode.schemas.tables import TRIPLETS

TRIPLETS_STAGE = Stage("triplets", 6, ("queries", "chunks", "rankings", "pool", "verdicts", "qrels"), ("triplets",))

BLOCK = 4096  # triplets whose texts are joined at a time

TEXTS = "CREATE TEMP TABLE texts AS SELECT tenant, chunk_id, doc_id, sha256(text) AS text_hash FROM chunks"

# What is held out against whom: training gives way to validation and test, validation to test. Copies count.
HELD = """
    CREATE TEMP TABLE held AS
    SELECT tenant, text_hash, bool_or(split = 'test') AS by_test, bool_or(split = 'validation') AS by_validation
    FROM qrels JOIN queries USING (tenant, query_id) JOIN texts USING (tenant, chunk_id)
    WHERE $apart AND relevance > 0 GROUP BY tenant, text_hash
"""

# A label of people's is sure, and so is one without a probability: what is unknown is not small.
RELEVANT = """
    CREATE TEMP TABLE relevant AS
    WITH found AS (
        SELECT tenant, query_id, chunk_id, doc_id, text_hash, split, fused_score, source, relevance, probability,
               source <> 'human' AND coalesce(probability < CAST($min_probability AS FLOAT), false) AS unlikely,
               coalesce(by_test OR (split = 'train' AND by_validation), false) AS held
        FROM qrels JOIN pool USING (tenant, query_id, chunk_id) JOIN queries USING (tenant, query_id)
        JOIN texts USING (tenant, chunk_id) LEFT JOIN verdicts USING (tenant, query_id, chunk_id)
        LEFT JOIN held USING (tenant, text_hash)
        WHERE relevance > 0 AND split <> 'test'
    )
    SELECT *, row_number() OVER (
        PARTITION BY tenant, query_id, unlikely OR held
        ORDER BY source, relevance DESC, probability DESC NULLS LAST, fused_score DESC, chunk_id
    ) AS place FROM found
"""

# NV-Retriever's positive-aware mining: a chunk that nobody judged is a negative only below the positive's ceiling.
POSITIVES = """
    CREATE TEMP TABLE positives AS
    SELECT tenant, query_id, chunk_id AS positive_id, split, fused_score AS positive_score,
           fused_score - abs(fused_score) * CAST($margin AS DOUBLE) AS ceiling
    FROM relevant WHERE NOT unlikely AND NOT held AND ($most = 0 OR place <= $most)
"""

ANSWERING = """
    CREATE TEMP TABLE answering AS SELECT DISTINCT tenant, query_id, doc_id FROM relevant WHERE NOT $same_document
"""

# Only what the judge called not relevant, never what it could not read or was not asked. A text that equals one which
# answers the query is none of its negatives, and no text is a negative twice.
JUDGED = """
    CREATE TEMP TABLE judged AS
    WITH found AS (
        SELECT tenant, query_id, chunk_id, text_hash, fused_score AS score
        FROM qrels JOIN pool USING (tenant, query_id, chunk_id) JOIN texts USING (tenant, chunk_id)
        SEMI JOIN positives USING (tenant, query_id)
        ANTI JOIN relevant USING (tenant, query_id, text_hash)
        ANTI JOIN answering USING (tenant, query_id, doc_id)
        WHERE relevance = 0
        QUALIFY row_number() OVER (PARTITION BY tenant, query_id, text_hash ORDER BY fused_score DESC, chunk_id) = 1
    )
    SELECT *, row_number() OVER (PARTITION BY tenant, query_id ORDER BY score DESC, chunk_id) AS place
    FROM found QUALIFY place <= $negatives
"""

# Beyond the pool, and only for queries whose judged negatives do not suffice. A copy of a pool member without a label
# is as open as that member is.
MINED = """
    CREATE TEMP TABLE mined AS
    WITH short AS (
        SELECT tenant, query_id, $negatives - count(judged.chunk_id) AS wanted
        FROM (SELECT DISTINCT tenant, query_id FROM positives) LEFT JOIN judged USING (tenant, query_id)
        GROUP BY tenant, query_id HAVING wanted > 0
    ), beyond AS (
        SELECT tenant, query_id, chunk_id, CAST(sum(CAST(1.0 / (60 + rank) AS DECIMAL(18, 12))) AS FLOAT) AS score
        FROM rankings SEMI JOIN short USING (tenant, query_id) ANTI JOIN pool USING (tenant, query_id, chunk_id)
        GROUP BY tenant, query_id, chunk_id
    ), unlabelled AS (
        SELECT tenant, query_id, text_hash
        FROM pool JOIN texts USING (tenant, chunk_id)
        SEMI JOIN short USING (tenant, query_id) ANTI JOIN qrels USING (tenant, query_id, chunk_id)
    ), found AS (
        SELECT tenant, query_id, chunk_id, score
        FROM beyond JOIN texts USING (tenant, chunk_id)
        ANTI JOIN unlabelled USING (tenant, query_id, text_hash)
        ANTI JOIN relevant USING (tenant, query_id, text_hash)
        ANTI JOIN answering USING (tenant, query_id, doc_id)
        ANTI JOIN judged AS taken USING (tenant, query_id, text_hash)
        QUALIFY row_number() OVER (PARTITION BY tenant, query_id, text_hash ORDER BY score DESC, chunk_id) = 1
    )
    SELECT *, row_number() OVER (PARTITION BY tenant, query_id ORDER BY score DESC, chunk_id) AS place
    FROM found JOIN short USING (tenant, query_id)
"""

# A query's mined chunks are numbered by falling score: those below a ceiling follow one another from `start` on.
NEGATIVES = """
    CREATE TEMP TABLE negatives AS
    WITH steps AS (
        SELECT tenant, query_id, wanted, CAST(score AS DOUBLE) AS score, min(place) AS start
        FROM mined GROUP BY tenant, query_id, wanted, score
    ), places AS (
        SELECT p.tenant, p.query_id, p.positive_id, unnest(range(s.start, s.start + s.wanted)) AS place
        FROM positives p ASOF JOIN steps s
          ON s.tenant = p.tenant AND s.query_id = p.query_id AND p.ceiling > s.score
    )
    SELECT tenant, query_id, positive_id, chunk_id, score, place
    FROM positives JOIN judged USING (tenant, query_id)
    UNION ALL
    SELECT tenant, query_id, positive_id, chunk_id, score, $negatives + place
    FROM places JOIN mined USING (tenant, query_id, place)
"""

CHOSEN = """
    CREATE TEMP TABLE chosen AS
    WITH lists AS (
        SELECT tenant, query_id, positive_id,
               list(chunk_id ORDER BY place) AS negative_ids, list(score ORDER BY place) AS negative_scores
        FROM negatives GROUP BY tenant, query_id, positive_id
    )
    SELECT tenant, query_id, positive_id, positive_score, split,
           coalesce(negative_ids, []) AS negative_ids, coalesce(negative_scores, []) AS negative_scores,
           row_number() OVER (ORDER BY split, tenant, query_id, positive_score DESC, positive_id) - 1 AS number
    FROM positives LEFT JOIN lists USING (tenant, query_id, positive_id)
"""

BLOCK_OF_TRIPLETS = """
    WITH block AS (SELECT * FROM chosen WHERE number >= $first AND number < $first + $rows),
    negatives AS (
        SELECT number, list(text ORDER BY place) AS negatives
        FROM (SELECT number, tenant, unnest(negative_ids) AS chunk_id, generate_subscripts(negative_ids, 1) AS place
              FROM block)
        JOIN chunks USING (tenant, chunk_id) GROUP BY number
    )
    SELECT substr(sha256(concat_ws(chr(0), b.tenant, b.query_id, b.positive_id, CAST($source AS VARCHAR))), 1, 24)
               AS triplet_id, b.tenant, b.query_id, q.text AS query, b.positive_id, c.text AS positive,
           b.negative_ids, coalesce(n.negatives, []) AS negatives, b.positive_score, b.negative_scores,
           CAST($source AS VARCHAR) AS source, b.split
    FROM block b
    JOIN queries q ON q.tenant = b.tenant AND q.query_id = b.query_id
    JOIN chunks c ON c.tenant = b.tenant AND c.chunk_id = b.positive_id
    LEFT JOIN negatives n USING (number)
    ORDER BY number
"""


def triplets(tables: Tables, output: Output, settings: TripletSettings, *, apart: bool, source: str = "pooled") -> None:
    """Write one triplet per positive of a train or validation query that is likely enough to learn from.

    Positives, best first: people's labels, then grade, probability and fused score; at most `max_positives` a query,
    and none that the judge gives less than `min_probability`; if positives are kept `apart`, none that answers a query
    of the test split, nor in training one of validation. Negatives, hardest first: pool members judged not
    relevant; then, where these do not suffice, chunks beyond the pool whose fused score lies below s⁺ − |s⁺|·margin.
    None is of a document that holds a chunk with a relevant label, unless `same_document` lets it. What is left out
    and a shortfall are counted, never filled with random text. Scores are the fused retrieval scores of both, on one
    scale.

    Source: DevRev-Search, A.4 (16 hard negatives); NV-Retriever (Moreira et al. 2024), TopK-PercPos.
    """
    limits = {"negatives": settings.negatives}
    with tables.connect() as connection:
        connection.execute(TEXTS)
        connection.execute(HELD, {"apart": apart})
        connection.execute(RELEVANT, {"min_probability": settings.min_probability})
        connection.execute(POSITIVES, {"margin": settings.margin, "most": settings.max_positives})
        connection.execute(ANSWERING, {"same_document": settings.same_document})
        for statement in (JUDGED, MINED, NEGATIVES):
            connection.execute(statement, limits)
        connection.execute(CHOSEN)
        rows, short = _totals(connection, settings.negatives)
        output.count(_step(connection, rows))
        for block in _blocks(connection, rows, source):
            found = TRIPLETS.rows(dict(zip(block.column_names, block.columns, strict=True)))
            for split in ("train", "validation"):
                output.write("triplets", found.filter(pc.equal(found["split"], split)), split)
            output.progress(sum(part.rows for part in output.parts["triplets"]), rows)
    output.facts["short_of_negatives"] = short


def _step(connection: duckdb.DuckDBPyConnection, rows: int) -> FunnelStep:
    """Positives in, triplets out, and why the others are none."""
    counts = "SELECT count(*), count(*) FILTER (unlikely), count(*) FILTER (held AND NOT unlikely) FROM relevant"
    total, unlikely, held = map(int, connection.sql(counts).fetchall()[0])
    dropped = {
        "less likely than triplets.min_probability": unlikely,
        "beyond triplets.max_positives": total - unlikely - held - rows,
    }
    dropped |= {"positive of a held-out query": held} if held else {}
    return FunnelStep("triplets", "positives of train and validation", total, "triplets", rows, dropped)


def _totals(connection: duckdb.DuckDBPyConnection, wanted: int) -> tuple[int, int]:
    counts = "SELECT count(*), count(*) FILTER (len(negative_ids) < $wanted) FROM chosen"
    found = connection.sql(counts, params={"wanted": wanted}).fetchall()
    return int(found[0][0]), int(found[0][1])


def _blocks(connection: duckdb.DuckDBPyConnection, rows: int, source: str) -> Iterator[pa.Table]:
    for first in range(0, rows, BLOCK):
        given = {"first": first, "rows": BLOCK, "source": source}
        yield connection.sql(BLOCK_OF_TRIPLETS, params=given).to_arrow_table()
