"""Expected ranking measures under uncertain relevance, and the influence of each pair on them.

A pair is relevant with its own probability, independently of the others. The influence of a pair is the expected change
of the measure of its query if the pair is relevant instead of not: to first order, an error of a label changes the
measure by the influence. For precision this is exact; for nDCG it includes the change of the ideal ranking.

Recall as a mean over queries is left out: for a ratio with few, unevenly distributed positives the first order is not
enough (benchmark `estimates`). `correct_ratio` estimates the recall of all pairs together.

API: `measure_influence(measure, rank, labels, seed)` with `UncertainLabels(query, probability, n_queries)` returns the
expected measure of each query and the influence of each pair. `first - other` is a difference of systems.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from darklode.pipeline.base.types import Doubles, Ints

DRAWS = 200
"""Random label vectors per query; a mean over 40 queries then has a standard error below .002 from the draws."""

_MEASURE = re.compile(r"(P|nDCG)@([1-9][0-9]*)")


@dataclass(frozen=True)
class UncertainLabels:
    """Probabilities of relevance.

    Attributes:
        query: query of each pair, from 0, sorted, shape (n_pairs,).
        probability: probability of relevance, 0 to 1, shape (n_pairs,).
        n_queries: number of queries; those without a pair have the value 0 in every measure.
    """

    query: Ints
    probability: Doubles
    n_queries: int


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


def measure_influence(measure: str, rank: Ints, labels: UncertainLabels, seed: int) -> ExpectedMeasure:
    """Compute the expected measure of each query and the influence of each pair.

    Args:
        measure: P@k or nDCG@k with binary gains; 0 for a query without a relevant pair.
        rank: rank of the pair's text in the ranking, from 1; 0: not ranked, shape (n_pairs,).
        labels: probabilities of relevance of the pairs.
        seed: random seed of the label vectors; the same seed gives two systems the same vectors.

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
    expected: Doubles = np.zeros(labels.n_queries)
    influence: Doubles = np.zeros(len(rank))
    starts = np.searchsorted(labels.query, np.arange(labels.n_queries + 1))
    for number, (start, end) in enumerate(pairwise(starts)):
        if start < end:
            drawn = _draw_labels(labels.probability[start:end], np.random.default_rng([seed, number]))
            expected[number], influence[start:end] = _ndcg(drawn, rank[start:end], cutoff)
    return ExpectedMeasure(expected, influence)


def _draw_labels(probability: Doubles, random: np.random.Generator) -> Doubles:
    """Draw label vectors, shape (DRAWS, n_pairs): each pair is relevant in its share of them, up to one vector
    (systematic sampling), so that the draws vary less than independent ones.
    """
    positions = random.permuted(np.tile(np.arange(DRAWS), (len(probability), 1)), axis=1)
    return np.asarray(((positions + random.random((len(probability), 1))) / DRAWS < probability[:, None]).T, np.float64)


def _ndcg(labels: Doubles, rank: Ints, cutoff: int) -> tuple[float, Doubles]:
    """Expected nDCG and influences. With each label set to 1 and to 0, the value of a vector follows from its sums over
    the other labels.
    """
    is_ranked = (rank > 0) & (rank <= cutoff)
    discount = np.where(is_ranked, 1 / np.log2(np.maximum(rank, 1) + 1.0), 0.0)
    ideal = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(cutoff) + 2.0))])
    gains, positives = labels @ discount, labels.sum(axis=1).astype(np.int64)
    value = np.divide(gains, ideal[np.minimum(positives, cutoff)], out=np.zeros(len(gains)), where=positives > 0)
    other_gains, other_positives = gains[:, None] - labels * discount, positives[:, None] - labels.astype(np.int64)
    best = ideal[np.minimum(other_positives, cutoff)]
    without = np.divide(other_gains, best, out=np.zeros(labels.shape), where=other_positives > 0)
    with_pair = (other_gains + discount) / ideal[np.minimum(other_positives + 1, cutoff)]
    return float(value.mean()), (with_pair - without).mean(axis=0)
