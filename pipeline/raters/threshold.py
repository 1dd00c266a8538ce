"""The threshold at which labels by probability agree best with human ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.raters.kappa import Confusion, cohens_kappa, confusion

MIN_LABELS = 100
MIN_OF_EACH = 10
"""Fewer labelled pairs with a probability, or fewer relevant or not relevant ones, and nothing is fitted."""

FOLDS = 5
_DECIMALS = 6
"""Of a fitted threshold: no more than a judge_id shows."""

_Floats = NDArray[np.float64]


def enough(positive: NDArray[np.bool_]) -> bool:
    """Whether so many human labels, shape (n_pairs,), can carry a curve and a threshold."""
    yes = int(positive.sum())
    return len(positive) >= MIN_LABELS and min(yes, len(positive) - yes) >= MIN_OF_EACH


def fit_threshold(
    probability: NDArray[np.float32], positive: NDArray[np.bool_], weight: _Floats | None = None
) -> tuple[float, float] | None:
    """The threshold at which labels by probability have the highest kappa with human ones, and that kappa.

    Tried is the middle between every two neighbouring probabilities; of equally good ones it is that nearest to one
    half, the lower one of two. None where none agrees better than chance.

    Args:
        probability: shape (n_pairs,), none missing.
        positive: human labels, shape (n_pairs,).
        weight: how many pairs each stands for, shape (n_pairs,); None: each for itself.
    """
    order = np.argsort(probability, kind="stable")
    ascending = probability[order]
    values = np.unique(ascending).astype(np.float64)
    cuts = np.unique(((values[1:] + values[:-1]) / 2).round(_DECIMALS))
    weights = np.ones(len(order)) if weight is None else weight[order]
    kappas = cohens_kappa(_at_each(cuts, ascending, positive[order], weights))
    if not (kappas > 0).any():
        return None
    best = np.flatnonzero(kappas == np.nanmax(kappas))
    chosen = best[np.argmin(np.abs(cuts[best] - 0.5))]
    return float(cuts[chosen]), float(kappas[chosen])


def _at_each(cuts: _Floats, ascending: NDArray[np.float32], positive: NDArray[np.bool_], weight: _Floats) -> Confusion:
    below = np.searchsorted(ascending, cuts.astype(np.float32))
    yes, no = (np.concatenate([[0.0], np.cumsum(weight * own)]) for own in (positive, ~positive))
    return Confusion(yes[-1] - yes[below], no[-1] - no[below], yes[below], no[below])


def cross_validated_kappa(
    probability: NDArray[np.float32],
    positive: NDArray[np.bool_],
    query: NDArray[np.int64],
    seed: int,
    weight: _Floats | None = None,
) -> float:
    """Kappa of labels whose threshold was fitted on other queries: what a fitted threshold does on new ones.

    Five folds of whole queries (fewer queries: as many folds as queries); NaN where none can be fitted for a fold.

    Args:
        probability: shape (n_pairs,); positive, query and weight too.
        positive: human labels.
        query: number of each pair's query, from 0.
        seed: decides which queries share a fold.
        weight: how many pairs each stands for; None: each for itself.
    """
    queries = int(query.max(initial=-1)) + 1
    fold = np.random.default_rng(seed).permutation(queries)[query] % min(FOLDS, max(queries, 1))
    said = np.zeros(len(query), dtype=bool)
    for held in np.unique(fold):
        rest = fold != held
        found = fit_threshold(probability[rest], positive[rest], None if weight is None else weight[rest])
        if found is None:
            return float("nan")
        said[~rest] = probability[~rest] >= np.float32(found[0])
    return float(cohens_kappa(confusion(said, positive, weight)))
