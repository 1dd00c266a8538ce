"""Search an index: candidates by codes, rescored by stored vectors if there are any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.index.kinds import IndexKind
from darklode.pipeline.index.stored_vectors import StoredBlocks

QUERIES_PER_BLOCK = 256
"""Queries searched at a time, to bound memory."""

MIN_DEPTH = 100
"""Minimum depth for which candidates are collected: recall measured at this depth then holds for shorter lists."""


@dataclass(frozen=True)
class IndexSearcher:
    """An opened index.

    Attributes:
        kind: index kind.
        index: faiss index.
        stored: vectors for rescoring; None: scores by codes.
        rerank: candidates rescored per result; 1 without stored vectors.
        removed: numbers of removed texts that are still in the index.
    """

    kind: IndexKind
    index: Any
    stored: StoredBlocks | None
    rerank: int
    removed: Ints

    def find(self, queries: Floats, depth: int, effort: int) -> tuple[Ints, Floats]:
        """Numbers (-1: none) and scores of the best texts, shape (n_queries, depth); ties by lower number.

        Args:
            queries: unit vectors in the dimensions of the index.
            depth: length of the lists.
            effort: one of the index kind's search efforts.
        """
        self.kind.set_effort(self.index, effort)
        parts = [
            self._block(queries[start : start + QUERIES_PER_BLOCK], depth)
            for start in range(0, len(queries), QUERIES_PER_BLOCK)
        ]
        if not parts:
            return np.empty((0, depth), np.int64), np.empty((0, depth), np.float32)
        return np.concatenate([numbers for numbers, _ in parts]), np.concatenate([scores for _, scores in parts])

    def _block(self, queries: Floats, depth: int) -> tuple[Ints, Floats]:
        n_candidates = min(max(depth, MIN_DEPTH) * self.rerank if self.stored else depth, max(1, self.index.ntotal))
        scores, numbers = self.kind.search(self.index, queries, n_candidates, self.removed)
        if self.stored:
            scores = self.stored.scores(queries, numbers)
        scores[numbers < 0] = -np.inf
        if n_candidates > 2 * depth:
            column = np.argpartition(-scores, 2 * depth - 1, axis=1)[:, : 2 * depth]
            numbers, scores = np.take_along_axis(numbers, column, 1), np.take_along_axis(scores, column, 1)
        order = np.lexsort((numbers, -scores), axis=1)[:, :depth]
        numbers, scores = np.take_along_axis(numbers, order, 1), np.take_along_axis(scores, order, 1)
        return _pad(numbers, depth, -1), _pad(scores, depth, -np.inf)


def _pad(values: Any, depth: int, value: float) -> Any:
    n_missing = depth - values.shape[1]
    return np.pad(values, ((0, 0), (0, n_missing)), constant_values=value) if n_missing > 0 else values
