"""Expected ranking measures under uncertain relevance, and the influence of each pair on them.

A pair is relevant with its own probability. The influence of a pair is the expected change of the measure of its query
if the pair is relevant instead of not: to first order, an error of a label changes the measure by the influence. For
precision this is exact; for nDCG it includes the change of the ideal ranking.

Some queries have more relevant pairs than their probabilities say, others fewer. In the expected nDCG the log-odds of
a query's pairs therefore share a normal deviation, and given this the labels are independent: on llm-judges the bias of
corrected values fell from -.029 to -.020. Influences are those of independent labels; with the deviation the bias was
0, but the error larger (root mean square .063 instead of .045), because few labels then decide.

Recall as a mean over queries is left out: for a ratio with few, unevenly distributed positives the first order is not
enough (benchmark `estimates`). `correct_ratio` estimates the recall of all pairs together.

API: `measure_influence(measure, rank, labels)` with `UncertainLabels(query, probability, n_queries, spread)` returns
the expected measure of each query and the influence of each pair. `first - other` is a difference of systems.
`estimate_spread` estimates the spread of the deviation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq
from scipy.special import expit, logit

from darklode.pipeline.base.types import Doubles, Ints

BLOCK_NUMBERS = 1 << 21
"""Maximum number of values in one of the arrays of `FollowingPairs` (16 MB); queries are computed in blocks."""

PRIOR_VARIANCE, PRIOR_PAIRS = 0.5, 20.0
"""Variance of the deviation of a query's log-odds where labels say nothing, and its weight in pairs of labels."""

MAX_SPREAD = 3.0
"""Largest estimate of a spread: labels cannot tell larger ones apart."""

N_DEVIATIONS = 5
"""Number of deviations that stand for the normal distribution (Gauss-Hermite quadrature)."""

_MEASURE = re.compile(r"(P|nDCG)@([1-9][0-9]*)")


@dataclass(frozen=True)
class UncertainLabels:
    """Probabilities of relevance.

    Attributes:
        query: query of each pair, from 0, sorted, shape (n_pairs,).
        probability: probability of relevance, 0 to 1, shape (n_pairs,).
        n_queries: number of queries; those without a pair have the value 0 in every measure.
        spread: standard deviation between queries of the deviation that the log-odds of a query's pairs share; the
            probabilities are means over it. 0: labels are independent.
    """

    query: Ints
    probability: Doubles
    n_queries: int
    spread: float = 0.0

    def independent_parts(self) -> Iterator[tuple[float, Doubles]]:
        """Weight and probabilities of relevance for each deviation; given the deviation, labels are independent."""
        nodes, weights = hermegauss(N_DEVIATIONS)
        shift, weights = self.spread * nodes[:, None], weights / weights.sum()
        is_uncertain = (self.probability > 0) & (self.probability < 1)
        target = logit(self.probability[is_uncertain])
        center = target.copy()
        for _ in range(8):  # Newton's method, until the weighted mean is the probability
            conditional = expit(center + shift)
            mean = weights @ conditional
            slope = weights @ (conditional * (1 - conditional))
            center += (target - logit(mean)) * mean * (1 - mean) / slope
        for weight, each_shift in zip(weights.tolist(), shift[:, 0], strict=True):
            probability = self.probability.copy()
            probability[is_uncertain] = expit(center + each_shift)
            yield weight, probability


