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
from darklode.pipeline.laws.forms import Floats, LawPoints


def refit_samples(full_fit: Fit, resamples: int, seed: int) -> Iterator[tuple[Fit, float]]:
    """The fit to each resample, and the noise of one new point, as a logarithm.

    Args:
        full_fit: to more points than it has constants.
        resamples: how many.
        seed: of the draws.
    """
    n = len(full_fit.points)
    draws = np.random.default_rng([seed, n])
    free = n - full_fit.form.count
    spread = np.sqrt((full_fit.residuals**2).sum() / free)
    curve = full_fit.predict(full_fit.points)
    for _ in range(resamples):
        sample_spread = spread * np.sqrt(free / draws.chisquare(free))
        drawn = curve * np.exp(draws.normal(0, sample_spread, n))
        yield (
            fit(full_fit.form, full_fit.points.with_values(drawn), full_fit.at[None]),
            float(draws.normal(0, sample_spread)),
        )


def confidence_band(full_fit: Fit, places: LawPoints, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """Ends of the 95 % interval of a new point at each place; NaN where there are too few points."""
    if len(full_fit.points) <= full_fit.form.count:
        return np.full(len(places), np.nan), np.full(len(places), np.nan)
    drawn = [refit.predict(places) * np.exp(noise) for refit, noise in refit_samples(full_fit, resamples, seed)]
    # Between 2.5 % and 97.5 % of 100 draws by the common rule lie 93 % of new ones; by this one 95 %, however few.
    low, high = np.percentile(drawn, ENDS, axis=0, method="weibull")
    return low, high
