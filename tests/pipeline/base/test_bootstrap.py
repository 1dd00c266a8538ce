"""Bootstrap intervals do what intervals should."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from darklode.pipeline.base.bootstrap import interval

Floats = np.ndarray[Any, np.dtype[np.float64]]


def shares(n: int) -> Floats:
    return np.random.default_rng(7).random((n, 3)) ** np.array([1, 2, 0.5])


def of_means(values: Floats, resamples: int, seed: int) -> tuple[Floats, Floats]:
    return interval(values, lambda sums: sums / len(values), resamples, seed)


def test_intervals_hold_the_mean_and_narrow_with_more_rows() -> None:
    widths = []
    for n in (25, 400, 6_400):
        values = shares(n)
        low, high = of_means(values, 400, seed=1)
        assert (low < values.mean(axis=0)).all()
        assert (values.mean(axis=0) < high).all()
        widths.append(high - low)
    for wide, narrow in pairwise(widths):
        assert narrow == pytest.approx(wide / 4, rel=0.35)


def test_intervals_are_those_of_the_normal_distribution_when_there_are_many() -> None:
    values = shares(2_000)
    low, high = of_means(values, 2_000, seed=3)
    error = 1.96 * values.std(axis=0) / 2_000**0.5
    assert low == pytest.approx(values.mean(axis=0) - error, abs=error.max() * 0.1)
    assert high == pytest.approx(values.mean(axis=0) + error, abs=error.max() * 0.1)


def test_intervals_are_reproducible_and_seeded() -> None:
    first, again, other = (of_means(shares(50), 130, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("resamples", [1, 49, 50, 51])
def test_what_does_not_vary_has_no_width(resamples: int) -> None:
    low, high = of_means(np.full((9, 2), 0.25), resamples, seed=1)
    assert low == pytest.approx([0.25] * 2)
    assert high == pytest.approx([0.25] * 2)


def test_a_figure_of_several_sums_is_that_of_the_drawn_rows() -> None:
    """A ratio of two columns: what no row varies in stays where it is."""
    counts = np.stack([np.arange(1.0, 31), 2 * np.arange(1.0, 31)], axis=1)
    low, high = interval(counts, lambda sums: sums[..., 0] / sums[..., 1], 60, seed=1)
    assert (low, high) == (0.5, 0.5)


def test_resamples_in_which_the_figure_is_undefined_are_left_out() -> None:
    counts = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    with np.errstate(invalid="ignore"):
        low, high = interval(counts, lambda sums: sums[..., 0] / sums[..., 1], 200, seed=1)
    assert (low, high) == (1.0, 1.0)
