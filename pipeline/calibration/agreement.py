"""Agreement of two raters beyond chance, and the threshold at which it is highest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FOLDS = 5
_DECIMALS = 6
"""Of a fitted threshold: no more than a judge_id shows."""

_Floats = NDArray[np.float64]


class Confusion(NamedTuple):
    """Counts of pairs; each a number, or an array with one number for each threshold."""

    true_positives: NDArray[np.int64]
    false_positives: NDArray[np.int64]
    false_negatives: NDArray[np.int64]
    true_negatives: NDArray[np.int64]


def confusion(said: NDArray[np.bool_], positive: NDArray[np.bool_]) -> Confusion:
    """Counts of the judge's labels against people's, both of shape (n_pairs,)."""
    of = [(said, positive), (said, ~positive), (~said, positive), (~said, ~positive)]
    return Confusion(*(np.sum(one & other) for one, other in of))


def cohens_kappa(counts: Confusion) -> _Floats:
    """Cohen's kappa, -1 to 1 (Cohen, 1960); NaN where both say the same of every pair, or there is none."""
    hits, false, missed, rest = (np.asarray(count, dtype=np.float64) for count in counts)
    n = hits + false + missed + rest
    by_chance = (hits + false) * (hits + missed) + (missed + rest) * (false + rest)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(((hits + rest) * n - by_chance) / (n * n - by_chance))


def fit_threshold(probability: NDArray[np.float32], positive: NDArray[np.bool_]) -> tuple[float, float] | None:
    """The threshold at which labels by probability have the highest kappa with human ones, and that kappa.

    Tried is the middle between every two neighbouring probabilities; of equally good ones it is that nearest to one
    half, the lower one of two. None where none agrees better than chance.

    Args:
        probability: shape (n_pairs,), none missing.
        positive: human labels, shape (n_pairs,).
    """
    order = np.argsort(probability, kind="stable")
    ascending = probability[order]
    values = np.unique(ascending).astype(np.float64)
    cuts = np.unique(((values[1:] + values[:-1]) / 2).round(_DECIMALS))
    kappas = cohens_kappa(_at_each(cuts, ascending, positive[order]))
    if not (kappas > 0).any():
        return None
    best = np.flatnonzero(kappas == np.nanmax(kappas))
    chosen = best[np.argmin(np.abs(cuts[best] - 0.5))]
    return float(cuts[chosen]), float(kappas[chosen])


def _at_each(cuts: _Floats, ascending: NDArray[np.float32], positive: NDArray[np.bool_]) -> Confusion:
    below = np.searchsorted(ascending, cuts.astype(np.float32))
    missed = np.concatenate([[0], np.cumsum(positive)])[below]
    hits = positive.sum() - missed
    return Confusion(hits, len(ascending) - below - hits, missed, below - missed)


def cross_validated_kappa(
    probability: NDArray[np.float32], positive: NDArray[np.bool_], query: NDArray[np.int64], seed: int
) -> float:
    """Kappa of labels whose threshold was fitted on other queries: what a fitted threshold does on new ones.

    Five folds of whole queries (fewer queries: as many folds as queries); NaN where none can be fitted for a fold.

    Args:
        probability: shape (n_pairs,); positive and query too.
        positive: human labels.
        query: number of each pair's query, from 0.
        seed: decides which queries share a fold.
    """
    queries = int(query.max(initial=-1)) + 1
    fold = np.random.default_rng(seed).permutation(queries)[query] % min(FOLDS, max(queries, 1))
    said = np.zeros(len(query), dtype=bool)
    for held in np.unique(fold):
        found = fit_threshold(probability[fold != held], positive[fold != held])
        if found is None:
            return float("nan")
        said[fold == held] = probability[fold == held] >= np.float32(found[0])
    return float(cohens_kappa(confusion(said, positive)))
