"""Select the next pairs: expected gain per pair, and a minimum number of judged pairs per query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.judge.adaptive.learner import sigmoid
from darklode.pipeline.judge.adaptive.pool_features import Evidence

ENOUGH = 8
"""Gains diminish up to this number of positives: a query's first counts 1, the second 1/2, the eighth and later 1/8."""

FLOOR = 0.5
"""Minimum judged pairs of a query, as a share of what uniform judging would give it."""

_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]
_Floats = NDArray[np.float64]


def expected_gains(evidence: Evidence, log_odds: _Floats, labels: _Floats) -> _Floats:
    """Log expected gain of each pair, shape (n_pairs,): log(probability ÷ (1 + its query's positives so far)).

    The objective is the sum over queries of 1 + 1/2 + … + 1/positives, so that a query's first positive outweighs
    another's ninth (diminishing returns as in Agrawal et al. 2009, Diversifying search results).

    Args:
        evidence: of one tenant.
        log_odds: shape (n_pairs,).
        labels: 1, 0, or NaN if unknown, shape (n_pairs,).
    """
    n_positives = np.bincount(evidence.query, np.nan_to_num(labels), evidence.n_queries)
    return np.asarray(np.log(sigmoid(log_odds)) - np.log(np.minimum(1 + n_positives, ENOUGH))[evidence.query])


def first_pairs_per_query(evidence: Evidence, judged: _Bools, size: int) -> _Bools:
    """Pairs needed now to keep every query at its minimum (`FLOOR`), best fused rank first, shape (n_pairs,).

    Args:
        evidence: of one tenant.
        judged: whether each pair is judged, shape (n_pairs,).
        size: number of pairs of the next round.
    """
    query, waiting = evidence.query, np.flatnonzero(~judged)
    share = FLOOR * (int(judged.sum()) + size) / evidence.n_pairs
    short = np.ceil(share * np.diff(evidence.starts)) - np.bincount(query[judged], minlength=evidence.n_queries)
    ordered = waiting[np.lexsort((evidence.fused_rank[waiting], query[waiting]))]
    query_of = query[ordered]
    rank = np.arange(len(ordered)) - np.searchsorted(query_of, query_of)
    chosen = np.zeros(evidence.n_pairs, bool)
    chosen[ordered[rank < short[query_of]]] = True
    return chosen


def order_by_gain(evidence: Evidence, gain: _Floats, judged: _Bools, size: int) -> _Ints:
    """Indices of unjudged pairs: the queries' minimum first, then by gain, ties by index.

    Args:
        evidence: of one tenant.
        gain: shape (n_pairs,).
        judged: whether each pair is judged, shape (n_pairs,).
        size: number of pairs of the next round.
    """
    waiting, first = np.flatnonzero(~judged), first_pairs_per_query(evidence, judged, size)
    return np.asarray(waiting[np.lexsort((-gain[waiting], ~first[waiting]))])
