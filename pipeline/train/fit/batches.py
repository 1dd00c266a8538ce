"""Batches of a trial: which pairs, which candidates count for which query, and the target distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.labels import Labels, Probabilities
from darklode.pipeline.train.data.vectors import concat_ranges
from darklode.schemas.adaptation import AdaptSettings


@dataclass(frozen=True)
class Batch:
    """Inputs of the loss for a batch; for stacked heads each array has one more leading dimension.

    Attributes:
        base: base vectors of the queries, shape (n_queries, dimensions).
        anchor: vectors that the adapted ones are held near, same shape.
        candidates: vectors, each query's positive first, shape (n_candidates, dimensions).
        allowed: which candidates count for which query, shape (n_queries, n_candidates).
        target: distribution over candidates, rows sum to 1, same shape; None: the query's positive only.
        weight: relative weight of each query's positive, shape (n_queries,); None: all are 1.
    """

    base: Floats
    anchor: Floats
    candidates: Floats
    allowed: NDArray[np.bool_]
    target: Floats | None
    weight: Floats | None = None


class ShuffledRows:
    """Batches of rows without replacement, reshuffled each epoch; a batch may span two epochs.

    Args:
        n: number of rows.
        batch_size: rows per batch; fewer if there are fewer rows.
        seed: seed of the order.

    Attributes:
        size: rows per batch.
        random: the generator of the order.
    """

    def __init__(self, n: int, batch_size: int, seed: int) -> None:
        self.random, self._n = np.random.default_rng([seed, 0]), n
        self._pending, self.size = np.empty(0, np.int64), min(batch_size, n)

    def next(self) -> Ints:
        """Rows of the next batch."""
        while len(self._pending) < self.size:
            self._pending = np.concatenate([self._pending, self.random.permutation(self._n)])
        rows, self._pending = self._pending[: self.size], self._pending[self.size :]
        return rows

    def skip(self, batches: int) -> None:
        """Skip batches that were read before a restart."""
        for _ in range(batches):
            self.next()


class PairSampler:
    """Batches of pairs without replacement: all, or one random pair per query (`adapt.positives_per_query`)."""

    def __init__(self, task: Task, settings: AdaptSettings, seed: int) -> None:
        queries, self._starts, self._counts = np.unique(task.pair_query, return_index=True, return_counts=True)
        self._one_pair_per_query = settings.positives_per_query == "one"
        n = len(queries) if self._one_pair_per_query else len(task.pair_query)
        self._rows = ShuffledRows(n, settings.batch_size, seed)
        self.size = self._rows.size

    def next(self) -> Ints:
        """Pairs of the next batch."""
        rows = self._rows.next()
        if not self._one_pair_per_query:
            return rows
        return self._starts[rows] + self._rows.random.integers(0, self._counts[rows])


def allowed_candidates(
    labels: Labels, query: Ints, candidates: Ints, *, in_batch: bool
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Which candidates count for which query, shape (n_queries, n_candidates).

    Args:
        labels: all positives of the queries; a positive is never a negative.
        query: query of each row.
        candidates: positions of all rows' positives, then of each row's negatives; −1 is empty.
        in_batch: whether candidates of other rows count.
    """
    n = len(query)
    is_own = np.zeros((n, len(candidates)), bool)
    is_own[:, n:] = np.repeat(np.eye(n, dtype=bool), (len(candidates) - n) // n, axis=1)
    counts = np.ones_like(is_own) if in_batch else is_own
    counts = counts & (candidates >= 0)[None, :]
    counts[label_positions(labels, query, candidates)] = False
    counts[np.arange(n), np.arange(n)] = True
    return counts


def label_positions(labels: Labels, query: Ints, candidates: Ints) -> tuple[Ints, Ints]:
    """Rows and columns of candidates that are known positives of a query."""
    row, position = labels.positions(query)
    order = np.argsort(candidates, kind="stable")
    low, high = (np.searchsorted(candidates[order], position, side) for side in ("left", "right"))
    return np.repeat(row, high - low), order[concat_ranges(low, high)]


def target_distribution(
    probabilities: Probabilities, query: Ints, candidates: Ints, allowed: NDArray[np.bool_]
) -> Floats:
    """Judge probabilities of each query's candidates, normalized to 1; a positive without a probability counts as 1.

    Args:
        probabilities: judge probabilities of labelled pairs.
        query: query of each row.
        candidates: positions of all rows' positives, then of the negatives; −1 is empty.
        allowed: which candidates count for which query, shape (n_queries, n_candidates).
    """
    values = probabilities.look_up(query[:, None], np.maximum(candidates, 0)[None, :])
    rows = np.arange(len(query))
    values[rows, rows] = np.nan_to_num(values[rows, rows], nan=1.0)
    values = np.where(allowed, np.nan_to_num(values, nan=0.0), np.float32(0))
    return np.asarray(values / values.sum(axis=1, keepdims=True), np.float32)
