"""Bootstrap intervals over queries, of any figure that is a function of sums over queries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pipeline.validation.interval import ENDS, Figure

_AT_ONCE = 50
_Floats = NDArray[np.float64]


def bootstrap(counts: _Floats, figure: Callable[[_Floats], _Floats], resamples: int, seed: int) -> Figure:
    """The figure of all queries, with its 95 % percentile interval over resamples of the queries.

    Args:
        counts: what is summed, shape (n_queries, n_counts).
        figure: of sums of shape (..., n_counts), shape (...); NaN where it is undefined.
        resamples: how many.
        seed: of the resampling.
    """
    value = float(figure(counts.sum(axis=0)))
    n, random, found = len(counts), np.random.default_rng(seed), []
    if n < 2 or not np.isfinite(value):
        return Figure(value, float("nan"), float("nan"))
    for start in range(0, resamples, _AT_ONCE):
        weights = random.multinomial(n, np.full(n, 1 / n), size=min(_AT_ONCE, resamples - start))
        found.append(figure(weights @ counts))
    values = np.concatenate(found)
    low, high = np.percentile(values[np.isfinite(values)], ENDS)
    return Figure(value, float(low), float(high))
