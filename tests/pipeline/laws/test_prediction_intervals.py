"""Intervals of predictions: they hold new points, widen beyond the sizes, and hang on the seed alone."""

import numpy as np
from scipy.stats import kstest, t

from darklode.pipeline.laws.curve_fitting import fit
from darklode.pipeline.laws.functional_forms import CONSTANT, SIZE, LawPoints
from darklode.pipeline.laws.prediction_intervals import confidence_band, refit_samples

SIZES = np.repeat(2.0 ** np.arange(7, 13), 4)


def law(sizes: np.ndarray) -> np.ndarray:
    return np.asarray((600 / sizes) ** 0.4 + 0.8)


def points(sizes: np.ndarray, seed: int) -> LawPoints:
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.01, len(sizes)))
    return LawPoints(sizes, np.full(len(sizes), np.nan), law(sizes) * noise)


def test_most_new_points_lie_within() -> None:
    found = fit(SIZE, points(SIZES, 0))
    low, high = confidence_band(found, found.points, 60, 0)
    new = points(SIZES, 1).value
    assert ((low <= new) & (new <= high)).mean() > 0.85
    assert (np.log(high / low) < 0.15).all()  # six deviations of .01, and what the fit does not know


def test_of_39_draws_the_ends_are_the_least_and_the_greatest_which_one_more_of_40_lies_beyond() -> None:
    found = fit(SIZE, points(SIZES, 0))
    drawn = np.array([one.predict(found.points) * np.exp(noise) for one, noise in refit_samples(found, 39, 0)])
    low, high = confidence_band(found, found.points, 39, 0)
    assert np.allclose(low, drawn.min(axis=0), rtol=1e-12)
    assert np.allclose(high, drawn.max(axis=0), rtol=1e-12)


def test_they_widen_where_nothing_was_measured() -> None:
    found = fit(SIZE, points(SIZES, 0))
    places = found.points.with_sizes(np.array([1024.0, 1 << 18]), np.full(2, np.nan))
    low, high = confidence_band(found, places, 40, 0)
    width = np.log(high / low)
    assert width[1] > 1.5 * width[0]
    assert np.array_equal(confidence_band(found, places, 40, 0)[0], low)


def test_as_many_points_as_constants_have_none() -> None:
    few = points(SIZES[::8][:3], 0)
    low, high = confidence_band(fit(SIZE, few), few, 10, 0)
    assert np.isnan(low).all()
    assert np.isnan(high).all()


def test_noise_is_drawn_from_students_distribution_of_few_points() -> None:
    """Normal noise of a spread that n − k residuals tell little of is t-distributed with n − k degrees of freedom."""
    values = np.array([0.99, 1.0, 1.02, 1.03])
    found = fit(CONSTANT, LawPoints(np.arange(1.0, 5.0), np.full(4, np.nan), values))
    spread = np.sqrt((np.log(values / found.constants["delta"]) ** 2).sum() / 3)
    noise = np.array([drawn for _, drawn in refit_samples(found, 3000, 0)])
    assert kstest(noise / spread, t(3).cdf).pvalue > 0.01
