"""Which pairs come next, round by round, until enough of the positives are found.

When to stop, and what was missed, is read off a random slice whose verdicts the learner never sees. Its positives are a
random draw of all positives: how many of them the learner would have asked for by now says what share of the others it
has found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.judge.adaptive.learner import ActiveLearner, sigmoid
from darklode.pipeline.judge.adaptive.pool_features import Evidence
from darklode.pipeline.judge.adaptive.recall_estimate import (
    POSITIVES,
    MissedPositives,
    estimate_missed,
    estimate_missed_by_query,
    min_random_positives,
    recall_outside,
)
from darklode.pipeline.judge.adaptive.selection import expected_gains, order_by_gain

SHARE, LEAST = 0.03, 256
"""Pairs of a round: a share of the pool, and no fewer than so many calls, to keep a server busy."""

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


class JudgingRounds:
    """Continuous active learning (Cormack & Grossman 2014) beside a random slice that tells when to stop.

    The first rounds judge the slice: pairs drawn at random from the whole pool, until they hold `POSITIVES` positives
    or are `random_share` of it. The learner never sees their verdicts, so that they stand for all the others. The next
    round takes the best fused ranks, every later one what the queries are owed (see `gain.owed`) and then the highest
    expected gains. It ends when the slice says that `recall` is reached with 95 % confidence, or when all is judged: a
    slice with too few positives promises nothing.

    Args:
        evidence: of one tenant.
        recall: share of the pool's positives to find, 0 to 1.
        random_share: most of the pool that is judged at random, 0 to 1.
        seed: of the slice.
    """

    def __init__(self, evidence: Evidence, *, recall: float, random_share: float, seed: int) -> None:
        self._evidence, self._learner, self._recall = evidence, ActiveLearner(evidence), recall
        n_pairs = evidence.n_pairs
        self._size = max(LEAST, round(SHARE * n_pairs))
        self._drawn = np.random.default_rng(seed).permutation(n_pairs)[: max(1, round(random_share * n_pairs))]
        self._labels = np.full(n_pairs, np.nan)
        self._judged = np.zeros(n_pairs, bool)
        self._random = np.zeros(n_pairs, bool)
        self._chosen_by_learner = np.zeros(n_pairs, bool)  # of the slice: what the learner would have asked for
        self._gain = -np.asarray(evidence.fused_rank, np.float64)
        self._probability: _Floats | None = None
        self.number = 0
        """Of the last round, from 1."""

    def next_pairs(self) -> _Ints:
        """Numbers of the pairs to judge now, ascending; none at the end."""
        self.number += 1
        if self._slice_goes_on():
            begun = int(self._random.sum())
            chosen = self._drawn[begun : begun + self._size]
            self._random[chosen] = True
        elif self.is_complete:
            return np.empty(0, np.int64)
        else:
            chosen = self._best()
        return np.sort(chosen)

    def learn(self, numbers: _Ints, labels: _Floats) -> None:
        """Take in the verdicts of the pairs that `next_pairs` gave.

        Args:
            labels: 1, 0, or not a number where the verdict could not be read, shape of `numbers`.
        """
        self._labels[numbers], self._judged[numbers] = labels, True
        training_labels = np.where(self._random, np.nan, self._labels)
        if not self._slice_goes_on() and not self.is_complete and np.isfinite(training_labels).any():
            log_odds = self._learner.fit(training_labels)
            self._gain, self._probability = expected_gains(self._evidence, log_odds, training_labels), sigmoid(log_odds)

    def _slice_goes_on(self) -> bool:
        return self.random_positives < POSITIVES and int(self._random.sum()) < len(self._drawn)

    def _best(self) -> _Ints:
        """The pairs that come next, and with them those of the slice that stand before the last of them."""
        judged = self._judged & (~self._random | self._chosen_by_learner)
        order = order_by_gain(self._evidence, self._gain, judged, self._size)
        calls = np.cumsum(~self._judged[order])
        order = order[: np.searchsorted(calls, min(self._size, calls[-1])) + 1] if len(order) else order
        self._chosen_by_learner[order[self._random[order]]] = True
        return np.asarray(order[~self._judged[order]])

    @property
    def is_complete(self) -> bool:
        """Whether the slice says that enough is found."""
        outside = recall_outside(self._recall, float(self._random.mean()))
        n_required = min_random_positives(self.random_positives, outside)
        return n_required is not None and self.random_reached >= n_required

    @property
    def unjudged_pairs(self) -> _Ints:
        """Numbers of the pairs that no round has asked for, ascending."""
        return np.flatnonzero(~self._judged)

    @property
    def probability(self) -> _Floats | None:
        """What the learner expects of every pair, shape (n_pairs,); None before it has learnt anything."""
        return self._probability

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
        return int(np.nansum(self._labels[self._chosen_by_learner]))

    @property
    def missed_positives(self) -> MissedPositives:
        """Share of the positives that is still missing, as the slice tells it; 0 where all is judged."""
        n_unjudged = len(self.unjudged_pairs)
        if not n_unjudged:
            return MissedPositives(0.0, 0.0, 0.0)
        n_found = self.positives - self.random_positives
        return estimate_missed(n_found, n_unjudged, self.random_positives, self.random_reached)

    @property
    def missed_by_query(self) -> MissedPositives:
        """Share of a query's positives that is still missing, mean over queries with any; 0 where all is judged."""
        if not len(self.unjudged_pairs):
            return MissedPositives(0.0, 0.0, 0.0)
        expected = np.zeros(len(self._judged)) if self._probability is None else self._probability
        of_query = self._by_query(np.where(self._judged, np.nan_to_num(self._labels), expected))
        drawn = self._random & (self._labels == 1)
        weights = 1 / of_query[self._evidence.query[drawn]]
        return estimate_missed_by_query(weights, self._chosen_by_learner[drawn], float(self._random.mean()))

    def _by_query(self, values: _Floats) -> _Floats:
        return np.asarray(np.bincount(self._evidence.query, values, self._evidence.n_queries), np.float64)

    def summary(self) -> dict[str, list[int] | list[float]]:
        """One row of `stopping`, less the tenant."""
        lost, by_query = self.missed_positives, self.missed_by_query
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
            "queries": [self._evidence.n_queries],
            "queries_found": [int((self._by_query(np.nan_to_num(self._labels)) > 0).sum())],
            "query_missed_share": [by_query.share],
            "query_missed_low": [by_query.low],
            "query_missed_high": [by_query.high],
        }
