"""Reproducible scores and top-k selection: results do not depend on block size, BLAS, threads or device.

Scores are float64 sums in a fixed order (`score_pairs`), or products of fixed-point vectors, which float32 sums exactly
(`search_vectors`). Equal scores rank by ascending row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.retrieve.retrievers.blocks import Vectors
from darklode.pipeline.retrieve.retrievers.port import Hits

BLOCK_CELLS = 1 << 23
"""Maximum number of scores in memory: 8 M, about 100 MB with their 64-bit keys."""

FIXED_POINT_STEPS = (
    4000  # 4000² < 2**24, with room for rounding: inner products of vectors of length 1 are exact in float32
)
_PAIRS_AT_ONCE = 512  # pairs scored at a time; their float64 products fit into a processor's cache
_ROW_BITS = np.uint64(32)  # a key is a score in the upper and a row in the lower 32 bits
_MAX_ROW = 0xFFFFFFFF  # largest row that fits into a key
_SIGN_BIT = np.uint32(0x80000000)  # sign bit of a float32


def tree_sum(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum each row, shape (n,), in a fixed order: the second half is added to the first until one column is left.

    `torch_search` adds in the same order; both must be changed together. Overwrites `products`.
    """
    width = products.shape[1]
    while width > 1:
        half = width // 2
        products[:, :half] += products[:, width - half : width]
        width -= half
    return products[:, 0]


