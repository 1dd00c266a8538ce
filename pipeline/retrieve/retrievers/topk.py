"""Scores, and the k best by them: no block size, BLAS, thread or device can change an answer.

Scores come from float64 sums in one order (`score_pairs`), or from fixed-point vectors, whose products float32 sums
exactly (`search_vectors`). Equal scores rank by ascending row.
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
"""Scores held at once: 8 M cells, about 100 MB with their keys."""

_STEPS = 4000  # the most whose squares, summed over a vector of length 1, stay below 2**24
_PAIRS = 512  # their float64 products stay in a processor's cache
_ROW_BITS = np.uint64(32)
_LAST_ROW = 0xFFFFFFFF
_SIGN = np.uint32(0x80000000)


def tree_sum(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of rows, shape (n,): the second half is added to the first until one column is left. Changes its input."""
    width = products.shape[1]
    while width > 1:
        half = width // 2
        products[:, :half] += products[:, width - half : width]
        width -= half
    return products[:, 0]


def score_pairs(
    queries: NDArray[np.float32], vectors: Vectors, query: NDArray[np.int64], position: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Inner products of pairs: products in float64 (exact, for factors of 24 bits), `tree_sum`, rounded to float32.

    Args:
        queries: shape (n_queries, dimensions).
        vectors: what is searched.
        query: each pair's row of `queries`, ascending.
        position: each pair's vector.
    """
    scores, exact = np.empty(len(query), dtype=np.float32), queries.astype(np.float64)
    cuts = np.unique(np.r_[np.flatnonzero(np.diff(query, prepend=-1)), np.arange(0, len(query), _PAIRS), len(query)])

    for first, end in pairwise(cuts):  # on one thread: such small steps only hand the interpreter's lock to and fro
        products = vectors.take(position[first:end]).astype(np.float64)
        products *= exact[query[first]]
        scores[first:end] = tree_sum(products)
    return scores


def relative_error(dimensions: int, addition: float, rounding: float = 0.0) -> float:
    """How far a product of two vectors can lie from their score, as a share of their lengths' product.

    Higham, Accuracy and Stability of Numerical Algorithms, 3.1: d errors of a sum in any order make d·u / (1 - d·u).
    2**-22 is for the score's own rounding and that of the lengths. What underflows is not covered.

    Args:
        dimensions: d, terms of the sum.
        addition: u, the error of an addition.
        rounding: of each factor, and of the product as it is stored.
    """
    added = dimensions * addition / (1 - dimensions * addition)
    return (1 + rounding) ** 3 * (1 + added) - 1 + 2.0**-22


def rank_keys(scores: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Numbers that are larger for a higher score and, at equal scores, for a lower row; never 0."""
    bits = (scores + np.float32(0)).view(np.uint32)  # -0.0 would rank below 0.0
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return ordered.astype(np.uint64) << _ROW_BITS | (_LAST_ROW - rows).astype(np.uint64)


def from_rank_keys(keys: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and rows of `rank_keys`."""
    ordered = (keys >> _ROW_BITS).astype(np.uint32)
    bits = np.where(ordered & _SIGN, ordered ^ _SIGN, ~ordered)
    return bits.view(np.float32), _LAST_ROW - (keys & np.uint64(_LAST_ROW)).astype(np.int64)


class RunningTopK:
    """The `k` best rows of each query over score blocks that arrive in any order.

    A score and its row become one unsigned 64-bit key (`rank_keys`). Keys are unique, so that a partition has one
    answer only. Key 0 stands for "nothing found".
    """

    def __init__(self, n_queries: int, k: int) -> None:
        self._keys = np.zeros((n_queries, k), dtype=np.uint64)

    def update(self, scores: NDArray[np.float32], first_row: int) -> None:
        """Merge a block of shape (n_queries, n_rows); NaN marks a row that cannot be found."""
        k = self._keys.shape[1]
        keys = rank_keys(np.asarray(scores, dtype=np.float32), first_row + np.arange(scores.shape[1], dtype=np.int64))
        keys[np.isnan(scores)] = 0
        keys = np.concatenate([self._keys, keys], axis=1)
        self._keys = np.partition(keys, keys.shape[1] - k, axis=1)[:, keys.shape[1] - k :]

    def hits(self) -> Hits:
        """What was found so far, best first."""
        return _hits_of(np.sort(self._keys, axis=1)[:, ::-1])


def top_k(scores: NDArray[np.float32], depth: int) -> Hits:
    """Best `depth` columns of each row of a full score matrix, shape (n_queries, n_chunks); NaN is no hit."""
    running_top = RunningTopK(scores.shape[0], min(depth, scores.shape[1]))
    running_top.update(scores, 0)
    return running_top.hits()


def stack_hits(blocks: Sequence[Hits], k: int) -> Hits:
    """Hits of successive blocks of queries as one; no block gives shape (0, k)."""
    rows = np.vstack([np.empty((0, k), dtype=np.int64), *(block.rows for block in blocks)])
    return Hits(rows, np.vstack([np.empty((0, k), dtype=np.float32), *(block.scores for block in blocks)]))


def best_hits(query: NDArray[np.int64], keys: NDArray[np.uint64], n_queries: int, k: int) -> Hits:
    """The `k` best of each query from pairs given as ascending query numbers and `rank_keys`."""
    matrix = np.sort(pad_rows(query, keys, n_queries, 0), axis=1)[:, ::-1][:, :k].astype(np.uint64)
    return _hits_of(np.pad(matrix, ((0, 0), (0, k - matrix.shape[1]))))


def _hits_of(keys: NDArray[np.uint64]) -> Hits:
    """Hits from `rank_keys` in descending order, 0 where nothing was found."""
    scores, rows = from_rank_keys(keys)
    is_hit = keys > 0
    return Hits(np.where(is_hit, rows, -1), np.where(is_hit, scores, np.float32(np.nan)))


def pad_rows(query: NDArray[np.int64], values: NDArray[np.generic], n_queries: int, fill: float) -> NDArray[np.generic]:
    """Values of pairs as a matrix with a row per query, in pair order, filled up; `query` is ascending."""
    counts = np.bincount(query, minlength=n_queries)
    within = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
    matrix = np.full((n_queries, int(counts.max(initial=0))), fill, dtype=values.dtype)
    matrix[query, within] = values
    return matrix


def floor_of(scores: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """At least `k` scores of each row reach it: the k-th largest of the maxima of groups of columns."""
    size = max(1, scores.shape[1] // (4 * k))
    groups = scores.shape[1] // size
    maxima = scores[:, : groups * size].reshape(len(scores), size, groups).max(axis=1)
    return np.partition(maxima, groups - k, axis=1)[:, groups - k]


def fixed_point(vectors: NDArray[Any]) -> NDArray[np.int16]:
    """Vectors of length at most 1 as whole multiples of 1/4000, shape kept.

    Products of such vectors are whole numbers below 2**24, which float32 sums exactly in any order: block
    sizes, threads and the BLAS in use cannot change a score. The rounding moves a score by about 1e-4.
    """
    return np.rint(np.asarray(vectors, dtype=np.float32) * _STEPS).astype(np.int16)


def search_vectors(
    queries: NDArray[np.int16], documents: NDArray[np.int16], depth: int, block_rows: int | None = None
) -> Hits:
    """Exact search by inner product over fixed-point vectors, `documents` usually memory-mapped.

    Args:
        queries: shape (n_queries, dimensions), from `fixed_point`; an all-zero query finds nothing.
        documents: shape (n_chunks, dimensions); an all-zero chunk is never found.
        depth: how many to find.
        block_rows: chunks scored at a time; by default what `BLOCK_CELLS` allows.
    """
    block_rows = block_rows or max(1, BLOCK_CELLS // max(1, len(queries)))
    running_top = RunningTopK(len(queries), min(depth, len(documents)))
    query_rows = queries.astype(np.float32)
    blank = ~queries.any(axis=1)
    for first in range(0, len(documents), block_rows):
        right = np.asarray(documents[first : first + block_rows]).astype(np.float32)
        scores = (query_rows @ right.T) / np.float32(_STEPS**2)
        scores[blank] = np.nan
        scores[:, ~right.any(axis=1)] = np.nan
        running_top.update(scores, first)
    return running_top.hits()
