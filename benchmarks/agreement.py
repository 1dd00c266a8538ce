"""Measures of how far a judge's labels agree with human ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau
from sklearn.metrics import roc_auc_score

from darklode.pipeline.base.raters import Confusion, cohens_kappa

CUTS = np.linspace(0.3, 0.9, 61)


@dataclass(frozen=True)
class Judged:
    """A collection's pool, one row per pair, by query.

    Attributes:
        query: query row, shape (n_pairs,); so are positive (human), score and relevant (embedded judge).
        found_by: which of the seven found the pair, shape (n_pairs, 7).
        features: shape (n_pairs, 4), columns as in `FEATURES`.
        seconds: fitting the judge and scoring the pool.
    """

    name: str
    query: NDArray[np.int64]
    found_by: NDArray[np.bool_]
    positive: NDArray[np.bool_]
    features: NDArray[np.float64]
    score: NDArray[np.float64]
    relevant: NDArray[np.bool_]
    seconds: float


def kappas(judged: Judged, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cohen's kappa of the weighted features at each of `CUTS`, shape (len(CUTS),)."""
    score = judged.features @ weights
    order = np.argsort(score)
    below = np.searchsorted(score[order], CUTS)
    missed = np.concatenate([[0], np.cumsum(judged.positive[order])])[below]
    hits = judged.positive.sum() - missed
    return cohens_kappa(Confusion(hits, len(score) - below - hits, missed, below - missed))


def left_out(table: NDArray[np.float64]) -> list[float]:
    """Each collection's kappa with the weights and the cut that are best on the mean of the others.

    Args:
        table: kappas, shape (n_weights, n_collections, n_cuts).
    """
    found = []
    for row in range(table.shape[1]):
        others = np.delete(table, row, axis=1).mean(axis=1)
        weights, cut = np.unravel_index(others.argmax(), others.shape)
        found.append(float(table[weights, row, cut]))
    return found


def within_query_auc(judged: Judged) -> float:
    """Mean over queries of the area under the ROC curve; queries with one class only are left out."""
    starts = np.flatnonzero(np.diff(judged.query, prepend=-1))
    ends = [*starts[1:], len(judged.query)]
    queries = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
    mixed = [q for q in queries if 0 < judged.positive[q].sum() < q.stop - q.start]
    return float(np.mean([roc_auc_score(judged.positive[q], judged.score[q]) for q in mixed]))


def tau(judged: Judged) -> float:
    """Kendall's tau of the seven retrievers' recall at `DEPTH` by the judge's labels with that by human ones."""
    shares = [judged.found_by[labels].mean(axis=0) for labels in (judged.positive, judged.relevant)]
    return float(kendalltau(*shares).statistic)
