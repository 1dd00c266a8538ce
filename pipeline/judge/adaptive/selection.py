"""Select the next pairs: expected gain per pair, and a minimum number of judged pairs per query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.judge.adaptive.learner import sigmoid
from darklode.pipeline.judge.adaptive.pool_features import Evidence

MAX_GAIN_DIVISOR = 8
"""Gains diminish up to this number of positives: a query's first counts 1, the second 1/2, the eighth and later
1/8."""

MIN_JUDGED_SHARE = 0.5
"""Minimum judged pairs of a query, as a share of what uniform judging would give it, whatever the learner predicts; 0
would follow the gains alone."""

_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]
_Floats = NDArray[np.float64]


def expected_gains(evidence: Evidence, log_odds: _Floats, labels: _Floats) -> _Floats:
    """Compute the log expected gain of each pair, shape (n_pairs,).

    It is log(probability ÷ (1 + its query's positives so far)), with the divisor limited to `MAX_GAIN_DIVISOR`.

    The objective is the sum over queries of 1 + 1/2 + … + 1/positives, so that a query's first positive outweighs
    another's ninth (diminishing returns as in Agrawal et al. 2009, Diversifying search results).

    Args:
        evidence: features of one tenant's pairs.
        log_odds: the learner's log-odds of relevance, shape (n_pairs,).
        labels: 1 (relevant), 0, or NaN if unknown, shape (n_pairs,).
    """
    n_positives = np.bincount(evidence.query, np.nan_to_num(labels), evidence.n_queries)
    divisor = np.minimum(1 + n_positives, MAX_GAIN_DIVISOR)
    return np.asarray(np.log(sigmoid(log_odds)) - np.log(divisor)[evidence.query])


def first_pairs_per_query(evidence: Evidence, judged: _Bools, size: int) -> _Bools:
    """Mark the pairs that keep each query at its minimum (`MIN_JUDGED_SHARE`), best fused rank first; shape (n_pairs,).

    Args:
        evidence: features of one tenant's pairs.
        judged: whether each pair is judged, shape (n_pairs,).
        size: number of pairs of the next round.
    """
    query = evidence.query
    unjudged = np.flatnonzero(~judged)
    minimum_share = MIN_JUDGED_SHARE * (int(judged.sum()) + size) / evidence.n_pairs
    n_missing = np.ceil(minimum_share * np.diff(evidence.starts)) - np.bincount(
        query[judged], minlength=evidence.n_queries
    )
    ordered = unjudged[np.lexsort((evidence.fused_rank[unjudged], query[unjudged]))]
    query_of_ordered = query[ordered]
    rank = np.arange(len(ordered)) - np.searchsorted(query_of_ordered, query_of_ordered)
    chosen = np.zeros(evidence.n_pairs, bool)
    chosen[ordered[rank < n_missing[query_of_ordered]]] = True
    return chosen


def order_by_gain(evidence: Evidence, gain: _Floats, judged: _Bools, size: int) -> _Ints:
    """Order the indices of unjudged pairs: the queries' minimum first, then by descending gain, ties by index.

    Args:
        evidence: features of one tenant's pairs.
        gain: expected gain of each pair, shape (n_pairs,); only the order matters.
        judged: whether each pair is judged, shape (n_pairs,).
        size: number of pairs of the next round.
    """
    unjudged = np.flatnonzero(~judged)
    is_first = first_pairs_per_query(evidence, judged, size)
    return np.asarray(unjudged[np.lexsort((-gain[unjudged], ~is_first[unjudged]))])
