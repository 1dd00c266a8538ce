"""What a random slice of the pool says: whether enough is found, and what is missed of all positives and by query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95

POSITIVES = 100
"""The random slice ends with the round in which it holds so many."""


def min_random_positives(positives: int, recall: float) -> int | None:
    """How many of the slice's positives must be reached, so that `recall` is reached with 95 % confidence.

    The quantile binomial confidence bound of Lewis, Yang & Frieder (2021): it is fixed before the first look, so that
    looking after every round does not spoil it.

    Args:
        positives: in the slice.
        recall: wanted of the pairs outside the slice, 0 to 1.

    Returns:
        None where the slice holds too few for any such promise (fewer than 29 for a recall of 0.9).
    """
    if recall <= 0 and positives:
        return 0
    from scipy.stats import binom

    counts = np.arange(1, positives + 1)
    enough = counts[binom.cdf(counts - 1, positives, recall) >= CONFIDENCE]
    return int(enough[0]) if len(enough) else None


def recall_outside(recall: float, share: float) -> float:
    """The recall wanted outside a slice of this share of the pool, all of whose positives are found anyway."""
    return (recall - share) / (1 - share)


@dataclass(frozen=True)
class MissedPositives:
    """Share of the pool's positives that were not found, with its 95 % interval."""

    share: float
    low: float
    high: float


def estimate_missed(n_found: int, unjudged: int, positives: int, n_reached: int) -> MissedPositives:
    """What is missed, by the exact interval of Clopper & Pearson (1934) for the share that was reached.

    Args:
        n_found: positives judged outside the slice.
        unjudged: pairs that nobody judged; no more positives than that can be missed.
        positives: in the slice, at least one.
        n_reached: those of them that the learner would have asked for.
    """
    low, high = exact_interval(n_reached, positives)
    lost = [
        min(n_found / recall - n_found, unjudged) if recall else unjudged
        for recall in (n_reached / positives, high, low)
    ]
    return MissedPositives(*(outside / (outside + n_found + positives) for outside in lost))


def estimate_missed_by_query(
    weights: NDArray[np.float64], is_reached: NDArray[np.bool_], drawn: float
) -> MissedPositives:
    """What is missed of a query's positives, mean over the queries that have any.

    A positive of the slice stands for its part of its query: the weighted share that was reached is Hájek's ratio
    estimate (1971), its interval that of Clopper & Pearson with the effective number of draws of Kish (1965). A query's
    positives are those found and those that the learner expects; too few of them make the estimate pessimistic.

    Args:
        weights: 1 ÷ positives of its query, for each positive of the slice, at least one, shape (n_positives,).
        is_reached: whether the learner would have asked for it, shape (n_positives,).
        drawn: the slice's share of the pool, 0 to 1; positives in it are found anyway.
    """
    effective = weights.sum() ** 2 / np.square(weights).sum()
    share = float(weights[is_reached].sum() / weights.sum())
    low, high = exact_interval(share * effective, effective)
    return MissedPositives(*((1 - recall) * (1 - drawn) for recall in (share, high, low)))


def exact_interval(hits: float, draws: float) -> tuple[float, float]:
    """The 95 % interval of Clopper & Pearson (1934) for the share behind `hits` of `draws`."""
    from scipy.stats import beta

    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, hits, draws - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, draws - hits)) if hits < draws else 1.0
    return low, high
