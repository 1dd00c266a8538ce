"""Adaptive judging in rounds until enough positives are found.

A random sample, whose verdicts the learner never sees, decides when to stop and estimates what was missed: the share of
its positives that the learner would have selected by now estimates the learner's recall.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.judge.adaptive.learner import ActiveLearner, sigmoid
from darklode.pipeline.judge.adaptive.pool_features import Evidence
from darklode.pipeline.judge.adaptive.recall_estimate import (
    SAMPLE_POSITIVES,
    MissedPositives,
    estimate_missed,
    estimate_missed_by_query,
    min_random_positives,
    recall_outside,
)
from darklode.pipeline.judge.adaptive.selection import expected_gains, order_by_gain

ROUND_SHARE, MIN_ROUND = 0.03, 64
"""Maximum pairs per round as a share of the pool, and the size of the first round after the random sample. Larger
rounds take fewer fits and keep a server busier, but the learner chooses them from older verdicts."""

ROUND_GROWTH = 1.3
"""Growth of the rounds until `ROUND_SHARE`: the first verdicts teach most, so the first rounds are small (AutoTAR,
Cormack & Grossman 2015)."""

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


class JudgingRounds:
    """Continuous active learning (Cormack & Grossman 2014) with a random sample as stopping rule.

    The first rounds judge the random sample, until it has `SAMPLE_POSITIVES` positives or is `random_share` of the
    pool. Later rounds grow from `MIN_ROUND` to `ROUND_SHARE` of the pool. Each takes each query's minimum first
    (`first_pairs_per_query`), then the best fused ranks before the first fit, and the highest expected gains after it.
    Judging ends when the sample shows that `recall` is reached with 95 % confidence, or when all pairs are judged; a
    sample with too few positives shows nothing.

    Call `next_pairs` and `learn` in turns. Pairs are identified by their index in `evidence`.

    Args:
        evidence: features of one tenant's pairs.
        recall: target share of the pool's positives, 0 to 1.
        random_share: maximum share of the pool in the random sample, 0 to 1.
        seed: random seed of the sample's order.
    """

    def __init__(self, evidence: Evidence, *, recall: float, random_share: float, seed: int) -> None:
        self._evidence = evidence
        self._learner = ActiveLearner(evidence)
        self._recall = recall
        n_pairs = evidence.n_pairs
        self._max_round = max(MIN_ROUND, round(ROUND_SHARE * n_pairs))
        self._round_size = MIN_ROUND
        self._sample_order = np.random.default_rng(seed).permutation(n_pairs)[: max(1, round(random_share * n_pairs))]
        self._labels = np.full(n_pairs, np.nan)
        self._judged = np.zeros(n_pairs, bool)
        self._random = np.zeros(n_pairs, bool)  # pairs of the sample that were requested so far
        self._chosen_by_learner = np.zeros(n_pairs, bool)  # pairs of the sample that the learner would have selected
        # Before the first fit, better fused ranks come first.
        self._gain = -np.asarray(evidence.fused_rank, np.float64)
        self._probability: _Floats | None = None
        self.number = 0
        """Number of the last round, from 1."""

    def next_pairs(self) -> _Ints:
        """Choose the pairs of the next round: their indices, ascending; empty when judging is complete."""
        self.number += 1
        if self._is_sampling():
            n_sampled = int(self._random.sum())
            chosen = self._sample_order[n_sampled : n_sampled + self._max_round]
            self._random[chosen] = True
        elif self.is_complete:
            return np.empty(0, np.int64)
        else:
            chosen = self._select_best()
            self._round_size = min(self._max_round, math.ceil(ROUND_GROWTH * self._round_size))
        return np.sort(chosen)

    def learn(self, numbers: _Ints, labels: _Floats) -> None:
        """Add the verdicts of a round and, after the sampling rounds, fit the learner.

        Args:
            numbers: indices of the judged pairs, as returned by `next_pairs`.
            labels: 1 (relevant), 0, or NaN for an unreadable verdict, one per index.
        """
        self._labels[numbers] = labels
        self._judged[numbers] = True
        training_labels = np.where(self._random, np.nan, self._labels)
        if not self._is_sampling() and not self.is_complete and np.isfinite(training_labels).any():
            log_odds = self._learner.fit(training_labels)
            self._gain = expected_gains(self._evidence, log_odds, training_labels)
            self._probability = sigmoid(log_odds)

    def _is_sampling(self) -> bool:
        """Whether the random sample still grows."""
        return self.random_positives < SAMPLE_POSITIVES and int(self._random.sum()) < len(self._sample_order)

    def _select_best(self) -> _Ints:
        """Select the next unjudged pairs by gain, and mark pairs of the sample that come before the last of them as
        reached.
        """
        excluded = self._judged & (~self._random | self._chosen_by_learner)
        order = order_by_gain(self._evidence, self._gain, excluded, self._round_size)
        n_calls = np.cumsum(~self._judged[order])
        order = order[: np.searchsorted(n_calls, min(self._round_size, n_calls[-1])) + 1] if len(order) else order
        self._chosen_by_learner[order[self._random[order]]] = True
        return np.asarray(order[~self._judged[order]])

    @property
    def is_complete(self) -> bool:
        """Whether the sample shows that the target recall is reached."""
        recall_outside_sample = recall_outside(self._recall, float(self._random.mean()))
        n_required = min_random_positives(self.random_positives, recall_outside_sample)
        return n_required is not None and self.random_reached >= n_required

    @property
    def unjudged_pairs(self) -> _Ints:
        """Indices of the unjudged pairs, ascending."""
        return np.flatnonzero(~self._judged)

    @property
    def probability(self) -> _Floats | None:
        """The learner's probability of every pair, shape (n_pairs,); None before the first fit."""
        return self._probability

    @property
    def positives(self) -> int:
        """Number of positives found, including those of the sample."""
        return int(np.nansum(self._labels))

    @property
    def random_positives(self) -> int:
        """Number of positives in the sample."""
        return int(np.nansum(self._labels[self._random]))

    @property
    def random_reached(self) -> int:
        """Number of positives of the sample that the learner would have selected."""
        return int(np.nansum(self._labels[self._chosen_by_learner]))

    @property
    def missed_positives(self) -> MissedPositives:
        """Estimated share of missed positives; 0 if all pairs are judged."""
        n_unjudged = len(self.unjudged_pairs)
        if not n_unjudged:
            return MissedPositives(0.0, 0.0, 0.0)
        n_found = self.positives - self.random_positives
        return estimate_missed(n_found, n_unjudged, self.random_positives, self.random_reached)

    @property
    def missed_by_query(self) -> MissedPositives:
        """Estimated mean share of a query's positives that were missed; 0 if all pairs are judged."""
        if not len(self.unjudged_pairs):
            return MissedPositives(0.0, 0.0, 0.0)
        probability = np.zeros(len(self._judged)) if self._probability is None else self._probability
        positives_by_query = self._by_query(np.where(self._judged, np.nan_to_num(self._labels), probability))
        sample_positives = self._random & (self._labels == 1)
        weights = 1 / positives_by_query[self._evidence.query[sample_positives]]
        return estimate_missed_by_query(weights, self._chosen_by_learner[sample_positives], float(self._random.mean()))

    def _by_query(self, values: _Floats) -> _Floats:
        """Sum values of pairs by query, shape (n_queries,)."""
        return np.asarray(np.bincount(self._evidence.query, values, self._evidence.n_queries), np.float64)

    def summary(self) -> dict[str, list[int] | list[float]]:
        """The tenant's row of the table `stopping`, without the column `tenant`: one-element lists by column."""
        missed = self.missed_positives
        missed_by_query = self.missed_by_query
        positives_by_query = self._by_query(np.nan_to_num(self._labels))
        return {
            "pairs": [len(self._judged)],
            "judged": [int(self._judged.sum())],
            "positives": [self.positives],
            "random": [int(self._random.sum())],
            "random_positives": [self.random_positives],
            "random_reached": [self.random_reached],
            "recall": [self._recall],
            "missed_share": [missed.share],
            "missed_low": [missed.low],
            "missed_high": [missed.high],
            "queries": [self._evidence.n_queries],
            "queries_found": [int((positives_by_query > 0).sum())],
            "queries_found_2_to_5": [int(((positives_by_query >= 2) & (positives_by_query <= 5)).sum())],
            "query_missed_share": [missed_by_query.share],
            "query_missed_low": [missed_by_query.low],
            "query_missed_high": [missed_by_query.high],
        }
