"""The stage `tower_triplets`: rows of query, positive and hard negative, in random order.

A text is written as its views (title, and content with topic and headings), which the document tower encodes apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.database import pieces
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.tables import TABLES
from darklode.schemas.tower_tables import TOWER_TRIPLETS

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
TRIPLETS_STAGE = Stage("tower_triplets", 2, READS, (TOWER_TRIPLETS.name,))

ROWS_PER_PART = 1 << 14
"""Rows per Parquet part. Training holds one part in memory and shuffles within it."""

# The run's tables have its own ids, the tables of `adaptation_pairs` have them with a prefix, which `$start` skips.
# - A (query, positive) pair with triplets from several sources is written once, with the first triplet's negatives.
# - A text that any source labels as an answer to the query is never its negative, nor is a copy of such a text.
RUN_TRIPLETS_SQL = """
    WITH train_queries AS (
        SELECT substr(query_id, $start) AS query_id, text FROM adaptation_queries
        WHERE index = $index AND split = 'train'
    ), text_hashes AS (
        SELECT substr(text_id, $start) AS text_id, content_hash FROM adaptation_texts WHERE index = $index
    ), positives AS (
        SELECT substr(query_id, $start) AS query_id, substr(text_id, $start) AS text_id, content_hash, learned,
               weight
        FROM adaptation_labels JOIN adaptation_texts USING (tenant, text_id)
        SEMI JOIN (FROM adaptation_queries WHERE split = 'train' AND index = $index) USING (query_id)
        WHERE relevance > 0
    ), answers AS (
        SELECT query_id, list(DISTINCT content_hash ORDER BY content_hash) AS answers FROM positives GROUP BY query_id
    ), text_views AS (
        SELECT text_id, nullif(trim(title), '') AS title, concat_ws(chr(10), topic, heading, text) AS content
        FROM ({texts})
    ), training_triplets AS (
        SELECT query_id, positive_id, negative_ids, triplet_id, p.weight FROM triplets
        JOIN (SELECT query_id, text_id AS positive_id, weight FROM positives WHERE learned) p
        USING (query_id, positive_id)
        WHERE tenant = $tenant AND split = 'train'
        QUALIFY row_number() OVER (PARTITION BY query_id, positive_id ORDER BY triplet_id) = 1
    ), candidate_negatives AS (
        SELECT query_id, positive_id, triplet_id, unnest(negative_ids) AS text_id,
               generate_subscripts(negative_ids, 1) AS place
        FROM training_triplets
    ), hard_negatives AS (
        SELECT w.* FROM candidate_negatives w JOIN text_hashes h USING (text_id)
        ANTI JOIN positives r ON r.query_id = w.query_id AND r.content_hash = h.content_hash
    ), negative_lists AS (
        SELECT query_id, positive_id, list(text_id ORDER BY place) AS ids,
               md5_number_lower(concat($seed, ' ', min(triplet_id))) AS random_number
        FROM hard_negatives GROUP BY query_id, positive_id
    )
    SELECT CAST($tenant AS VARCHAR) AS tenant, CAST($index AS INTEGER) AS index, $prefix || query_id AS query_id,
           q.text AS query, $prefix || positive_id AS positive_id, p.title, p.content,
           $prefix || n.text_id AS negative_id, n.title AS negative_title, n.content AS negative_content,
           h.content_hash AS key, answers,
           CAST(l.weight AS FLOAT) AS weight
    FROM training_triplets l JOIN train_queries q USING (query_id) JOIN answers USING (query_id)
    JOIN text_hashes h ON h.text_id = positive_id JOIN text_views p ON p.text_id = positive_id
    LEFT JOIN negative_lists d USING (query_id, positive_id)
    LEFT JOIN text_views n ON n.text_id = d.ids[1 + CAST(d.random_number % len(d.ids) AS INTEGER)]
    ORDER BY md5(concat($seed, ' ', l.triplet_id)), l.triplet_id
"""
CHUNK_TEXTS_SQL = """
    SELECT chunk_id AS text_id, c.title, d.topic, heading, c.text
    FROM chunks c LEFT JOIN documents d USING (tenant, doc_id) WHERE tenant = $tenant
"""
DOCUMENT_TEXTS_SQL = """
    SELECT doc_id AS text_id, title, topic, CAST(NULL AS VARCHAR) AS heading, left(text, $characters) AS text
    FROM documents WHERE tenant = $tenant
"""

ROW_COUNTS_SQL = """
    SELECT count(*) AS rows, count(title) AS titles, count(negative_id) AS negatives FROM tower_triplets
"""


def tower_triplets(tables: Tables, output: Output, sources: Sequence[TrainingSource], *, seed: int) -> None:
    """Write one row per pair of a train query and a training positive, in random order.

    DuckDB joins and sorts and spills to disk, so neither texts nor rows must fit into memory.

    Args:
        tables: the tables of `adaptation_pairs`; their splits, labels and removal of near-duplicates apply here too.
        output: receives `tower_triplets`; its facts count rows without a title and without a negative.
        sources: the runs that have the triplets and texts.
        seed: seed of the order and of the choice among a pair's negatives.

    Raises:
        ArtifactError: no run has a triplet of a train query.
    """
    tenant = tables.read("adaptation_queries", ["tenant"])["tenant"][0].as_py()
    for number, source in enumerate(sources):
        for rows in _run_triplets(tables, source, tenant, seed):
            output.write(TOWER_TRIPLETS.name, rows.cast(TABLES[TOWER_TRIPLETS.name].schema))
        output.progress(number + 1, len(sources))
    counts = output.current_tables(TOWER_TRIPLETS.name).sql(ROW_COUNTS_SQL).to_pylist()[0]
    if not counts["rows"]:
        raise ArtifactError("the runs have no triplet of a train query; finish building or mining them")
    n_pairs = tables.sql("SELECT count(*) AS n FROM adaptation_labels WHERE learned")["n"][0].as_py()
    n_dropped = n_pairs - counts["rows"]
    dropped = {"no triplet of the pair": n_dropped} if n_dropped else {}
    output.count(FunnelStep(TRIPLETS_STAGE.name, "pairs learned from", n_pairs, "triplets", counts["rows"], dropped))
    output.facts |= {
        "triplets": counts["rows"],
        "without a title": counts["rows"] - counts["titles"],
        "without a negative": counts["rows"] - counts["negatives"],
    }


def _run_triplets(tables: Tables, source: TrainingSource, tenant: str, seed: int) -> Iterator[pa.Table]:
    """Yield a run's triplets in tables of at most `ROWS_PER_PART` rows."""
    query = RUN_TRIPLETS_SQL.format(texts=DOCUMENT_TEXTS_SQL if source.mined else CHUNK_TEXTS_SQL)
    parameters = {"tenant": tenant, "index": source.number, "seed": str(seed), "prefix": source.prefix}
    parameters |= {"start": len(source.prefix) + 1} | ({"characters": source.text_characters} if source.mined else {})
    with source.tables.connect(query) as connection:
        for name in READS:
            tables.view(connection, name, name)
        yield from pieces(connection, query, parameters, ROWS_PER_PART)
