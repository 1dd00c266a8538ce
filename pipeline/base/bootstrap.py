"""Bootstrap percentile intervals (Efron 1979).

Not scipy.stats.bootstrap: its draws differ, which would change every published interval, and it saves no lines.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.finite import finite_or_none
from darklode.pipeline.base.types import Doubles

INTERVAL_PERCENTILES = (2.5, 97.5)
"""Percentiles of a 95 % interval."""

_RESAMPLES_AT_ONCE = 50  # resamples drawn together; memory grows with this number times the number of rows


@dataclass(frozen=True)
class IntervalEstimate:
    """An estimate with its 95 % interval; NaN where it is unknown."""

    value: float
    low: float
    high: float

    def columns(self, name: str) -> dict[str, float | None]:
        """Convert to the columns `name`, `name_low` and `name_high`; null if unknown."""
        values = {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}
        return {column: finite_or_none(value) for column, value in values.items()}


def interval(
    counts: Doubles, figure: Callable[[Doubles], Doubles], resamples: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """95 % percentile interval of a statistic of column sums.

    Args:
        counts: counts of each observation, shape (n, n_counts).
        figure: maps sums, shape (..., n_counts), to values; undefined values are NaN and ignored.
        resamples: number of resamples, at least 1.
        seed: seed of the resampling.

    Returns:
        Lower and upper end, each in the shape of the statistic of one sum.
    """
    low, high = np.nanpercentile(resample(counts, figure, resamples, seed), INTERVAL_PERCENTILES, axis=0)
    return low, high


def resample(counts: Doubles, figure: Callable[[Doubles], Doubles], resamples: int, seed: int) -> Doubles:
    """The statistic of each resample, shape (resamples, ...)."""
    n, random, figures = len(counts), np.random.default_rng(seed), []
    for start in range(0, resamples, _RESAMPLES_AT_ONCE):
        weights = random.multinomial(n, np.full(n, 1 / n), size=min(_RESAMPLES_AT_ONCE, resamples - start))
        figures.append(figure(weights @ counts))
    return np.concatenate(figures)
