"""Which pairs come next, round by round, until enough of the positives are found.

When to stop, and what was missed, is read off a random slice whose verdicts the learner never sees. Its positives are a
random draw of all positives: how many of them the learner would have asked for by now says what share of the others it
has found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.judge.adaptive.evidence import Evidence
from darklode.pipeline.judge.adaptive.learner import Learner, sigmoid

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
    from scipy.stats import binom

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
    from scipy.stats import beta

    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, reached, positives - reached + 1)) if reached else 0.0
    high = float(beta.ppf(1 - tail, reached + 1, positives - reached)) if reached < positives else 1.0
    lost = [
        min(found / recall - found, unjudged) if recall else unjudged for recall in (reached / positives, high, low)
    ]
    return Missed(*(outside / (outside + found + positives) for outside in lost))


POSITIVES = 100
"""The random slice ends with the round in which it holds so many."""
SHARE, LEAST = 0.03, 256
"""Pairs of a round: a share of the pool, and no fewer than so many calls, to keep a server busy."""

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


class Rounds:
    """Continuous active learning (Cormack & Grossman 2014) beside a random slice that tells when to stop.

    The first rounds judge the slice: pairs drawn at random from the whole pool, until they hold `POSITIVES` positives
    or are `random_share` of it. The learner never sees their verdicts, so that they stand for all the others. The next
    round takes the best fused ranks, every later one the highest probabilities. It ends when the slice says that
    `recall` is reached with 95 % confidence, or when all is judged: a slice with too few positives promises nothing.

    Args:
        evidence: of one tenant.
        recall: share of the pool's positives to find, 0 to 1.
        random_share: most of the pool that is judged at random, 0 to 1.
        seed: of the slice.
    """

    def __init__(self, evidence: Evidence, *, recall: float, random_share: float, seed: int) -> None:
        self._learner, self._recall, n_pairs = Learner(evidence), recall, evidence.n_pairs
        self._size = max(LEAST, round(SHARE * n_pairs))
        self._drawn = np.random.default_rng(seed).permutation(n_pairs)[: max(1, round(random_share * n_pairs))]
        self._labels = np.full(n_pairs, np.nan)
        self._judged = np.zeros(n_pairs, bool)
        self._random = np.zeros(n_pairs, bool)
        self._reached = np.zeros(n_pairs, bool)  # of the slice: what the learner would have asked for
        self._log_odds = -np.asarray(evidence.place, np.float64)
        self._fitted = False
        self.number = 0
        """Of the last round, from 1."""

    def next(self) -> _Ints:
        """Numbers of the pairs to judge now, ascending; none at the end."""
        self.number += 1
        if self._slice_goes_on():
            begun = int(self._random.sum())
            chosen = self._drawn[begun : begun + self._size]
            self._random[chosen] = True
        elif self.stopped:
            return np.empty(0, np.int64)
        else:
            chosen = self._likeliest()
        return np.sort(chosen)

    def learn(self, numbers: _Ints, labels: _Floats) -> None:
        """Take in the verdicts of the pairs that `next` gave.

        Args:
            labels: 1, 0, or not a number where the verdict could not be read, shape of `numbers`.
        """
        self._labels[numbers], self._judged[numbers] = labels, True
        seen = np.where(self._random, np.nan, self._labels)
        if not self._slice_goes_on() and not self.stopped and np.isfinite(seen).any():
            self._log_odds = self._learner.fit(seen)
            self._fitted = True

    def _slice_goes_on(self) -> bool:
        return self.random_positives < POSITIVES and int(self._random.sum()) < len(self._drawn)

    def _likeliest(self) -> _Ints:
        """The pairs that come next, and with them those of the slice that stand before the last of them."""
        waiting = np.flatnonzero(~self._judged | (self._random & ~self._reached))
        order = waiting[np.argsort(-self._log_odds[waiting], kind="stable")]
        asked = np.cumsum(~self._judged[order])
        order = order[: np.searchsorted(asked, min(self._size, asked[-1])) + 1] if len(order) else order
        self._reached[order[self._random[order]]] = True
        return np.asarray(order[~self._judged[order]])

    @property
    def stopped(self) -> bool:
        """Whether the slice says that enough is found."""
        outside = recall_outside(self._recall, float(self._random.mean()))
        wanted = needed(self.random_positives, outside)
        return wanted is not None and self.random_reached >= wanted

    @property
    def unjudged(self) -> _Ints:
        """Numbers of the pairs that no round has asked for, ascending."""
        return np.flatnonzero(~self._judged)

    @property
    def probability(self) -> _Floats | None:
        """What the learner expects of every pair, shape (n_pairs,); None before it has learnt anything."""
        return sigmoid(self._log_odds) if self._fitted else None

    @property
    def positives(self) -> int:
        """Positives found, those of the slice included."""
        return int(np.nansum(self._labels))

    @property
    def random_positives(self) -> int:
        """Positives of the slice."""
        return int(np.nansum(self._labels[self._random]))

    @property
    def random_reached(self) -> int:
        """Positives of the slice that the learner would have asked for."""
        return int(np.nansum(self._labels[self._reached]))

    @property
    def missed(self) -> Missed:
        """Share of the positives that is still missing, as the slice tells it; 0 where all is judged."""
        left = len(self.unjudged)
        if not left:
            return Missed(0.0, 0.0, 0.0)
        found = self.positives - self.random_positives
        return missed(found, left, self.random_positives, self.random_reached)

    def summary(self) -> dict[str, list[int] | list[float]]:
        """One row of `stopping`, less the tenant."""
        lost = self.missed
        return {
            "pairs": [len(self._judged)],
            "judged": [int(self._judged.sum())],
            "positives": [self.positives],
            "random": [int(self._random.sum())],
            "random_positives": [self.random_positives],
            "random_reached": [self.random_reached],
            "recall": [self._recall],
            "missed_share": [lost.share],
            "missed_low": [lost.low],
            "missed_high": [lost.high],
        }
