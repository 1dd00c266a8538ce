"""Expected ranking measures under uncertain relevance, and the influence of each pair on them.

A pair is relevant with its own probability, independently of the others. The influence of a pair is the expected change
of the measure of its query if the pair is relevant instead of not: to first order, an error of a label changes the
measure by the influence. For precision this is exact; for nDCG it includes the change of the ideal ranking.

Recall as a mean over queries is left out: for a ratio with few, unevenly distributed positives the first order is not
enough (benchmark `estimates`). `correct_ratio` estimates the recall of all pairs together.

API: `measure_influence(measure, rank, labels)` with `UncertainLabels(query, probability, n_queries)` returns the
expected measure of each query and the influence of each pair, both exact. `first - other` is a difference of systems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from darklode.pipeline.base.types import Doubles, Ints

BLOCK_NUMBERS = 1 << 21
"""Maximum number of values in one of the arrays of `_expected_ndcg` (16 MB); queries are computed in blocks."""

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
    for queries in _blocks(n_pairs, cutoff):
        # One column per query; shorter queries are filled with pairs of probability and discount 0.
        position = np.arange(int(n_pairs[queries].max()))[:, None]
        is_pair = position < n_pairs[queries]
        rows = np.where(is_pair, starts[queries] + position, 0)
        probability, gain = (np.where(is_pair, values[rows], 0.0) for values in (labels.probability, discount))
        expected[queries], influences = _expected_ndcg(probability, gain, min(cutoff, len(position)))
        influence[rows[is_pair]] = influences[is_pair]
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


def _expected_ndcg(probability: Doubles, discount: Doubles, cutoff: int) -> tuple[Doubles, Doubles]:
    """Expected nDCG of each query and the influence of each pair, by dynamic programming over the pairs of a query.

    The state is the number of relevant pairs so far, up to the cutoff: more do not change the ideal ranking. Where a
    pair is cut out, the pairs before and after it are independent: `count` and `gain` describe those before it,
    `inverse_ideal` and `ndcg` those after it.

    Args:
        probability: probability of relevance, shape (n_pairs, n_queries).
        discount: gain of the pair if it is relevant, same shape.
        cutoff: cutoff of the measure.

    Returns:
        Arrays of shape (n_queries,) and (n_pairs, n_queries).
    """
    n_pairs, n_queries = probability.shape
    ideal = np.cumsum(1 / np.log2(np.arange(cutoff) + 2.0))
    # Expectations over the labels of the pairs from a position on, given the number of relevant pairs before it: of
    # 1 / ideal, and of their gains / ideal.
    inverse_ideal, ndcg = (np.zeros((n_pairs + 1, cutoff + 1, n_queries)) for _ in range(2))
    inverse_ideal[n_pairs, 1:] = (1 / ideal)[:, None]
    for pair in reversed(range(n_pairs)):
        chance, after = probability[pair], pair + 1
        more_inverse, more_ndcg = _with_one_more(inverse_ideal[after]), _with_one_more(ndcg[after])
        inverse_ideal[pair] = inverse_ideal[after] + chance * (more_inverse - inverse_ideal[after])
        ndcg[pair] = ndcg[after] + chance * (more_ndcg + discount[pair] * more_inverse - ndcg[after])
    # Of the pairs before: probability of each number of relevant ones, and their expected gain where it is that number.
    count, gain = (np.zeros((cutoff + 1, n_queries)) for _ in range(2))
    count[0] = 1.0
    influence = np.empty((n_pairs, n_queries))
    for pair in range(n_pairs):
        chance, after = probability[pair], pair + 1
        more_inverse, more_ndcg = _with_one_more(inverse_ideal[after]), _with_one_more(ndcg[after])
        by_gain = gain * (more_inverse - inverse_ideal[after])
        by_count = count * (more_ndcg + discount[pair] * more_inverse - ndcg[after])
        influence[pair] = (by_gain + by_count).sum(axis=0)
        gain = _move(gain, gain + discount[pair] * count, chance)
        count = _move(count, count, chance)
    return ndcg[0, 0], influence


def _with_one_more(values: Doubles) -> Doubles:
    """Values of the states with one more relevant pair; the last state stays."""
    return np.concatenate([values[1:], values[-1:]])


def _move(irrelevant: Doubles, relevant: Doubles, chance: Doubles) -> Doubles:
    """Values of the states after a pair: `relevant` moves to the next state, the last one stays."""
    moved = irrelevant * (1 - chance)
    moved[1:] += chance * relevant[:-1]
    moved[-1] += chance * relevant[-1]
    return moved
