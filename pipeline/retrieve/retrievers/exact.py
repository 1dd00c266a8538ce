"""Exact vector search on the CPU or one GPU, with the same results on both, for every block and shard size.

Fast inner products (float32 here, half precision in `torch_search`) only select candidates, with a proven error bound.
Float64 scores of the candidates decide (`topk.score_pairs`).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock, RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.retrieve.retrievers.blocks import ArrayVectors, Vectors
from darklode.pipeline.retrieve.retrievers.port import Hits
from darklode.pipeline.retrieve.retrievers.topk import (
    floor_of,
    from_rank_keys,
    pad_rows,
    rank_keys,
    relative_error,
    score_pairs,
    stack_hits,
)
from darklode.schemas.pooling import VectorSearchSettings

_BLOCK_SCORES = 1 << 21
"""Scores computed at a time: 8 MB, which about fit into a processor's cache."""

_MAX_WORKERS = 8
"""Maximum number of threads; each needs its own buffers."""

_UNIT_ROUNDOFF = 2.0**-24
"""Unit roundoff of float32."""

_SMALLEST_NORMAL = 2.0**-126
"""Smallest normal float32."""

Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Query row, vector position and approximate score of each pair."""


def product_error(queries: NDArray[np.float32], longest: float) -> NDArray[np.float64]:
    """Bound on the difference between a float32 inner product, summed in any order, and the score, per query.

    Shape (n_queries,). Each underflow, of products, sums and scores, adds an error of at most `_SMALLEST_NORMAL`.
    """
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    return np.asarray(
        relative_error(queries.shape[1], _UNIT_ROUNDOFF) * lengths * longest + 2 * queries.shape[1] * _SMALLEST_NORMAL
    )


def search_cpu(
    queries: NDArray[np.float32], vectors: Vectors, k: int, memory: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `k` best vectors of each query: scores and first chunk rows, both of shape (n_queries, k), best first.

    Args:
        queries: shape (n_queries, dimensions), no zero vectors.
        vectors: at least `k` vectors.
        k: number of vectors per query, at least 1.
        memory: approximate bytes for blocks and scores; candidates take about 50 · n_queries · k bytes in addition.
    """
    workers = min(os.cpu_count() or 1, _MAX_WORKERS)
    per_row = (workers + 2) * (8 * vectors.dimensions + 5 * len(queries))
    rows = max(1, min(_BLOCK_SCORES // len(queries), memory // 2 // per_row, -(-len(vectors) // workers)))
    survivors = Survivors(queries, vectors, k)
    blocks = vectors.blocks(rows, workers)
    lock = Lock()

    def score_blocks(_: int) -> None:
        scores = np.empty(rows * len(queries), dtype=np.float32)
        mask = np.empty(scores.size + 8, dtype=np.bool_)
        while True:
            with lock:
                first, block = next(blocks, (0, queries[:0]))
            if not len(block):
                return
            block_scores = scores[: len(queries) * len(block)].reshape(len(queries), -1)
            np.matmul(queries, block.astype(np.float32, copy=False).T, out=block_scores)
            survivors.add(block_scores, first, mask)

    # Workers multiply and filter on one BLAS thread each; with a parallel BLAS, all would wait at every product.
    with _controller().limit(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as threads:
        list(threads.map(score_blocks, range(workers)))
    return survivors.best()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # cached, because it searches the loaded libraries for milliseconds


class Survivors:
    """Candidates: (query, vector) pairs whose score may be among the `k` best of their query.

    A pair is dropped only if `k` pairs of its query have products that are larger by more than twice the error bound,
    so none of the `k` best by score is dropped. If there are too many ties, exact scores are computed early.
    """

    def __init__(self, queries: NDArray[np.float32], vectors: Vectors, k: int) -> None:
        self._queries, self._vectors, self._k = queries, vectors, k
        self._slack = 2 * product_error(queries, vectors.longest)
        self._floor = np.full(len(queries), -np.inf, dtype=np.float32)
        self._pieces: list[Pairs] = []
        self._lock = RLock()  # reentrant: `_compact` runs under it and calls `_raise_floor`, which takes it, too
        self._n_buffered = 0
        self._max_buffered = self._compact_above = 3 * len(queries) * k

    def add(self, scores: NDArray[np.float32], first: int, mask: NDArray[np.bool_]) -> None:
        """Add a block of inner products; may be called by several threads.

        Args:
            scores: products of shape (n_queries, b), contiguous.
            first: vector position of the first column.
            mask: buffer of the calling thread, at least 8 longer than the scores.
        """
        has_k_scores = scores.shape[1] > self._k
        if has_k_scores and not self._pieces:
            self._raise_floor(floor_of(scores, self._k))
        hits = self._hits(scores, mask)
        if has_k_scores and len(hits) > self._max_buffered:
            self._raise_floor(floor_of(scores, self._k))
            hits = self._hits(scores, mask)
        query = hits // scores.shape[1]
        pairs = query, hits - query * scores.shape[1] + first, scores.reshape(-1)[hits]
        with self._lock:
            self._pieces.append(pairs)
            self._n_buffered += len(hits)
            if self._n_buffered > self._compact_above:
                self._compact()
                self._compact_above = max(self._max_buffered, 2 * self._n_buffered)

    def best(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and first chunk rows of the `k` best, best first."""
        self._compact()
        keys = self._rank(*self._pieces[0])
        return from_rank_keys(keys)

    def _hits(self, scores: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Flat indices of the scores that reach their query's floor."""
        size = scores.size
        mask = mask[: (size + 7) // 8 * 8]
        mask[size:] = False
        np.greater_equal(scores, self._floor[:, None], out=mask[:size].reshape(scores.shape))
        words = np.flatnonzero(mask.view(np.uint64) != 0)  # tests 8 scores at once; few words are not 0
        hits = np.flatnonzero(mask.reshape(-1, 8)[words].reshape(-1))
        return np.asarray(words[hits >> 3] * 8 + (hits & 7))

    def _raise_floor(self, kth: NDArray[np.float32]) -> None:
        """Raise the floors, given a lower bound of each query's k-th largest product; rounds down."""
        new_floor = np.nextafter((kth - self._slack).astype(np.float32), np.float32(-np.inf))
        with self._lock:
            self._floor = np.maximum(self._floor, new_floor)

    def _compact(self) -> None:
        """Merge the collected pairs, sort them by query, raise the floors and drop pairs below them."""
        query, position, approximate = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        order = np.argsort(query.astype(np.uint16 if len(self._queries) < 1 << 16 else np.int64), kind="stable")
        query, position, approximate = query[order], position[order], approximate[order]
        matrix = pad_rows(query, approximate, len(self._queries), -np.inf)
        if matrix.shape[1] >= self._k:
            kth_column = matrix.shape[1] - self._k
            self._raise_floor(np.partition(matrix, kth_column, axis=1)[:, kth_column].astype(np.float32))
        is_candidate = approximate >= self._floor[query]
        self._pieces = [(query[is_candidate], position[is_candidate], approximate[is_candidate])]
        if int(is_candidate.sum()) > 4 * self._max_buffered:
            self._pieces = [self._settle(*self._pieces[0])]
        self._n_buffered = len(self._pieces[0][0])

    def _settle(self, query: NDArray[np.int64], position: NDArray[np.int64], approximate: NDArray[np.float32]) -> Pairs:
        """Keep the `k` best pairs of each query by exact score; the pairs are sorted by query."""
        scores = score_pairs(self._queries, self._vectors, query, position)
        ranks = rank_keys(scores, self._vectors.first_rows[position])
        matrix = pad_rows(query, ranks, len(self._queries), 0)
        if matrix.shape[1] <= self._k:
            return query, position, approximate
        kth_column = matrix.shape[1] - self._k
        is_top = ranks >= np.partition(matrix, kth_column, axis=1)[:, kth_column][query]
        return query[is_top], position[is_top], approximate[is_top]

    def _rank(
        self, query: NDArray[np.int64], position: NDArray[np.int64], _: NDArray[np.float32]
    ) -> NDArray[np.uint64]:
        """`rank_keys` of the `k` best pairs of each query by exact score, shape (n_queries, k), best first."""
        scores = score_pairs(self._queries, self._vectors, query, position)
        keys = rank_keys(scores, self._vectors.first_rows[position])
        matrix = pad_rows(query, keys, len(self._queries), 0)
        return np.sort(matrix, axis=1)[:, ::-1][:, : self._k].astype(np.uint64)


_BYTES_PER_HIT = 256
"""Upper bound of the host memory per query and hit during a search."""


def exact_search(
    queries: NDArray[np.float32], vectors: Vectors | NDArray[Any], depth: int, settings: VectorSearchSettings
) -> Hits:
    """The `depth` best chunks of each query by inner product (`topk.score_pairs`), equal scores by ascending row.

    Args:
        queries: shape (n_queries, dimensions); an all-zero query has no hits.
        vectors: the chunks' vectors, as `CachedVectors`, `ArrayVectors` or an array of shape (n_chunks, dimensions).
        depth: number of chunks per query, at least 1.
        settings: device and memory limits; they do not change the result.

    Raises:
        ValueError: a query is not finite, is not as long as the vectors, or its scores could exceed float32.
        MissingPart: the settings ask for a GPU and there is none.
    """
    source: Vectors = ArrayVectors(vectors) if isinstance(vectors, np.ndarray) else vectors
    queries = _check_queries(queries, source)
    k = min(depth, source.n_chunks)
    step = max(1, settings.max_memory_mb * 2**20 // 2 // (_BYTES_PER_HIT * max(1, k)))
    blocks = [
        _search_block(queries[start : start + step], source, k, settings) for start in range(0, len(queries), step)
    ]
    return stack_hits(blocks, k)


def _check_queries(queries: NDArray[np.float32], vectors: Vectors) -> NDArray[np.float32]:
    """Validate queries; returns them as a contiguous float32 array."""
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    if queries.ndim != 2 or queries.shape[1] != vectors.dimensions:
        raise ValueError(f"queries of shape {queries.shape} do not fit vectors of {vectors.dimensions} numbers")
    if not np.isfinite(queries).all():
        bad = int((~np.isfinite(queries)).any(axis=1).argmax())
        raise ValueError(f"the vector of query {bad} holds a number that is not finite; check the encoder")
    overflows = np.linalg.norm(queries.astype(np.float64), axis=1) * vectors.longest >= 2.0**127
    if overflows.any():
        raise ValueError(f"the scores of query {int(overflows.argmax())} could exceed float32; scale its vector down")
    return queries


def _search_block(queries: NDArray[np.float32], vectors: Vectors, k: int, settings: VectorSearchSettings) -> Hits:
    """Search a block of queries; zero queries have no hits."""
    rows = np.full((len(queries), k), -1, dtype=np.int64)
    scores = np.full((len(queries), k), np.nan, dtype=np.float32)
    non_empty = np.flatnonzero(queries.any(axis=1))
    if len(non_empty) and k:
        best_vectors = _search_vectors(queries[non_empty], vectors, min(k, len(vectors)), settings)
        rows[non_empty], scores[non_empty] = _expand_chunks(vectors, k, *best_vectors)
    return Hits(rows, scores)


def _search_vectors(
    queries: NDArray[np.float32], vectors: Vectors, k: int, settings: VectorSearchSettings
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and first chunk rows of the `k` best vectors, on the CPU or GPU that the settings choose."""
    device = gpu(settings)
    if device is None:
        return search_cpu(queries, vectors, k, settings.max_memory_mb * 2**20)
    torch_search: Any = importlib.import_module(
        "darklode.pipeline.retrieve.retrievers.torch_search"
    )  # torch is slow and optional
    scores, rows = torch_search.search_torch(queries, vectors, k, device, settings.max_gpu_memory_mb * 2**20)
    return scores, rows


def gpu(settings: VectorSearchSettings) -> str | None:
    """Device name of the GPU that the settings choose on this machine; None for the CPU.

    Raises:
        MissingPart: the settings ask for a GPU and torch sees none.
    """
    if settings.device == "cpu":
        return None
    if importlib.util.find_spec("torch") and importlib.import_module("torch").cuda.is_available():
        return "cuda"
    if settings.device == "cuda":
        raise MissingPart(
            "vector_search.device is cuda, and torch sees no GPU; install torch for CUDA, or set it to auto"
        )
    return None


def _expand_chunks(
    vectors: Vectors, k: int, scores: NDArray[np.float32], first_rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Turn hits of vectors into hits of chunks, equal scores by row: several chunks may share a vector."""
    if len(vectors) == vectors.n_chunks:
        return first_rows, scores
    rows = np.empty((len(scores), k), dtype=np.int64)
    values = np.empty((len(scores), k), dtype=np.float32)
    for query, (vector_scores, query_first_rows) in enumerate(zip(scores, first_rows, strict=True)):
        chunks, counts = vectors.chunks_of(query_first_rows)
        chunk_scores = np.repeat(vector_scores, counts)
        order = np.lexsort((chunks, -chunk_scores))[:k]
        rows[query] = chunks[order]
        values[query] = chunk_scores[order]
    return rows, values
