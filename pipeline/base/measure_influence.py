"""Expected ranking measures under uncertain relevance, and the influence of each pair on them.

A pair is relevant with its own probability. Labels of a query may be correlated (Gaussian copula): some queries have
more relevant pairs than the probabilities say, others fewer, which changes the mean of a ratio such as recall. The
influence of a pair is the expected change of the measure of its query if the pair is relevant instead of not: to first
order, an error of a label changes the measure by the influence. For precision this is exact; for recall and nDCG it
includes the change of the denominator.

Relevance is binary. A text without a probability counts as not relevant.

API: `measure_influence(measure, rank, labels, seed)` with `UncertainLabels(query, probability, n_queries, correlation)`
returns the expected measure of each query and the influence of each pair. `first - other` is a difference of systems.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import ndtri

from darklode.pipeline.base.types import Doubles, Ints

DRAWS = 200
"""Random label vectors per query; a mean over 40 queries then has a standard error below .002 from the draws."""

_MEASURE = re.compile(r"(P|R|Recall|nDCG|Success|RR)@([1-9][0-9]*)")


@dataclass(frozen=True)
class UncertainLabels:
    """Probabilities of relevance.

    Attributes:
        query: query of each pair, from 0, sorted, shape (n_pairs,).
        probability: probability of relevance, 0 to 1, shape (n_pairs,).
        n_queries: number of queries; those without a pair have the value 0 in every measure.
        correlation: of the latent variables of a query's labels, 0 to below 1.
    """

    query: Ints
    probability: Doubles
    n_queries: int
    correlation: float = 0.0


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
        measure: P@k, R@k, nDCG@k, Success@k or RR@k; 0 for a query without a relevant pair.
        rank: rank of the pair's text in the ranking, from 1; 0: not ranked, shape (n_pairs,).
        labels: probabilities of relevance of the pairs.
        seed: random seed of the label vectors; the same seed gives two systems the same vectors.

    Raises:
        ValueError: another measure.
    """
    match = _MEASURE.fullmatch(measure)
    if match is None:
        raise ValueError(f"{measure}: the influence of labels is known for P, R, nDCG, Success and RR with a cutoff")
    compute, cutoff = _FIGURES[match[1]], int(match[2])
    expected, influence = np.zeros(labels.n_queries), np.zeros(len(rank))
    top_rank, threshold = np.where(rank <= cutoff, rank, 0), ndtri(labels.probability)
    starts = np.searchsorted(labels.query, np.arange(labels.n_queries + 1))
    for number, (start, end) in enumerate(pairwise(starts)):
        if start < end:
            random = np.random.default_rng([seed, number])
            drawn = _draw_labels(threshold[start:end], labels.correlation, random)
            expected[number], influence[start:end] = compute(drawn, top_rank[start:end], cutoff)
    return ExpectedMeasure(expected, influence)


def _draw_labels(threshold: Doubles, correlation: float, random: np.random.Generator) -> Doubles:
    """Draw label vectors, shape (DRAWS, n_pairs): a pair is relevant if its latent normal variable is below its
    threshold.

    Both the query's variable and each pair's own take every quantile once, so that the draws vary less than independent
    ones.
    """
    positions = random.permuted(np.tile(np.arange(DRAWS), (len(threshold), 1)), axis=1)
    own = ndtri((positions + random.random((len(threshold), 1))) / DRAWS)
    of_query = ndtri((np.arange(DRAWS) + 0.5) / DRAWS)
    latent = np.sqrt(correlation) * of_query + np.sqrt(1 - correlation) * own
    return np.asarray((latent < threshold[:, None]).T, np.float64)


_Figure = Callable[[Doubles, Ints, int], tuple[float, Doubles]]
"""Maps label vectors, ranks (0 beyond the cutoff) and the cutoff to the expected value and the influences. With each
label set to 1 and to 0, the value of a vector follows from sums over the other labels."""


def _precision(labels: Doubles, rank: Ints, cutoff: int) -> tuple[float, Doubles]:
    return float(labels[:, rank > 0].sum(axis=1).mean()) / cutoff, (rank > 0) / cutoff


def _recall(labels: Doubles, rank: Ints, _cutoff: int) -> tuple[float, Doubles]:
    hits, positives = labels[:, rank > 0].sum(axis=1), labels.sum(axis=1)
    value = np.divide(hits, positives, out=np.zeros(len(hits)), where=positives > 0)
    other_hits, other_positives = hits[:, None] - labels * (rank > 0), positives[:, None] - labels
    without = np.divide(other_hits, other_positives, out=np.zeros(labels.shape), where=other_positives > 0)
    return float(value.mean()), ((other_hits + (rank > 0)) / (other_positives + 1) - without).mean(axis=0)


def _ndcg(labels: Doubles, rank: Ints, cutoff: int) -> tuple[float, Doubles]:
    discount = np.where(rank > 0, 1 / np.log2(np.maximum(rank, 1) + 1.0), 0.0)
    ideal = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(cutoff) + 2.0))])
    gains, positives = labels @ discount, labels.sum(axis=1).astype(np.int64)
    value = np.divide(gains, ideal[np.minimum(positives, cutoff)], out=np.zeros(len(gains)), where=positives > 0)
    other_gains, other_positives = gains[:, None] - labels * discount, positives[:, None] - labels.astype(np.int64)
    best = ideal[np.minimum(other_positives, cutoff)]
    without = np.divide(other_gains, best, out=np.zeros(labels.shape), where=other_positives > 0)
    with_pair = (other_gains + discount) / ideal[np.minimum(other_positives + 1, cutoff)]
    return float(value.mean()), (with_pair - without).mean(axis=0)


def _success(labels: Doubles, rank: Ints, _cutoff: int) -> tuple[float, Doubles]:
    hits = labels[:, rank > 0].sum(axis=1)
    return float((hits > 0).mean()), (rank > 0) * (hits[:, None] - labels * (rank > 0) == 0).mean(axis=0)


def _reciprocal_rank(labels: Doubles, rank: Ints, _cutoff: int) -> tuple[float, Doubles]:
    reciprocal = np.where(rank > 0, 1 / np.maximum(rank, 1), 0.0)
    scores = labels * reciprocal
    best_two = np.sort(np.column_stack([np.zeros((len(labels), 2)), scores]), axis=1)[:, -2:]
    others = np.where(scores == best_two[:, 1:], best_two[:, :1], best_two[:, 1:])
    return float(best_two[:, 1].mean()), np.maximum(reciprocal - others, 0).mean(axis=0)


_FIGURES: dict[str, _Figure] = {
    "P": _precision,
    "R": _recall,
    "Recall": _recall,
    "nDCG": _ndcg,
    "Success": _success,
    "RR": _reciprocal_rank,
}
