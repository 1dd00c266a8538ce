"""Bootstrap percentile intervals (Efron 1979)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Doubles as Floats

ENDS = (2.5, 97.5)
"""Percentiles of a 95 % interval."""

_AT_ONCE = 50  # resamples: memory is that many times the rows


def interval(
    counts: Floats, figure: Callable[[Floats], Floats], resamples: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """95 % percentile interval of a statistic of column sums.

    Args:
        counts: shape (n, n_counts).
        figure: maps sums, shape (..., n_counts), to values; undefined values are NaN and ignored.
        resamples: at least 1.
        seed: of the resampling.

    Returns:
        Lower and upper end, each in the shape of the statistic of one sum.
    """
    low, high = np.nanpercentile(resample(counts, figure, resamples, seed), ENDS, axis=0)
    return low, high


def resample(counts: Floats, figure: Callable[[Floats], Floats], resamples: int, seed: int) -> Floats:
    """The statistic of each resample, shape (resamples, ...)."""
    n, random, figures = len(counts), np.random.default_rng(seed), []
    for start in range(0, resamples, _AT_ONCE):
        weights = random.multinomial(n, np.full(n, 1 / n), size=min(_AT_ONCE, resamples - start))
        figures.append(figure(weights @ counts))
    return np.concatenate(figures)
