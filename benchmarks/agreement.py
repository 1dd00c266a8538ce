"""Measures of how far a judge's labels agree with human ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau
from sklearn.metrics import roc_auc_score

from darklode.pipeline.base.agreement import cohens_kappa, confusion

_Bools = NDArray[np.bool_]
_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


def kappa(said: _Bools, positive: _Bools) -> float:
    """Cohen's kappa; 0 where all pairs are called the same."""
    return float(np.nan_to_num(cohens_kappa(confusion(said, positive))))


def best_cut(scored: list[tuple[_Floats, _Bools]], cuts: _Floats) -> float:
    """The cut with the highest mean kappa over several collections.

    Args:
        scored: score and human label of each pair, of each collection.
        cuts: to choose from.
    """
    means = [np.mean([kappa(score >= cut, positive) for score, positive in scored]) for cut in cuts]
    return float(cuts[int(np.argmax(means))])


def within_query_auc(query: _Ints, score: _Floats, positive: _Bools) -> float:
    """Mean over queries of the area under the ROC curve; queries with one class only are left out.

    Args:
        query: query row of each pair, ascending, shape (n_pairs,); so are score and positive.
    """
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    each = [slice(start, end) for start, end in zip(starts, [*starts[1:], len(query)], strict=True)]
    mixed = [rows for rows in each if 0 < positive[rows].sum() < rows.stop - rows.start]
    return float(np.mean([roc_auc_score(positive[rows], score[rows]) for rows in mixed]))


def places(query: _Ints, score: _Floats) -> _Ints:
    """Place of each pair within its query, from 1, the highest score first; queries ascend."""
    order = np.lexsort((-score, query))
    found = np.empty(len(query), np.int64)
    found[order] = np.arange(len(query)) - np.searchsorted(query, query[order]) + 1
    return found


def share_answered(query: _Ints, said: _Bools, of: _Bools) -> float:
    """Share of the queries in `of`, shape (n_queries,), that have a pair called relevant."""
    answered = np.bincount(query, said, len(of)) > 0
    return float(answered[of].mean()) if of.any() else float("nan")


def tau(found_by: _Bools, said: _Bools, positive: _Bools) -> float:
    """Kendall's tau of the retrievers' recall by the judge's labels with that by human ones.

    Args:
        found_by: shape (n_pairs, n_retrievers).
    """
    shares = [found_by[labels].mean(axis=0) for labels in (positive, said)]
    return float(kendalltau(*shares).statistic)
