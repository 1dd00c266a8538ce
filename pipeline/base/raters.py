"""How far raters agree: kappa of two, alpha of many, and the threshold at which a judge agrees best with people.

Judges and people are raters alike: calibration, the agreement of a panel and human validation take their figures here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]


class Confusion(NamedTuple):
    """Pairs by what judge and people say, counted or weighed; each a number, or arrays of one shape."""

    true_positives: NDArray[Any]
    false_positives: NDArray[Any]
    false_negatives: NDArray[Any]
    true_negatives: NDArray[Any]


def confusion(predicted: NDArray[np.bool_], positive: NDArray[np.bool_], weight: _Floats | None = None) -> Confusion:
    """The judge's labels against people's, both of shape (n_pairs,); counts, or sums of the pairs' weights."""
    groups = [(predicted, positive), (predicted, ~positive), (~predicted, positive), (~predicted, ~positive)]
    if weight is None:
        return Confusion(*(np.asarray(np.sum(group & other)) for group, other in groups))
    return Confusion(*(np.asarray(np.sum(weight[group & other])) for group, other in groups))


def cohens_kappa(counts: Confusion) -> _Floats:
    """Cohen's kappa, -1 to 1 (Cohen, 1960); NaN where both say the same of every pair, or there is none."""
    hits, false, missed, true_negatives = (np.asarray(count, dtype=np.float64) for count in counts)
    rows = np.stack([np.stack([hits, missed], -1), np.stack([false, true_negatives], -1)], -2)
    return kappa_of_table(rows, 1 - np.eye(2))


def kappa_of_table(table: _Floats, cost: _Floats) -> _Floats:
    """Kappa of two raters over any values: 1 less the cost seen over that expected by chance (Cohen, 1968).

    Args:
        table: pairs by what one rater and the other say, shape (..., n_values, n_values).
        cost: of each two values, 0 for equal ones, shape (n_values, n_values): 1 for Cohen's kappa, the squared
            distance for the quadratic-weighted one.

    Returns:
        Shape (...); NaN where chance alone agrees.
    """
    by_chance = table.sum(axis=-1)[..., :, None] * table.sum(axis=-2)[..., None, :]
    observed, expected = ((counts * cost).sum(axis=(-2, -1)) for counts in (table, by_chance))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - observed * table.sum(axis=(-2, -1)) / expected)


def quadratic(values: _Floats) -> _Floats:
    """The squared distance of each two values, shape (n_values, n_values)."""
    return np.asarray((values[:, None] - values[None, :]) ** 2, np.float64)


def alpha(yes: NDArray[Any], no: NDArray[Any], pairs: NDArray[Any]) -> _Floats:
    """Krippendorff's alpha of two labels; 1 is agreement, 0 is chance, NaN where only one label was ever given.

    Source: Krippendorff, 2004, chapter 11. Pairs that a rater left out count with the labels they have.

    Args:
        yes: votes for relevant of a kind of pair, shape (n_kinds,); so is no.
        no: votes against; yes + no is at least 2.
        pairs: how many pairs got these votes, shape (..., n_kinds).

    Returns:
        Shape (...).
    """
    pairs = np.asarray(pairs, np.float64)
    ones, zeros = pairs @ yes, pairs @ no
    differing = pairs @ (2 * yes * no / (yes + no - 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - (ones + zeros - 1) * differing / (2 * ones * zeros))


MIN_LABELS = 100
MIN_OF_EACH = 10
"""Fewer labelled pairs with a probability, or fewer relevant or not relevant ones, and nothing is fitted."""

FOLDS = 5
_DECIMALS = 6
"""Of a fitted threshold: no more than a judge_id shows."""


def has_enough_labels(positive: NDArray[np.bool_]) -> bool:
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
    best_cuts = np.flatnonzero(kappas == np.nanmax(kappas))
    chosen = best_cuts[np.argmin(np.abs(cuts[best_cuts] - 0.5))]
    return float(cuts[chosen]), float(kappas[chosen])


def _at_each(cuts: _Floats, ascending: NDArray[np.float32], positive: NDArray[np.bool_], weight: _Floats) -> Confusion:
    below = np.searchsorted(ascending, cuts.astype(np.float32))
    yes, no = (np.concatenate([[0.0], np.cumsum(weight * own)]) for own in (positive, ~positive))
    return Confusion(yes[-1] - yes[below], no[-1] - no[below], yes[below], no[below])


def folds(query: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """The fold of each pair, shape (n_pairs,): five of whole queries, fewer where there are fewer queries.

    Args:
        query: number of each pair's query, from 0, shape (n_pairs,).
        seed: decides which queries share a fold.
    """
    queries = int(query.max(initial=-1)) + 1
    return np.asarray(np.random.default_rng(seed).permutation(queries)[query] % min(FOLDS, max(queries, 1)))


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
    fold = folds(query, seed)
    predicted = np.zeros(len(query), dtype=bool)
    for held_out_fold in np.unique(fold):
        in_training = fold != held_out_fold
        threshold = fit_threshold(
            probability[in_training], positive[in_training], None if weight is None else weight[in_training]
        )
        if threshold is None:
            return float("nan")
        predicted[~in_training] = probability[~in_training] >= np.float32(threshold[0])
    return float(cohens_kappa(confusion(predicted, positive, weight)))