def score_pairs(
    queries: NDArray[np.float32], vectors: Vectors, query: NDArray[np.int64], position: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Inner products of (query, vector) pairs: float64 products, summed by `tree_sum`, rounded to float32.

    A float64 product of two float32 numbers is exact.

    Args:
        queries: query vectors, shape (n_queries, dimensions).
        vectors: document vectors.
        query: row in `queries` of each pair, ascending.
        position: position in `vectors` of each pair.
    """
    scores = np.empty(len(query), dtype=np.float32)
    wide_queries = queries.astype(np.float64)
    boundaries = np.unique(
        np.r_[np.flatnonzero(np.diff(query, prepend=-1)), np.arange(0, len(query), _PAIRS_AT_ONCE), len(query)]
    )

    for first, end in pairwise(boundaries):  # on one thread: the steps are so short that threads would wait for the GIL
        products = vectors.take(position[first:end]).astype(np.float64)
        products *= wide_queries[query[first]]
        scores[first:end] = tree_sum(products)
    return scores


def relative_error(dimensions: int, addition: float, rounding: float = 0.0) -> float:
    """Bound on the difference between a fast inner product and the exact score, relative to the lengths' product.

    Higham, Accuracy and Stability of Numerical Algorithms, 3.1: d additions in any order have the relative error
    d·u / (1 - d·u). 2**-22 covers the rounding of the score itself and of the lengths. Underflow is not covered.
    A bound that is too small would make exact search miss results.

    Args:
        dimensions: d, the number of terms of the sum.
        addition: u, the relative error of an addition.
        rounding: relative rounding error of each factor and of the stored product.
    """
    sum_error = dimensions * addition / (1 - dimensions * addition)
    return (1 + rounding) ** 3 * (1 + sum_error) - 1 + 2.0**-22


def rank_keys(scores: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Sort keys: larger for a higher score and, at equal scores, for a lower row; never 0."""
    bits = (scores + np.float32(0)).view(np.uint32)  # -0.0 would rank below 0.0
    ordered = np.where(bits & _SIGN_BIT, ~bits, bits | _SIGN_BIT)
    return ordered.astype(np.uint64) << _ROW_BITS | (_MAX_ROW - rows).astype(np.uint64)


def from_rank_keys(keys: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Recover scores and rows from `rank_keys`."""
    ordered = (keys >> _ROW_BITS).astype(np.uint32)
    bits = np.where(ordered & _SIGN_BIT, ordered ^ _SIGN_BIT, ~ordered)
    return bits.view(np.float32), _MAX_ROW - (keys & np.uint64(_MAX_ROW)).astype(np.int64)


class RunningTopK:
    """The `k` best rows of each query, updated with blocks of scores in any order.

    Score and row are packed into one unsigned 64-bit key (`rank_keys`). Keys are unique, so the result of a partition
    is unique too. Key 0 means no hit.
    """

    def __init__(self, n_queries: int, k: int) -> None:
        self._keys = np.zeros((n_queries, k), dtype=np.uint64)

    def update(self, scores: NDArray[np.float32], first_row: int) -> None:
        """Merge scores of the rows from `first_row` on, shape (n_queries, n_rows); NaN marks rows that are no hits."""
        k = self._keys.shape[1]
        keys = rank_keys(np.asarray(scores, dtype=np.float32), first_row + np.arange(scores.shape[1], dtype=np.int64))
        keys[np.isnan(scores)] = 0
        keys = np.concatenate([self._keys, keys], axis=1)
        self._keys = np.partition(keys, keys.shape[1] - k, axis=1)[:, keys.shape[1] - k :]

    def hits(self) -> Hits:
        """The current hits, best first."""
        return _hits_of(np.sort(self._keys, axis=1)[:, ::-1])


def top_k(scores: NDArray[np.float32], depth: int) -> Hits:
    """Best `depth` columns per row of a score matrix, shape (n_queries, n_chunks); NaN is no hit."""
    running_top = RunningTopK(scores.shape[0], min(depth, scores.shape[1]))
    running_top.update(scores, 0)
    return running_top.hits()


def stack_hits(blocks: Sequence[Hits], k: int) -> Hits:
    """Concatenate the hits of successive blocks of queries; without blocks, the shape is (0, k)."""
    rows = np.vstack([np.empty((0, k), dtype=np.int64), *(block.rows for block in blocks)])
    return Hits(rows, np.vstack([np.empty((0, k), dtype=np.float32), *(block.scores for block in blocks)]))


def best_hits(query: NDArray[np.int64], keys: NDArray[np.uint64], n_queries: int, k: int) -> Hits:
    """The `k` best hits of each query among pairs.

    Args:
        query: query number of each pair, ascending.
        keys: `rank_keys` of each pair.
        n_queries: number of queries, also of those without pairs.
        k: hits per query.
    """
    matrix = np.sort(pad_rows(query, keys, n_queries, 0), axis=1)[:, ::-1][:, :k].astype(np.uint64)
    return _hits_of(np.pad(matrix, ((0, 0), (0, k - matrix.shape[1]))))


def _hits_of(keys: NDArray[np.uint64]) -> Hits:
    """Hits from `rank_keys` in descending order; key 0 is no hit."""
    scores, rows = from_rank_keys(keys)
    is_hit = keys > 0
    return Hits(np.where(is_hit, rows, -1), np.where(is_hit, scores, np.float32(np.nan)))


def pad_rows(query: NDArray[np.int64], values: NDArray[np.generic], n_queries: int, fill: float) -> NDArray[np.generic]:
    """Arrange the values of pairs in a matrix with a row per query, in pair order, padded with `fill`.

    `query` must be ascending.
    """
    counts = np.bincount(query, minlength=n_queries)
    column = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
    matrix = np.full((n_queries, int(counts.max(initial=0))), fill, dtype=values.dtype)
    matrix[query, column] = values
    return matrix


def floor_of(scores: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """A lower bound of the k-th largest score of each row: the k-th largest of the maxima of groups of columns.

    Needs at least `k` columns.
    """
    size = max(1, scores.shape[1] // (4 * k))
    groups = scores.shape[1] // size
    maxima = scores[:, : groups * size].reshape(len(scores), size, groups).max(axis=1)
    return np.partition(maxima, groups - k, axis=1)[:, groups - k]


def fixed_point(vectors: NDArray[Any]) -> NDArray[np.int16]:
    """Round vectors of length at most 1 to integer multiples of 1/4000; the shape is kept.

    Inner products of such vectors are integers below 2**24, which float32 sums exactly in any order: block sizes,
    threads and BLAS cannot change a score. The rounding changes a score by about 1e-4.
    """
    return np.rint(np.asarray(vectors, dtype=np.float32) * FIXED_POINT_STEPS).astype(np.int16)


def search_vectors(
    queries: NDArray[np.int16], documents: NDArray[np.int16], depth: int, block_rows: int | None = None
) -> Hits:
    """Exact search by inner product over fixed-point vectors, `documents` usually memory-mapped.

    Args:
        queries: shape (n_queries, dimensions), from `fixed_point`; an all-zero query has no hits.
        documents: shape (n_chunks, dimensions); an all-zero chunk is never a hit.
        depth: number of hits per query.
        block_rows: chunks scored at a time; by default as many as `BLOCK_CELLS` allows. Does not change the result.
    """
    block_rows = block_rows or max(1, BLOCK_CELLS // max(1, len(queries)))
    running_top = RunningTopK(len(queries), min(depth, len(documents)))
    query_rows = queries.astype(np.float32)
    is_zero_query = ~queries.any(axis=1)
    for first in range(0, len(documents), block_rows):
        document_rows = np.asarray(documents[first : first + block_rows]).astype(np.float32)
        scores = (query_rows @ document_rows.T) / np.float32(FIXED_POINT_STEPS**2)
        scores[is_zero_query] = np.nan
        scores[:, ~document_rows.any(axis=1)] = np.nan
        running_top.update(scores, first)
    return running_top.hits()
