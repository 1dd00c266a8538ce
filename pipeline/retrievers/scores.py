"""The score of a query and a vector, defined once: no block size, BLAS, thread or device can change it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pipeline.retrievers.blocks import Vectors
from pipeline.retrievers.port import Hits

_PAIRS = 512
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


def padded(query: NDArray[np.int64], values: NDArray[np.generic], n_queries: int, fill: float) -> NDArray[np.generic]:
    """Values of pairs as a matrix with a row per query, in pair order, filled up; `query` is ascending."""
    counts = np.bincount(query, minlength=n_queries)
    within = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
    matrix = np.full((n_queries, int(counts.max(initial=0))), fill, dtype=values.dtype)
    matrix[query, within] = values
    return matrix


def best_hits(query: NDArray[np.int64], keys: NDArray[np.uint64], n_queries: int, k: int) -> Hits:
    """The `k` best of each query from pairs given as ascending query numbers and `rank_keys`."""
    matrix = np.sort(padded(query, keys, n_queries, 0), axis=1)[:, ::-1][:, :k].astype(np.uint64)
    matrix = np.pad(matrix, ((0, 0), (0, k - matrix.shape[1])))
    scores, rows = from_rank_keys(matrix)
    found = matrix > 0
    return Hits(np.where(found, rows, -1), np.where(found, scores, np.float32(np.nan)))
