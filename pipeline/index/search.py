"""A search of an index: candidates by codes, scored again by stored vectors where there are any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.index.kinds import IndexKind
from darklode.pipeline.index.stored_vectors import StoredBlocks

BLOCK = 256
"""Queries in memory at a time."""

LEAST = 100
"""Candidates are those of so deep a list at least: what is measured at this depth holds for shorter ones."""


@dataclass(frozen=True)
class IndexSearcher:
    """An opened index.

    Attributes:
        kind: what it is.
        index: faiss' own.
        stored: vectors to score candidates again by; None: codes alone.
        rerank: times as many candidates; 1 where there are no vectors to score them by.
        gone: numbers that are in it and not to be found.
    """

    kind: IndexKind
    index: Any
    stored: StoredBlocks | None
    rerank: int
    gone: Ints

    def find(self, queries: Floats, depth: int, effort: int) -> tuple[Ints, Floats]:
        """Numbers (-1: none) and scores of the best, best first, shape (n_queries, depth); of equals the lower number.

        Args:
            queries: of length 1, as many numbers as the index has.
            depth: of the lists.
            effort: how hard to search, one of the kind's.
        """
        self.kind.try_hard(self.index, effort)
        parts = [self._block(queries[start : start + BLOCK], depth) for start in range(0, len(queries), BLOCK)]
        if not parts:
            return np.empty((0, depth), np.int64), np.empty((0, depth), np.float32)
        return np.concatenate([numbers for numbers, _ in parts]), np.concatenate([scores for _, scores in parts])

    def _block(self, queries: Floats, depth: int) -> tuple[Ints, Floats]:
        wide = min(max(depth, LEAST) * self.rerank if self.stored else depth, max(1, self.index.ntotal))
        scores, numbers = self.kind.search(self.index, queries, wide, self.gone)
        if self.stored:
            scores = self.stored.scores(queries, numbers)
        scores[numbers < 0] = -np.inf
        if wide > 2 * depth:
            column = np.argpartition(-scores, 2 * depth - 1, axis=1)[:, : 2 * depth]
            numbers, scores = np.take_along_axis(numbers, column, 1), np.take_along_axis(scores, column, 1)
        order = np.lexsort((numbers, -scores), axis=1)[:, :depth]
        numbers, scores = np.take_along_axis(numbers, order, 1), np.take_along_axis(scores, order, 1)
        return _pad(numbers, depth, -1), _pad(scores, depth, -np.inf)


def _pad(values: Any, depth: int, value: float) -> Any:
    lacking = depth - values.shape[1]
    return np.pad(values, ((0, 0), (0, lacking)), constant_values=value) if lacking > 0 else values
