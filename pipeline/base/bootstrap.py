"""Bootstrap intervals (Efron 1979): a figure over rows that are drawn anew, as many as there are, with replacement."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ENDS = (2.5, 97.5)
"""Percentiles between which 95 % lie."""

_AT_ONCE = 50  # resamples: memory is that many times the rows


def interval(
    counts: Floats, figure: Callable[[Floats], Floats], resamples: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """95 % percentile interval of a figure of sums.

    Args:
        counts: what is summed, shape (n, n_counts).
        figure: of sums over n rows, shape (..., n_counts); what is undefined in it is NaN, and left out.
        resamples: how many, at least 1.
        seed: of the draws.

    Returns:
        The lower and the upper end, each of the shape of the figure of one sum.
    """
    low, high = np.nanpercentile(resample(counts, figure, resamples, seed), ENDS, axis=0)
    return low, high


def resample(counts: Floats, figure: Callable[[Floats], Floats], resamples: int, seed: int) -> Floats:
    """The figure in each resample, shape (resamples, …); see `interval`."""
    n, random, figures = len(counts), np.random.default_rng(seed), []
    for start in range(0, resamples, _AT_ONCE):
        weights = random.multinomial(n, np.full(n, 1 / n), size=min(_AT_ONCE, resamples - start))
        figures.append(figure(weights @ counts))
    return np.concatenate(figures)
