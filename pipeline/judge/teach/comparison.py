"""The difference in kappa of two judges on the same labelled pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import Confusion, cohens_kappa
from darklode.pipeline.base.bootstrap import interval

N_RESAMPLES = 10_000


@dataclass(frozen=True)
class KappaDifference:
    """Cohen's kappa of two judges with people, and the difference with its 95 % bootstrap interval over queries.

    Attributes:
        today: kappa of today's judge.
        candidate: kappa of the other.
        low: lower end of `candidate` − `today`; NaN for fewer than two queries.
        high: upper end.
        pairs: labelled pairs on which both gave a readable label.
        queries: their queries.
    """

    today: float
    candidate: float
    low: float
    high: float
    pairs: int
    queries: int

    @property
    def is_better(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0


def kappa_difference(
    queries: Sequence[str],
    positive: Sequence[bool],
    today: Sequence[bool | None],
    candidate: Sequence[bool | None],
    seed: int,
) -> KappaDifference:
    """Compare two judges; pairs that one of them could not read are left out for both.

    Args:
        queries: query of each pair.
        positive: people's label of each pair.
        today: labels of today's judge; None: unreadable.
        candidate: labels of the other.
        seed: random seed of the resampling.
    """
    rows = [row for row in zip(queries, positive, today, candidate, strict=True) if None not in row[2:]]
    names = sorted({row[0] for row in rows})
    number = {name: row for row, name in enumerate(names)}
    counts = np.zeros((len(names), 2, 4))
    for query, is_positive, *labels in rows:
        for judge, label in enumerate(labels):
            counts[number[query], judge, 2 * (not is_positive) + (not label)] += 1
    flat = counts.reshape(len(names), 8)
    today_kappa, candidate_kappa = (float(value) for value in _kappas(flat.sum(axis=0)))
    low = high = float("nan")
    if len(names) > 1 and np.isfinite(candidate_kappa - today_kappa):
        ends = interval(flat, lambda sums: np.diff(_kappas(sums), axis=-1)[..., 0], N_RESAMPLES, seed)
        low, high = (float(end) for end in ends)
    return KappaDifference(today_kappa, candidate_kappa, low, high, len(rows), len(names))


def _kappas(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kappa of both judges, shape (..., 2), from counts: positive and called so, positive, called so, neither."""
    cells = np.moveaxis(sums.reshape(*sums.shape[:-1], 2, 4), -1, 0)
    hits, missed, false, neither = cells
    return np.asarray(cohens_kappa(Confusion(hits, false, missed, neither)))
