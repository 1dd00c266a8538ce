"""The stage `reranker_pairs`: positives with their weights, and hard negatives of the triplets and the candidates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.reranker.candidates import load_texts
from darklode.pipeline.reranker.pairs import SoftPairs
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.reranker_tables import RERANK_CANDIDATES, RERANKER_PAIRS

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts", RERANK_CANDIDATES.name)
RERANKER_PAIRS_STAGE = Stage("reranker_pairs", 1, READS, (RERANKER_PAIRS.name,))

TRIPLET_NEGATIVES_SQL = """
    SELECT DISTINCT $prefix || query_id AS query_id, $prefix || unnest(negative_ids) AS text_id
    FROM triplets WHERE tenant = $tenant AND split = 'train'
"""

# - A text that is or may be an answer to the query is no negative, nor is a copy of one, nor another text of its
#   document.
# - Negatives are drawn at random from the triplets' and the candidates: a reranker meets all ranks, not the first only.
# - The weights of positives are divided by their mean, so that equal weights are 1, whatever their value.
TRAINING_PAIRS_SQL = """
    WITH train AS (SELECT query_id FROM adaptation_queries WHERE split = 'train'),
    labelled AS (
        SELECT query_id, text_id, relevance, learned, weight, content_hash, index, doc_id
        FROM adaptation_labels JOIN adaptation_texts USING (tenant, text_id) SEMI JOIN train USING (query_id)
    ), answers AS (SELECT DISTINCT query_id, content_hash, index, doc_id FROM labelled
                   WHERE relevance > 0 OR relevance IS NULL OR learned),
    positives AS (SELECT query_id, text_id, weight FROM labelled WHERE learned),
    candidates AS (
        SELECT query_id, text_id FROM rerank_candidates SEMI JOIN train USING (query_id)
        UNION SELECT query_id, text_id FROM triplet_negatives SEMI JOIN train USING (query_id)
        UNION SELECT query_id, text_id FROM labelled WHERE relevance = 0 AND NOT learned
    ), allowed AS (
        SELECT c.query_id, c.text_id FROM candidates c JOIN adaptation_texts t USING (text_id)
        ANTI JOIN answers a ON a.query_id = c.query_id AND a.content_hash = t.content_hash
        ANTI JOIN answers b ON b.query_id = c.query_id AND b.index = t.index AND b.doc_id = t.doc_id
    ), counts AS (SELECT query_id, count(*) AS n_positives FROM positives GROUP BY query_id),
    negatives AS (
        SELECT query_id, text_id, n_positives FROM allowed JOIN counts USING (query_id)
        QUALIFY row_number() OVER (PARTITION BY query_id ORDER BY md5(concat($seed, ' ', query_id, ' ', text_id)),
                                   text_id) <= $negatives * n_positives
    )
    SELECT CAST($tenant AS VARCHAR) AS tenant, query_id, text_id, 1.0 AS target,
           weight / (SELECT avg(weight) FROM positives) AS weight FROM positives
    UNION ALL SELECT CAST($tenant AS VARCHAR), query_id, text_id, 0.0, 1.0 FROM negatives
    ORDER BY query_id, text_id
"""


def reranker_pairs(
    tables: Tables, output: Output, sources: Sequence[TrainingSource], num_negatives: int, *, seed: int
) -> None:
    """Write the training pairs of the train split.

    Args:
        tables: the tables of `adaptation_pairs` and `rerank_candidates`.
        output: receives `reranker_pairs`.
        sources: the runs, which have the triplets.
        num_negatives: negatives per positive.
        seed: seed of the draw of negatives.

    Raises:
        ArtifactError: no query has a negative.
    """
    tenant = tables.read("adaptation_queries", ["tenant"])["tenant"][0].as_py()
    parameters = {"tenant": tenant, "seed": str(seed), "negatives": num_negatives}
    with tables.connect(TRAINING_PAIRS_SQL) as connection:
        connection.register(
            "triplet_negatives", pa.concat_tables([_triplet_negatives(each, tenant) for each in sources])
        )
        rows = connection.sql(TRAINING_PAIRS_SQL, params=parameters).to_arrow_table()
    output.write(RERANKER_PAIRS.name, rows.cast(RERANKER_PAIRS.schema))
    n_positives = pc.sum(pc.equal(rows["target"], 1)).as_py() or 0
    if rows.num_rows == n_positives:
        raise ArtifactError("no training query has a negative: every candidate is an answer or of an answer's document")
    output.facts |= {"positives": n_positives, "negatives": rows.num_rows - n_positives}
    n_queries = len(pc.unique(rows["query_id"]))
    output.count(FunnelStep(RERANKER_PAIRS_STAGE.name, "train queries", n_queries, "pairs", rows.num_rows))


def _triplet_negatives(source: TrainingSource, tenant: str) -> pa.Table:
    parameters = {"tenant": tenant, "prefix": source.prefix}
    with source.tables.connect(TRIPLET_NEGATIVES_SQL) as connection:
        return connection.sql(TRIPLET_NEGATIVES_SQL, params=parameters).to_arrow_table()


def load_pairs(tables: Tables, sources: Sequence[TrainingSource], query_ids: pa.Array) -> SoftPairs:
    """The training pairs of some queries, with their texts.

    Args:
        tables: `reranker_pairs`, `adaptation_queries` and `adaptation_texts`.
        sources: the runs, which have the texts.
        query_ids: the queries.
    """
    rows = tables.read(RERANKER_PAIRS.name)
    rows = rows.filter(pc.is_in(rows["query_id"], query_ids)).combine_chunks()
    queries = tables.read("adaptation_queries", ["query_id", "text"])
    ids, text_ids = pc.unique(rows["query_id"]), pc.unique(rows["text_id"])
    texts = queries["text"].take(pc.index_in(ids, queries["query_id"].combine_chunks()))
    return SoftPairs(
        texts.to_pylist(),
        load_texts(tables, sources, text_ids),
        pc.index_in(rows["query_id"], ids).to_numpy().astype(np.int64),
        pc.index_in(rows["text_id"], text_ids).to_numpy().astype(np.int64),
        rows["target"].to_numpy(),
        rows["weight"].to_numpy(),
    )
