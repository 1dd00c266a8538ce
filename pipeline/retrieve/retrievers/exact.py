"""Exact search over vectors on the CPU or one GPU: the same answer on both, for every block and shard size.

Fast products, float32 here or half precision in `torch_search`, only choose the few vectors that can still be among the
best; float64 sums decide (`topk.score_pairs`).
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

_CELLS = 1 << 21
"""Scores made at a time: 8 MB stay in a processor's cache or near it."""

_MOST_WORKERS = 8

_UNIT = 2.0**-24
"""Unit roundoff of float32."""

_TINY = 2.0**-126
"""Least normal float32."""

Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Query, position and approximate score of each pair."""


def product_error(queries: NDArray[np.float32], longest: float) -> NDArray[np.float64]:
    """How far a float32 product, summed in any order, can lie from the score; shape (n_queries,).

    What underflows, in products, sums and score, is off by the least normal number.
    """
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    return np.asarray(relative_error(queries.shape[1], _UNIT) * lengths * longest + 2 * queries.shape[1] * _TINY)


def search_cpu(
    queries: NDArray[np.float32], vectors: Vectors, k: int, memory: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `k` best vectors of each query: scores and first chunk rows, shape (n_queries, k), best first.

    Args:
        queries: shape (n_queries, dimensions), none zero.
        vectors: at least `k`.
        k: at least 1.
        memory: bytes that vectors and scores may take, roughly; what survives takes about 50 bytes · n_queries · k.
    """
    workers = min(os.cpu_count() or 1, _MOST_WORKERS)
    per_row = (workers + 2) * (8 * vectors.dimensions + 5 * len(queries))
    rows = max(1, min(_CELLS // len(queries), memory // 2 // per_row, -(-len(vectors) // workers)))
    survivors = Survivors(queries, vectors, k)
    blocks, lock = vectors.blocks(rows, workers), Lock()

    def work(_: int) -> None:
        scores = np.empty(rows * len(queries), dtype=np.float32)
        mask = np.empty(scores.size + 8, dtype=np.bool_)
        while True:
            with lock:
                first, block = next(blocks, (0, queries[:0]))
            if not len(block):
                return
            part = scores[: len(queries) * len(block)].reshape(len(queries), -1)
            np.matmul(queries, block.astype(np.float32, copy=False).T, out=part)
            survivors.add(part, first, mask)

    # Each worker multiplies on one thread and filters what it made: nobody waits for the slowest at every product.
    with _controller().limit(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as threads:
        list(threads.map(work, range(workers)))
    return survivors.best()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # takes milliseconds to look for libraries


class Survivors:
    """Pairs whose score may be among the `k` best of their query.

    A pair is dropped only when `k` pairs of its query have products larger by more than twice the error bound, so
    that the `k` best by score are never dropped. Ties that exceed the memory are settled early, by score.
    """

    def __init__(self, queries: NDArray[np.float32], vectors: Vectors, k: int) -> None:
        self._queries, self._vectors, self._k = queries, vectors, k
        self._slack = 2 * product_error(queries, vectors.longest)
        self._floor = np.full(len(queries), -np.inf, dtype=np.float32)
        self._pieces: list[Pairs] = []
        self._lock = RLock()
        self._n_buffered = 0
        self._max_buffered = self._patience = 3 * len(queries) * k

    def add(self, scores: NDArray[np.float32], first: int, mask: NDArray[np.bool_]) -> None:
        """Take in products of shape (n_queries, b) of the vectors from position `first` on; threads may.

        Args:
            scores: contiguous.
            first: position of the first column.
            mask: room for 8 more than the scores, the caller's alone.
        """
        enough = scores.shape[1] > self._k
        if enough and not self._pieces:
            self._raise_floor(floor_of(scores, self._k))
        hits = self._hits(scores, mask)
        if enough and len(hits) > self._max_buffered:
            self._raise_floor(floor_of(scores, self._k))
            hits = self._hits(scores, mask)
        query = hits // scores.shape[1]
        pairs = query, hits - query * scores.shape[1] + first, scores.reshape(-1)[hits]
        with self._lock:
            self._pieces.append(pairs)
            self._n_buffered += len(hits)
            if self._n_buffered > self._patience:
                self._compact()
                self._patience = max(self._max_buffered, 2 * self._n_buffered)

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
        words = np.flatnonzero(mask.view(np.uint64) != 0)  # few are: 8 tests for the price of one
        hits = np.flatnonzero(mask.reshape(-1, 8)[words].reshape(-1))
        return np.asarray(words[hits >> 3] * 8 + (hits & 7))

    def _raise_floor(self, kth: NDArray[np.float32]) -> None:
        lower = np.nextafter((kth - self._slack).astype(np.float32), np.float32(-np.inf))
        with self._lock:
            self._floor = np.maximum(self._floor, lower)

    def _compact(self) -> None:
        query, position, approximate = (np.concatenate(column) for column in zip(*self._pieces, strict=True))
        order = np.argsort(query.astype(np.uint16 if len(self._queries) < 1 << 16 else np.int64), kind="stable")
        query, position, approximate = query[order], position[order], approximate[order]
        matrix = pad_rows(query, approximate, len(self._queries), -np.inf)
        if matrix.shape[1] >= self._k:
            at = matrix.shape[1] - self._k
            self._raise_floor(np.partition(matrix, at, axis=1)[:, at].astype(np.float32))
        is_candidate = approximate >= self._floor[query]
        self._pieces = [(query[is_candidate], position[is_candidate], approximate[is_candidate])]
        if int(is_candidate.sum()) > 4 * self._max_buffered:
            self._pieces = [self._settle(*self._pieces[0])]
        self._n_buffered = len(self._pieces[0][0])

    def _settle(self, query: NDArray[np.int64], position: NDArray[np.int64], approximate: NDArray[np.float32]) -> Pairs:
        """The `k` best of each query among pairs sorted by query, by score."""
        scores = score_pairs(self._queries, self._vectors, query, position)
        ranks = rank_keys(scores, self._vectors.first_rows[position])
        matrix = pad_rows(query, ranks, len(self._queries), 0)
        if matrix.shape[1] <= self._k:
            return query, position, approximate
        at = matrix.shape[1] - self._k
        is_top = ranks >= np.partition(matrix, at, axis=1)[:, at][query]
        return query[is_top], position[is_top], approximate[is_top]

    def _rank(
        self, query: NDArray[np.int64], position: NDArray[np.int64], _: NDArray[np.float32]
    ) -> NDArray[np.uint64]:
        scores = score_pairs(self._queries, self._vectors, query, position)
        keys = rank_keys(scores, self._vectors.first_rows[position])
        matrix = pad_rows(query, keys, len(self._queries), 0)
        return np.sort(matrix, axis=1)[:, ::-1][:, : self._k].astype(np.uint64)


_SURVIVOR_BYTES = 256
"""Host memory that a query's place in the lists costs while they are made, at most."""


def exact_search(
    queries: NDArray[np.float32], vectors: Vectors | NDArray[Any], depth: int, settings: VectorSearchSettings
) -> Hits:
    """The `depth` best chunks of each query by inner product, equal scores by ascending chunk row.

    A score is defined in `topk.score_pairs`; the fast products only choose what is scored, with a proven margin.

    Args:
        queries: shape (n_queries, dimensions); an all-zero query finds nothing.
        vectors: the chunks' vectors, as `CachedVectors`, `ArrayVectors` or an array of shape (n_chunks, dimensions).
        depth: at least 1.
        settings: device and memory.

    Raises:
        ValueError: a query is not finite, is not as long as the vectors, or its scores could exceed float32.
        MissingPart: the settings ask for a GPU and there is none.
    """
    source: Vectors = ArrayVectors(vectors) if isinstance(vectors, np.ndarray) else vectors
    queries = _check_queries(queries, source)
    k = min(depth, source.n_chunks)
    step = max(1, settings.max_memory_mb * 2**20 // 2 // (_SURVIVOR_BYTES * max(1, k)))
    blocks = [_search(queries[at : at + step], source, k, settings) for at in range(0, len(queries), step)]
    return stack_hits(blocks, k)


def _check_queries(queries: NDArray[np.float32], vectors: Vectors) -> NDArray[np.float32]:
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    if queries.ndim != 2 or queries.shape[1] != vectors.dimensions:
        raise ValueError(f"queries of shape {queries.shape} do not fit vectors of {vectors.dimensions} numbers")
    if not np.isfinite(queries).all():
        bad = int((~np.isfinite(queries)).any(axis=1).argmax())
        raise ValueError(f"the vector of query {bad} holds a number that is not finite; check the encoder")
    long = np.linalg.norm(queries.astype(np.float64), axis=1) * vectors.longest >= 2.0**127
    if long.any():
        raise ValueError(f"the scores of query {int(long.argmax())} could exceed float32; scale its vector down")
    return queries


def _search(queries: NDArray[np.float32], vectors: Vectors, k: int, settings: VectorSearchSettings) -> Hits:
    rows = np.full((len(queries), k), -1, dtype=np.int64)
    scores = np.full((len(queries), k), np.nan, dtype=np.float32)
    non_empty = np.flatnonzero(queries.any(axis=1))
    if len(non_empty) and k:
        hits = _best(queries[non_empty], vectors, min(k, len(vectors)), settings)
        rows[non_empty], scores[non_empty] = _chunks(vectors, k, *hits)
    return Hits(rows, scores)


def _best(
    queries: NDArray[np.float32], vectors: Vectors, k: int, settings: VectorSearchSettings
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    device = gpu(settings)
    if device is None:
        return search_cpu(queries, vectors, k, settings.max_memory_mb * 2**20)
    torch_search: Any = importlib.import_module(
        "darklode.pipeline.retrieve.retrievers.torch_search"
    )  # torch is slow and optional
    scores, rows = torch_search.search_torch(queries, vectors, k, device, settings.max_gpu_memory_mb * 2**20)
    return scores, rows


def gpu(settings: VectorSearchSettings) -> str | None:
    """The GPU that the settings lead to on this machine, or None for the CPU.

    Raises:
        MissingPart: they ask for a GPU and torch sees none.
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


def _chunks(
    vectors: Vectors, k: int, scores: NDArray[np.float32], first_rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Lists of chunks from lists of vectors: a vector gives all its chunks, ties by row over all of them."""
    if len(vectors) == vectors.n_chunks:
        return first_rows, scores
    rows = np.empty((len(scores), k), dtype=np.int64)
    values = np.empty((len(scores), k), dtype=np.float32)
    for at, (ours, firsts) in enumerate(zip(scores, first_rows, strict=True)):
        chunks, counts = vectors.chunks_of(firsts)
        each = np.repeat(ours, counts)
        order = np.lexsort((chunks, -each))[:k]
        rows[at], values[at] = chunks[order], each[order]
    return rows, values
