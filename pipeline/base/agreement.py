"""Agreement of annotators: Cohen's kappa, Krippendorff's alpha, and the threshold at which a judge agrees best with
people.

Judges and people are annotators alike: calibration, panels and human validation use the same measures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Doubles


class Confusion(NamedTuple):
    """Confusion counts or weights of judge labels against human labels; numbers, or arrays of one shape."""

    true_positives: NDArray[Any]
    false_positives: NDArray[Any]
    false_negatives: NDArray[Any]
    true_negatives: NDArray[Any]


def confusion(predicted: NDArray[np.bool_], positive: NDArray[np.bool_], weight: Doubles | None = None) -> Confusion:
    """Confusion of predicted and human labels, both of shape (n_pairs,); counts, or sums of weights."""
    groups = [(predicted, positive), (predicted, ~positive), (~predicted, positive), (~predicted, ~positive)]
    if weight is None:
        return Confusion(*(np.asarray(np.sum(group & other)) for group, other in groups))
    return Confusion(*(np.asarray(np.sum(weight[group & other])) for group, other in groups))


def cohens_kappa(counts: Confusion) -> Doubles:
    """Cohen's kappa, −1 to 1 (Cohen, 1960); NaN if both always give the same label, or there is no pair.

    Vectorized over arrays of counts, as bootstrap resamples need; scikit-learn's takes one pair of label lists.
    """
    hits, false, missed, true_negatives = (np.asarray(count, dtype=np.float64) for count in counts)
    rows = np.stack([np.stack([hits, missed], -1), np.stack([false, true_negatives], -1)], -2)
    return kappa_of_table(rows, 1 - np.eye(2))


def confusion_by_query(
    query: NDArray[np.int64],
    predicted: NDArray[np.bool_],
    positive: NDArray[np.bool_],
    weight: Doubles | None = None,
    n_queries: int | None = None,
) -> Doubles:
    """Confusion counts of each query, in the order of `Confusion`, shape (n_queries, 4), to be resampled by query.

    Args:
        query: query index of each pair, from 0, shape (n_pairs,), as predicted, positive and weight.
        predicted: the judge's labels.
        positive: labels to compare with.
        weight: number of pairs each stands for; None: 1.
        n_queries: number of queries; None: up to the highest index.
    """
    counts = np.zeros((int(query.max(initial=-1)) + 1 if n_queries is None else n_queries, 4))
    np.add.at(counts, (query, 2 * ~predicted + ~positive), 1.0 if weight is None else weight)
    return counts


def kappas(counts: Doubles) -> Doubles:
    """Cohen's kappa of several judges from their confusion counts side by side, shape (..., 4 n) to (..., n)."""
    groups = counts.reshape(*counts.shape[:-1], -1, 4)
    return cohens_kappa(Confusion(*np.moveaxis(groups, -1, 0)))


def kappa_of_table(table: Doubles, cost: Doubles) -> Doubles:
    """Weighted kappa of two annotators: 1 − observed cost / cost expected by chance (Cohen, 1968).

    Args:
        table: contingency table, shape (..., n_values, n_values).
        cost: cost of each pair of values, 0 on the diagonal, shape (n_values, n_values): 1 for Cohen's kappa, the
            squared distance for quadratic weights.

    Returns:
        Shape (...); NaN if chance alone agrees.
    """
    by_chance = table.sum(axis=-1)[..., :, None] * table.sum(axis=-2)[..., None, :]
    observed, expected = ((counts * cost).sum(axis=(-2, -1)) for counts in (table, by_chance))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - observed * table.sum(axis=(-2, -1)) / expected)


def quadratic(values: Doubles) -> Doubles:
    """Squared distances of values, shape (n_values, n_values)."""
    return np.asarray((values[:, None] - values[None, :]) ** 2, np.float64)


