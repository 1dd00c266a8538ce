"""Who is asked next: what a pair is expected to add to its query, and a floor that no query falls below."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.judge.adaptive.learner import sigmoid
from darklode.pipeline.judge.adaptive.pool_features import Evidence

ENOUGH = 8
"""Finds after which a query's next one counts no less: the first counts 1, the second 1/2, from here on 1/8."""

FLOOR = 0.5
"""Of the calls that a query had, if all queries had the same share of their pairs judged."""

_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]
_Floats = NDArray[np.float64]


def expected_gains(evidence: Evidence, log_odds: _Floats, labels: _Floats) -> _Floats:
    """What each pair is expected to add: its probability ÷ its query's positives so far and one, as a logarithm.

    The sum over all queries of 1 + 1/2 + … + 1/positives is what the calls are for, so that a query's first answer
    outweighs another's ninth: diminishing returns, as in Agrawal et al. 2009, Diversifying search results.

    Args:
        log_odds: of each pair, shape (n_pairs,).
        labels: 1, 0, or not a number where nothing is known, shape (n_pairs,).
    """
    n_positives = np.bincount(evidence.query, np.nan_to_num(labels), evidence.n_queries)
    return np.asarray(np.log(sigmoid(log_odds)) - np.log(np.minimum(1 + n_positives, ENOUGH))[evidence.query])


def first_pairs_per_query(evidence: Evidence, judged: _Bools, size: int) -> _Bools:
    """The pairs that a query must be asked now, best fused rank first, lest it falls below its floor.

    Args:
        judged: whether each pair was asked, shape (n_pairs,).
        size: calls of the coming round.

    Returns:
        shape (n_pairs,).
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
    """Numbers of the pairs that were not asked: what queries are owed first, then by gain, ties by number.

    Args:
        gain: what a pair adds, shape (n_pairs,).
        judged: whether each pair was asked, shape (n_pairs,).
        size: calls of the coming round.
    """
    waiting, first = np.flatnonzero(~judged), first_pairs_per_query(evidence, judged, size)
    return np.asarray(waiting[np.lexsort((-gain[waiting], ~first[waiting]))])
