"""Optional approximate search with faiss: candidates are rescored exactly, and recall is measured."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.retrieve.retrievers.blocks import Vectors
from darklode.pipeline.retrieve.retrievers.exact import exact_search
from darklode.pipeline.retrieve.retrievers.port import Hits, Recall
from darklode.pipeline.retrieve.retrievers.topk import best_hits, rank_keys, score_pairs
from darklode.schemas.pooling import VectorSearchSettings

_BLOCK_ROWS = 1 << 16  # vectors added to the index at a time
_TRAINING_ROWS = 1 << 18  # maximum sample for k-means of an IVF index
_HNSW_M = 32  # links per vector in HNSW: M in Malkov and Yashunin, who use 5 to 48
_MAX_RECALL_QUERIES = 64  # maximum number of queries on which recall is measured
_SEED = 20190601  # of the training sample and of k-means for an IVF index


class Approximate:
    """A faiss index over all vectors, kept in memory.

    HNSW (Malkov and Yashunin 2016) is built on one thread, so that the same vectors give the same index.

    Args:
        vectors: vectors to index.
        settings: settings with `index` hnsw or ivf.

    Raises:
        MissingPart: faiss is not installed.
    """

    def __init__(self, vectors: Vectors, settings: VectorSearchSettings) -> None:
        self._faiss = _faiss()
        self._vectors, self._settings = vectors, settings
        self._index = self._hnsw() if settings.index == "hnsw" else self._ivf()
        self.recall: Recall | None = None
        """Recall against exact search on up to 64 queries of the latest search; None before the first."""

    def search(self, queries: NDArray[np.float32], depth: int) -> Hits:
        """Hits with exact scores, as from `exact_search`, but chunks may be missing; measures `recall`."""
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        hits = self._search(queries, depth)
        non_empty = np.flatnonzero(queries.any(axis=1))
        sample = non_empty[
            np.linspace(0, len(non_empty) - 1, min(_MAX_RECALL_QUERIES, len(non_empty))).astype(np.int64)
        ]
        exact = exact_search(queries[sample], self._vectors, depth, self._settings)
        n_found = sum(
            len(np.intersect1d(approximate_rows[approximate_rows >= 0], exact_rows[exact_rows >= 0]))
            for approximate_rows, exact_rows in zip(hits.rows[sample], exact.rows, strict=True)
        )
        self.recall = Recall(len(sample), exact.rows.shape[1], n_found, int((exact.rows >= 0).sum()))
        return hits

    def _search(self, queries: NDArray[np.float32], depth: int) -> Hits:
        k = min(depth, len(self._vectors))
        if self._settings.index == "hnsw":
            self._index.hnsw.efSearch = max(128, 2 * k)
        _, positions = self._index.search(queries, k)
        positions[~queries.any(axis=1)] = -1
        return _rescore(queries, self._vectors, positions.astype(np.int64), min(depth, self._vectors.n_chunks))

    def _hnsw(self) -> Any:
        index = self._faiss.IndexHNSWFlat(self._vectors.dimensions, _HNSW_M, self._faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 200  # candidates per inserted vector: build time against recall (not measured)
        threads = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(1)
        try:
            return self._add_vectors(index)
        finally:
            self._faiss.omp_set_num_threads(threads)

    def _ivf(self) -> Any:
        n = len(self._vectors)
        lists = max(1, min(round(4 * n**0.5), n // 39))  # faiss warns below 39 training vectors per list
        flat = self._faiss.IndexFlatIP(self._vectors.dimensions)
        index = self._faiss.IndexIVFFlat(flat, self._vectors.dimensions, lists, self._faiss.METRIC_INNER_PRODUCT)
        index.nprobe = max(1, lists // 8)  # lists searched per query: more find more, and take longer
        index.own_fields, index.cp.seed = False, _SEED
        self._quantizer = flat  # faiss keeps a pointer only: without this reference it would be freed
        sample = np.sort(np.random.default_rng(_SEED).permutation(n)[:_TRAINING_ROWS])
        index.train(self._vectors.take(sample).astype(np.float32))
        return self._add_vectors(index)

    def _add_vectors(self, index: Any) -> Any:
        for _, block in self._vectors.blocks(_BLOCK_ROWS):
            index.add(np.ascontiguousarray(block, dtype=np.float32))
        return index


def _rescore(queries: NDArray[np.float32], vectors: Vectors, positions: NDArray[np.int64], k: int) -> Hits:
    """Hits with exact scores of the chunks whose vectors are at the given positions (−1: none)."""
    query, column = np.nonzero(positions >= 0)
    scores = score_pairs(queries, vectors, query, positions[query, column])
    chunks, counts = vectors.chunks_of(vectors.first_rows[positions[query, column]])
    return best_hits(np.repeat(query, counts), rank_keys(np.repeat(scores, counts), chunks), len(queries), k)


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise MissingPart(
            "vector_search.index is hnsw or ivf, and faiss is not installed: pip install faiss-cpu, or set it to exact"
        ) from error
