"""Stopping rule and estimate of missed positives, from a random sample of the pool."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95

POSITIVES = 100
"""The random sample grows until it has this many positives."""


def min_random_positives(positives: int, recall: float) -> int | None:
    """Minimum number of the sample's positives to reach, so that `recall` holds with 95 % confidence.

    The quantile binomial confidence bound of Lewis, Yang & Frieder (2021). It is fixed in advance, so testing after
    every round does not invalidate it.

    Args:
        positives: in the sample.
        recall: target outside the sample, 0 to 1.

    Returns:
        None if the sample has too few positives for the bound (fewer than 29 for a recall of 0.9).
    """
    if recall <= 0 and positives:
        return 0
    from scipy.stats import binom

    counts = np.arange(1, positives + 1)
    enough = counts[binom.cdf(counts - 1, positives, recall) >= CONFIDENCE]
    return int(enough[0]) if len(enough) else None


def recall_outside(recall: float, share: float) -> float:
    """Recall needed outside the sample, whose own positives are all found."""
    return (recall - share) / (1 - share)


@dataclass(frozen=True)
class MissedPositives:
    """Share of positives that were not found, with its 95 % interval."""

    share: float
    low: float
    high: float


def estimate_missed(n_found: int, unjudged: int, positives: int, n_reached: int) -> MissedPositives:
    """Share of missed positives, from the exact interval (Clopper & Pearson 1934) of the share reached.

    Args:
        n_found: positives found outside the sample.
        unjudged: number of unjudged pairs; an upper bound of missed positives.
        positives: in the sample, at least one.
        n_reached: positives of the sample that the learner would have selected.
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
    """Mean share of a query's positives that were missed, over queries with positives.

    Hájek's ratio estimate (1971) with weights 1 ÷ positives of the query; its interval is Clopper & Pearson's with
    Kish's effective sample size (1965). A query's positives are those found plus those expected by the learner;
    underestimating them makes the estimate pessimistic.

    Args:
        weights: 1 ÷ positives of the query, for each positive of the sample, at least one, shape (n_positives,).
        is_reached: whether the learner would have selected it, shape (n_positives,).
        drawn: the sample's share of the pool, 0 to 1; its positives are all found.
    """
    effective = weights.sum() ** 2 / np.square(weights).sum()
    share = float(weights[is_reached].sum() / weights.sum())
    low, high = exact_interval(share * effective, effective)
    return MissedPositives(*((1 - recall) * (1 - drawn) for recall in (share, high, low)))


def exact_interval(hits: float, draws: float) -> tuple[float, float]:
    """95 % Clopper-Pearson interval of a proportion.

    `hits` and `draws` may be fractional (effective sample sizes), which scipy's `binomtest` rejects.
    """
    from scipy.stats import beta

    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, hits, draws - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, draws - hits)) if hits < draws else 1.0
    return low, high