def estimate_spread(query: Ints, label: Doubles, probability: Doubles) -> float:
    """Estimate `UncertainLabels.spread`: the one whose labels of the same query vary together as these do.

    It makes the expected sum of (label - probability) · (label - probability), over the pairs of labels of each query,
    equal to the sum found. The prior adds `PRIOR_PAIRS` pairs that say `PRIOR_VARIANCE`, to first order.

    Args:
        query: query of each label, shape (n_labels,).
        label: 0 or 1, same shape.
        probability: probability of relevance, from other labels, same shape.
    """
    observed = _sum_of_products(query, label - probability)
    prior = PRIOR_PAIRS * float((probability * (1 - probability)).mean()) ** 2

    def excess(spread: float) -> float:
        parts = UncertainLabels(query, probability, 0, spread).independent_parts()
        expected = sum(weight * _sum_of_products(query, each - probability) for weight, each in parts)
        return expected - observed + prior * (spread**2 - PRIOR_VARIANCE)

    if excess(0.0) >= 0:
        return 0.0
    return float(brentq(excess, 0.0, MAX_SPREAD, xtol=1e-3)) if excess(MAX_SPREAD) > 0 else MAX_SPREAD


def _sum_of_products(query: Ints, values: Doubles) -> float:
    """Sum over the pairs of different values of a query of their product."""
    return float((np.bincount(query, values) ** 2 - np.bincount(query, values**2)).sum()) / 2


@dataclass(frozen=True)
class ExpectedMeasure:
    """A measure under uncertain relevance.

    Attributes:
        expected: expected value of each query, shape (n_queries,).
        influence: change of the query's value if the pair is relevant instead of not, shape (n_pairs,).
    """

    expected: Doubles
    influence: Doubles

    def __sub__(self, other: ExpectedMeasure) -> ExpectedMeasure:
        """The difference of two systems on the same queries and pairs."""
        return ExpectedMeasure(self.expected - other.expected, self.influence - other.influence)


def is_supported(measure: str) -> bool:
    """Whether the influence of labels on a measure can be computed, by its name in ir_measures."""
    return _MEASURE.fullmatch(measure) is not None


def measure_influence(measure: str, rank: Ints, labels: UncertainLabels) -> ExpectedMeasure:
    """Compute the expected measure of each query and the influence of each pair.

    Args:
        measure: P@k or nDCG@k with binary gains; 0 for a query without a relevant pair.
        rank: rank of the pair's text in the ranking, from 1; 0: not ranked, shape (n_pairs,).
        labels: probabilities of relevance of the pairs.

    Raises:
        ValueError: another measure.
    """
    match = _MEASURE.fullmatch(measure)
    if match is None:
        raise ValueError(f"{measure}: the influence of labels is known for P and nDCG with a cutoff")
    cutoff = int(match[2])
    if match[1] == "P":
        in_top = np.asarray((rank > 0) & (rank <= cutoff), np.float64) / cutoff
        mean = np.bincount(labels.query, in_top * labels.probability, minlength=labels.n_queries)
        return ExpectedMeasure(np.asarray(mean, np.float64), in_top)
    is_ranked = (rank > 0) & (rank <= cutoff)
    discount = np.where(is_ranked, 1 / np.log2(np.maximum(rank, 1) + 1.0), 0.0)
    starts = np.searchsorted(labels.query, np.arange(labels.n_queries + 1))
    n_pairs = np.diff(starts)
    expected, influence = np.zeros(labels.n_queries), np.zeros(len(rank))
    parts = list(labels.independent_parts())
    for queries in _blocks(n_pairs, cutoff):
        # One column per query; shorter queries are filled with pairs of probability and discount 0.
        position = np.arange(int(n_pairs[queries].max()))[:, None]
        is_pair = position < n_pairs[queries]
        rows = np.where(is_pair, starts[queries] + position, 0)
        probability, gain = (np.where(is_pair, values[rows], 0.0) for values in (labels.probability, discount))
        following = FollowingPairs.compute(probability, gain, min(cutoff, len(position)))
        influence[rows[is_pair]] = following.influence(probability, gain)[is_pair]
        if labels.spread == 0:
            expected[queries] = following.expected
            continue
        for weight, each in parts:
            part = FollowingPairs.compute(np.where(is_pair, each[rows], 0.0), gain, min(cutoff, len(position)))
            expected[queries] += weight * part.expected
    return ExpectedMeasure(expected, influence)


