"""The difference in kappa of two judges on the same labelled pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from darklode.pipeline.base.agreement import confusion_by_query, kappas
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
        unreadable_today: labelled pairs that today's judge could not read.
        unreadable: labelled pairs that the other could not read.
        left_out: labelled pairs that one of them could not read.
    """

    today: float
    candidate: float
    low: float
    high: float
    pairs: int
    queries: int
    unreadable_today: int
    unreadable: int
    left_out: int

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
    names, query = np.unique([row[0] for row in rows], return_inverse=True)
    is_positive, *labels = (np.array([row[column] for row in rows], bool) for column in (1, 2, 3))
    counts = np.hstack([confusion_by_query(query, label, is_positive) for label in labels])
    today_kappa, candidate_kappa = (float(value) for value in kappas(counts.sum(axis=0)))
    low = high = float("nan")
    if len(names) > 1 and np.isfinite(candidate_kappa - today_kappa):
        ends = interval(counts, lambda sums: np.diff(kappas(sums), axis=-1)[..., 0], N_RESAMPLES, seed)
        low, high = (float(end) for end in ends)
    return KappaDifference(
        today_kappa,
        candidate_kappa,
        low,
        high,
        pairs=len(rows),
        queries=len(names),
        unreadable_today=list(today).count(None),
        unreadable=list(candidate).count(None),
        left_out=len(queries) - len(rows),
    )
