"""Stopping rule and estimate of missed positives, from a random sample of the pool.

A positive of the sample is *reached* if the learner, which never sees the sample's verdicts, would have selected it by
now. The share reached estimates the learner's recall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
"""Confidence of the stopping rule and of all intervals here."""

SAMPLE_POSITIVES = 100
"""The random sample grows until it has this many positives. A larger number narrows the estimates, but needs more
random verdicts."""


def min_random_positives(positives: int, recall: float) -> int | None:
    """Compute how many of the sample's positives must be reached for `recall` to hold with 95 % confidence.

    The quantile binomial confidence bound of Lewis, Yang & Frieder (2021). It is fixed in advance, so testing after
    every round does not invalidate it.

    Args:
        positives: number of positives in the sample.
        recall: target recall outside the sample, at most 1.

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
    """Compute the recall needed outside the sample, whose own positives are all found.

    Args:
        recall: target recall of the whole pool, 0 to 1.
        share: the sample's share of the pool, 0 to 1 (excluded).
    """
    return (recall - share) / (1 - share)


@dataclass(frozen=True)
class MissedPositives:
    """Estimated share of positives that were not found (0 to 1), with the ends of its 95 % interval."""

    share: float
    low: float
    high: float


def estimate_missed(n_found: int, unjudged: int, positives: int, n_reached: int) -> MissedPositives:
    """Estimate the share of missed positives from the exact interval (Clopper & Pearson 1934) of the share reached.

    Args:
        n_found: number of positives found outside the sample.
        unjudged: number of unjudged pairs, an upper bound of the number of missed positives.
        positives: number of positives in the sample, at least 1.
        n_reached: number of the sample's positives that the learner would have selected.
    """
    low, high = exact_interval(n_reached, positives)
    n_missed = [
        min(n_found / recall - n_found, unjudged) if recall else unjudged
        for recall in (n_reached / positives, high, low)
    ]
    return MissedPositives(*(count / (count + n_found + positives) for count in n_missed))


def estimate_missed_by_query(
    weights: NDArray[np.float64], is_reached: NDArray[np.bool_], drawn: float
) -> MissedPositives:
    """Estimate the mean share of a query's positives that were missed, over queries with positives.

    Hájek's ratio estimate (1971) with weights 1 ÷ positives of the query; its interval is Clopper & Pearson's with
    Kish's effective sample size (1965). A query's positives are those found plus those expected by the learner;
    underestimating them makes the estimate pessimistic.

    Args:
        weights: for each positive of the sample, 1 ÷ number of positives of its query, shape (n_positives,); at least
            one.
        is_reached: whether the learner would have selected each of them, shape (n_positives,).
        drawn: the sample's share of the pool, 0 to 1; its positives are all found.
    """
    effective_size = weights.sum() ** 2 / np.square(weights).sum()
    share = float(weights[is_reached].sum() / weights.sum())
    low, high = exact_interval(share * effective_size, effective_size)
    return MissedPositives(*((1 - recall) * (1 - drawn) for recall in (share, high, low)))


def exact_interval(hits: float, draws: float) -> tuple[float, float]:
    """Compute the 95 % Clopper-Pearson interval of the proportion `hits` ÷ `draws`.

    `hits` and `draws` may be fractional (effective sample sizes), which scipy's `binomtest` rejects.
    """
    from scipy.stats import beta

    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, hits, draws - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, draws - hits)) if hits < draws else 1.0
    return low, high