def _blocks(n_pairs: Ints, cutoff: int) -> Iterator[Ints]:
    """Queries with pairs, those with similar numbers of pairs together."""
    queries = np.argsort(-n_pairs, kind="stable")[: np.count_nonzero(n_pairs)]
    start = 0
    while start < len(queries):
        longest = int(n_pairs[queries[start]])
        end = start + max(1, BLOCK_NUMBERS // ((longest + 1) * (min(cutoff, longest) + 1)))
        yield queries[start:end]
        start = end


@dataclass(frozen=True)
class FollowingPairs:
    """Expectations over the labels of the pairs from a position on, by dynamic programming over the pairs of a query.

    The state is the number of relevant pairs before the position, up to the cutoff: more do not change the ideal.

    Attributes:
        inverse_ideal: expected 1 / ideal gain, shape (n_pairs + 1, cutoff + 1, n_queries).
        ndcg: expected gain of these pairs / ideal gain, same shape.
    """

    inverse_ideal: Doubles
    ndcg: Doubles

    @classmethod
    def compute(cls, probability: Doubles, discount: Doubles, cutoff: int) -> FollowingPairs:
        """Compute them from the last pair on.

        Args:
            probability: probability of relevance, shape (n_pairs, n_queries).
            discount: gain of the pair if it is relevant, same shape.
            cutoff: cutoff of the measure.
        """
        n_pairs, n_queries = probability.shape
        ideal = np.cumsum(1 / np.log2(np.arange(cutoff) + 2.0))
        inverse_ideal, ndcg = (np.zeros((n_pairs + 1, cutoff + 1, n_queries)) for _ in range(2))
        inverse_ideal[n_pairs, 1:] = (1 / ideal)[:, None]
        for pair in reversed(range(n_pairs)):
            chance, after = probability[pair], pair + 1
            more_inverse, more_ndcg = _with_one_more(inverse_ideal[after]), _with_one_more(ndcg[after])
            inverse_ideal[pair] = inverse_ideal[after] + chance * (more_inverse - inverse_ideal[after])
            ndcg[pair] = ndcg[after] + chance * (more_ndcg + discount[pair] * more_inverse - ndcg[after])
        return cls(inverse_ideal, ndcg)

    @property
    def expected(self) -> Doubles:
        """Expected nDCG of each query, shape (n_queries,)."""
        return np.asarray(self.ndcg[0, 0])

    def influence(self, probability: Doubles, discount: Doubles) -> Doubles:
        """Influence of each pair, shape (n_pairs, n_queries); the pairs before it and after it are independent."""
        # Of the pairs before: probability of each number of relevant ones, and their expected gain where it is that.
        count, gain = (np.zeros(self.ndcg.shape[1:]) for _ in range(2))
        count[0] = 1.0
        influence = np.empty(probability.shape)
        for pair, chance in enumerate(probability):
            inverse_ideal, ndcg = self.inverse_ideal[pair + 1], self.ndcg[pair + 1]
            more_inverse, more_ndcg = _with_one_more(inverse_ideal), _with_one_more(ndcg)
            by_gain = gain * (more_inverse - inverse_ideal)
            by_count = count * (more_ndcg + discount[pair] * more_inverse - ndcg)
            influence[pair] = (by_gain + by_count).sum(axis=0)
            gain = _move(gain, gain + discount[pair] * count, chance)
            count = _move(count, count, chance)
        return influence


def _with_one_more(values: Doubles) -> Doubles:
    """Values of the states with one more relevant pair; the last state stays."""
    return np.concatenate([values[1:], values[-1:]])


def _move(irrelevant: Doubles, relevant: Doubles, chance: Doubles) -> Doubles:
    """Values of the states after a pair: `relevant` moves to the next state, the last one stays."""
    moved = irrelevant * (1 - chance)
    moved[1:] += chance * relevant[:-1]
    moved[-1] += chance * relevant[-1]
    return moved
