"""Exact top-k with a running merge: the same answer for every block size, ties by ascending row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.retrievers.port import Hits

_ROW_BITS = np.uint64(32)
_LAST_ROW = 0xFFFFFFFF
_SIGN = np.uint32(0x80000000)
_STEPS = 4000
BLOCK_CELLS = 1 << 23
"""Scores held at once: 8 M cells, about 100 MB with their keys."""


class RunningTopK:
    """The `k` best rows of each query over score blocks that arrive in any order.

    A score and its row become one unsigned 64-bit key, larger for a higher score and, at equal scores, for a
    lower row. Keys are unique, so that a partition has one answer only. Key 0 stands for "nothing found".
    """

    def __init__(self, n_queries: int, k: int) -> None:
        self._keys = np.zeros((n_queries, k), dtype=np.uint64)

    def update(self, scores: NDArray[np.float32], first_row: int) -> None:
        """Merge a block of shape (n_queries, n_rows); NaN marks a row that cannot be found."""
        k = self._keys.shape[1]
        keys = np.concatenate([self._keys, _keys(scores, first_row)], axis=1)
        self._keys = np.partition(keys, keys.shape[1] - k, axis=1)[:, keys.shape[1] - k :]

    def hits(self) -> Hits:
        """What was found so far, best first."""
        keys = np.sort(self._keys, axis=1)[:, ::-1]
        ordered = (keys >> _ROW_BITS).astype(np.uint32)
        bits = np.where(ordered & _SIGN, ordered ^ _SIGN, ~ordered)
        rows = _LAST_ROW - (keys & np.uint64(_LAST_ROW)).astype(np.int64)
        found = keys > 0
        scores = np.where(found, bits.view(np.float32), np.float32(np.nan))
        return Hits(np.where(found, rows, -1), scores.astype(np.float32))


def _keys(scores: NDArray[np.float32], first_row: int) -> NDArray[np.uint64]:
    plain = np.ascontiguousarray(scores, dtype=np.float32) + np.float32(0)  # -0.0 would rank below 0.0
    bits = plain.view(np.uint32)
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    rows = (_LAST_ROW - first_row) - np.arange(scores.shape[1], dtype=np.int64)
    keys = (ordered.astype(np.uint64) << _ROW_BITS) | rows.astype(np.uint64)
    keys[np.isnan(plain)] = 0
    return keys


def top_k(scores: NDArray[np.float32], depth: int) -> Hits:
    """Best `depth` columns of each row of a full score matrix, shape (n_queries, n_chunks); NaN is no hit."""
    best = RunningTopK(scores.shape[0], min(depth, scores.shape[1]))
    best.update(scores, 0)
    return best.hits()


def stack_hits(blocks: Sequence[Hits], k: int) -> Hits:
    """Hits of successive blocks of queries as one; no block gives shape (0, k)."""
    rows = np.vstack([np.empty((0, k), dtype=np.int64), *(block.rows for block in blocks)])
    return Hits(rows, np.vstack([np.empty((0, k), dtype=np.float32), *(block.scores for block in blocks)]))


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
    best = RunningTopK(len(queries), min(depth, len(documents)))
    left = queries.astype(np.float32)
    blank = ~queries.any(axis=1)
    for first in range(0, len(documents), block_rows):
        right = np.asarray(documents[first : first + block_rows]).astype(np.float32)
        scores = (left @ right.T) / np.float32(_STEPS**2)
        scores[blank] = np.nan
        scores[:, ~right.any(axis=1)] = np.nan
        best.update(scores, first)
    return best.hits()