def alpha(yes: NDArray[Any], no: NDArray[Any], pairs: NDArray[Any]) -> Doubles:
    """Krippendorff's alpha for two labels: 1 is agreement, 0 is chance, NaN if only one label occurs.

    Source: Krippendorff, 2004, chapter 11. Pairs with missing annotators count with the labels they have.

    Args:
        yes: votes for relevant per kind of pair, shape (n_kinds,).
        no: votes against, same shape; yes + no is at least 2.
        pairs: number of pairs with these votes, shape (..., n_kinds).

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
"""Minimum number of relevant and of not relevant labelled pairs with a probability; with fewer, nothing is fitted."""

FOLDS = 5
"""Number of folds of cross-validation."""
DECIMALS = 6
"""Decimals of a fitted threshold, as shown in a judge_id."""

ThresholdFit = Callable[[NDArray[np.float32], NDArray[np.bool_], Doubles | None], tuple[float, float] | None]
"""Fits a threshold to probabilities, human labels and weights (None: 1), each of shape (n_pairs,): threshold and kappa,
or None."""


def has_enough_labels(positive: NDArray[np.bool_]) -> bool:
    """Whether the human labels, shape (n_pairs,), suffice for a reliability curve and a threshold."""
    yes = int(positive.sum())
    return len(positive) >= MIN_LABELS and min(yes, len(positive) - yes) >= MIN_OF_EACH


def fit_threshold(
    probability: NDArray[np.float32], positive: NDArray[np.bool_], weight: Doubles | None = None
) -> tuple[float, float] | None:
    """The probability threshold with the highest kappa against human labels, and that kappa.

    Candidates are the midpoints between neighboring probabilities; ties go to the one nearest to 0.5, then to the
    lower. None if no threshold agrees better than chance.

    Args:
        probability: shape (n_pairs,), without NaN.
        positive: human labels, shape (n_pairs,).
        weight: number of pairs each stands for, shape (n_pairs,); None: 1.
    """
    order = np.argsort(probability, kind="stable")
    ascending = probability[order]
    values = np.unique(ascending).astype(np.float64)
    cuts = np.unique(((values[1:] + values[:-1]) / 2).round(DECIMALS))
    weights = np.ones(len(order)) if weight is None else weight[order]
    kappas = cohens_kappa(_at_each(cuts, ascending, positive[order], weights))
    if not (kappas > 0).any():
        return None
    best_cuts = np.flatnonzero(kappas == np.nanmax(kappas))
    chosen = best_cuts[np.argmin(np.abs(cuts[best_cuts] - 0.5))]
    return float(cuts[chosen]), float(kappas[chosen])


def _at_each(cuts: Doubles, ascending: NDArray[np.float32], positive: NDArray[np.bool_], weight: Doubles) -> Confusion:
    below = np.searchsorted(ascending, cuts.astype(np.float32))
    yes, no = (np.concatenate([[0.0], np.cumsum(weight * own)]) for own in (positive, ~positive))
    return Confusion(yes[-1] - yes[below], no[-1] - no[below], yes[below], no[below])


def folds(query: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Fold of each pair, shape (n_pairs,): five folds of whole queries, fewer if there are fewer queries.

    Args:
        query: query index of each pair, from 0, shape (n_pairs,).
        seed: assigns queries to folds.
    """
    queries = int(query.max(initial=-1)) + 1
    return np.asarray(np.random.default_rng(seed).permutation(queries)[query] % min(FOLDS, max(queries, 1)))


def cross_validated_kappa(
    probability: NDArray[np.float32],
    positive: NDArray[np.bool_],
    query: NDArray[np.int64],
    seed: int,
    weight: Doubles | None = None,
    fit: ThresholdFit | None = None,
) -> float:
    """Kappa with thresholds fitted on other queries: an estimate for new queries; NaN if a fold cannot be fitted.

    Args:
        probability: shape (n_pairs,), as positive, query and weight.
        positive: human labels.
        query: query index of each pair, from 0.
        seed: assigns queries to folds.
        weight: number of pairs each stands for; None: 1.
        fit: fits a threshold; None: `fit_threshold`.
    """
    predicted = cross_validated_labels(probability, positive, query, seed, weight, fit)
    return float("nan") if predicted is None else float(cohens_kappa(confusion(predicted, positive, weight)))


def cross_validated_labels(
    probability: NDArray[np.float32],
    positive: NDArray[np.bool_],
    query: NDArray[np.int64],
    seed: int,
    weight: Doubles | None = None,
    fit: ThresholdFit | None = None,
) -> NDArray[np.bool_] | None:
    """Labels by thresholds fitted on other queries, shape (n_pairs,); None if a fold cannot be fitted.

    Five folds of whole queries, or as many as there are queries. Arguments as of `cross_validated_kappa`.
    """
    fold = folds(query, seed)
    predicted = np.zeros(len(query), dtype=bool)
    for held_out_fold in np.unique(fold):
        in_training = fold != held_out_fold
        training_weight = None if weight is None else weight[in_training]
        threshold = (fit or fit_threshold)(probability[in_training], positive[in_training], training_weight)
        if threshold is None:
            return None
        predicted[~in_training] = probability[~in_training] >= np.float32(threshold[0])
    return predicted
