"""When to stop, and what was missed: both read off the random slice, whose verdicts the learner never sees.

The positives of the slice are a random draw of all positives. How many of them the learner would have asked for by
now says what share of the others it has found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, binom

CONFIDENCE = 0.95


def needed(positives: int, recall: float) -> int | None:
    """How many of the slice's positives must be reached, so that `recall` is reached with 95 % confidence.

    The quantile binomial confidence bound of Lewis, Yang & Frieder (2021): it is fixed before the first look, so that
    looking after every round does not spoil it.

    Args:
        positives: in the slice.
        recall: wanted of the pairs outside the slice, 0 to 1.

    Returns:
        None where the slice holds too few for any such promise (fewer than 29 for a recall of 0.9).
    """
    if recall <= 0:
        return 0
    counts = np.arange(1, positives + 1)
    enough = counts[binom.cdf(counts - 1, positives, recall) >= CONFIDENCE]
    return int(enough[0]) if len(enough) else None


def recall_outside(recall: float, share: float) -> float:
    """The recall wanted outside a slice of this share of the pool, all of whose positives are found anyway."""
    return (recall - share) / (1 - share)


@dataclass(frozen=True)
class Missed:
    """Share of the pool's positives that were not found, with its 95 % interval."""

    share: float
    low: float
    high: float


def missed(found: int, unjudged: int, positives: int, reached: int) -> Missed:
    """What is missed, by the exact interval of Clopper & Pearson (1934) for the share that was reached.

    Args:
        found: positives judged outside the slice.
        unjudged: pairs that nobody judged; no more positives than that can be missed.
        positives: in the slice, at least one.
        reached: those of them that the learner would have asked for.
    """
    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, reached, positives - reached + 1)) if reached else 0.0
    high = float(beta.ppf(1 - tail, reached + 1, positives - reached)) if reached < positives else 1.0
    lost = [
        min(found / recall - found, unjudged) if recall else unjudged for recall in (reached / positives, high, low)
    ]
    return Missed(*(outside / (outside + found + positives) for outside in lost))
