"""Intervals of what a fit predicts: its own curve with drawn noise is fitted anew, again and again.

The sizes are chosen and not drawn, so the points are not drawn either, but the noise on their logarithms is: normal, of
the residuals' spread, which is drawn itself (σ² = s²(n − k)/χ²), since few points know it badly. Dealing out the
residuals themselves held 79 of 100 new points beyond the sizes where 95 were asked for. A new point's own noise is
included. Noise counts as independent, although samples of one seed lie in one another.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from darklode.pipeline.base.bootstrap import ENDS
from darklode.pipeline.laws.fitting import Fit, fit
from darklode.pipeline.laws.forms import Floats, Points


def refits(found: Fit, resamples: int, seed: int) -> Iterator[tuple[Fit, float]]:
    """The fit to each resample, and the noise of one new point, as a logarithm.

    Args:
        found: to more points than it has constants.
        resamples: how many.
        seed: of the draws.
    """
    n = len(found.points)
    draws = np.random.default_rng([seed, n])
    free = n - found.form.count
    spread = np.sqrt((found.residuals**2).sum() / free)
    curve = found.predict(found.points)
    for _ in range(resamples):
        mine = spread * np.sqrt(free / draws.chisquare(free))
        drawn = curve * np.exp(draws.normal(0, mine, n))
        yield fit(found.form, found.points.with_values(drawn), found.at[None]), float(draws.normal(0, mine))


def band(found: Fit, places: Points, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """Ends of the 95 % interval of a new point at each place; NaN where there are too few points."""
    if len(found.points) <= found.form.count:
        return np.full(len(places), np.nan), np.full(len(places), np.nan)
    drawn = [one.predict(places) * np.exp(noise) for one, noise in refits(found, resamples, seed)]
    # Between 2.5 % and 97.5 % of 100 draws by the common rule lie 93 % of new ones; by this one 95 %, however few.
    low, high = np.percentile(drawn, ENDS, axis=0, method="weibull")
    return low, high
