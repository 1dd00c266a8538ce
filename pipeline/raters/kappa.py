"""Agreement of two raters beyond chance."""

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


def confusion(said: NDArray[np.bool_], positive: NDArray[np.bool_], weight: _Floats | None = None) -> Confusion:
    """The judge's labels against people's, both of shape (n_pairs,); counts, or sums of the pairs' weights."""
    of = [(said, positive), (said, ~positive), (~said, positive), (~said, ~positive)]
    if weight is None:
        return Confusion(*(np.asarray(np.sum(one & other)) for one, other in of))
    return Confusion(*(np.asarray(np.sum(weight[one & other])) for one, other in of))


def cohens_kappa(counts: Confusion) -> _Floats:
    """Cohen's kappa, -1 to 1 (Cohen, 1960); NaN where both say the same of every pair, or there is none."""
    hits, false, missed, rest = (np.asarray(count, dtype=np.float64) for count in counts)
    rows = np.stack([np.stack([hits, missed], -1), np.stack([false, rest], -1)], -2)
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
    seen, expected = ((one * cost).sum(axis=(-2, -1)) for one in (table, by_chance))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - seen * table.sum(axis=(-2, -1)) / expected)


def quadratic(values: _Floats) -> _Floats:
    """The squared distance of each two values, shape (n_values, n_values)."""
    return np.asarray((values[:, None] - values[None, :]) ** 2, np.float64)
