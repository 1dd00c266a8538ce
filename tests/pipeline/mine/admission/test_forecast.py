"""Forecasts of daily series: weekdays, trend, robustness, and the spread of each side."""

import numpy as np
import pytest

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.mine.admission.forecast import DailySeries, Forecast, forecast

AGE = np.arange(1, 43)
CHANCE = np.random.default_rng(7)
NOISE = CHANCE.normal(0, 0.05, len(AGE))


def forecast_one(values: Doubles, is_fitted: Doubles | None = None, is_in_tail: Doubles | None = None) -> Forecast:
    """Forecast of one series of logarithms of counts, the day before first."""
    everything = np.ones((1, len(values)), bool)
    return forecast(
        DailySeries(
            values[None],
            everything if is_fitted is None else is_fitted[None].astype(bool),
            everything if is_in_tail is None else is_in_tail[None].astype(bool),
            np.full((1, len(values)), 0.01),
            np.array([0.01]),
            np.array([0.0001]),
            np.array([0.2]),
            np.array([1.0]),
        )
    )


def test_a_level_is_forecast_within_its_noise() -> None:
    result = forecast_one(7 + NOISE)
    assert result.expected[0] == pytest.approx(7, abs=0.06)
    assert 0.03 < result.std_low[0] < 0.1
    assert result.n_days[0] == len(AGE)


def test_a_trend_is_continued() -> None:
    assert forecast_one(7 - 0.03 * AGE + NOISE).expected[0] == pytest.approx(7, abs=0.08)


def test_a_weekday_has_its_own_level() -> None:
    weekend = np.isin(AGE % 7, (0, 6))
    assert forecast_one(np.where(weekend, 4.8, 7.0) + NOISE).expected[0] == pytest.approx(4.8, abs=0.15)
    assert forecast_one(np.where(AGE % 7 == 3, 4.8, 7.0) + NOISE).expected[0] == pytest.approx(7.0, abs=0.1)


def test_until_a_weekday_was_observed_it_may_have_any_level() -> None:
    week = forecast_one(np.full(7, 7.0))
    days = forecast_one(np.full(5, 7.0))
    assert days.std_low[0] > 3 * week.std_low[0]
    assert abs(days.standardize(np.array([-2.2]))[0]) < 3


def test_one_garbage_day_moves_no_level_and_sharpens_nothing() -> None:
    values = 7 + NOISE
    values[2] += 3
    result = forecast_one(values)
    assert result.expected[0] == pytest.approx(7, abs=0.1)
    assert result.past_z[0, 2] > 4
    assert result.std_low[0] < 1.3 * forecast_one(7 + NOISE).std_low[0]


def test_campaigns_widen_the_upper_side_alone() -> None:
    values = 7 + NOISE
    values[[4, 11, 17, 30]] += 0.7
    result = forecast_one(values)
    assert result.std_high[0] > 1.8 * result.std_low[0]
    assert result.standardize(np.array([0.7]))[0] < abs(result.standardize(np.array([-0.7]))[0])
    assert result.df(np.array([0.7]))[0] < result.df(np.array([-0.7]))[0]


def test_days_that_are_not_fitted_leave_the_level_and_may_widen_a_side() -> None:
    values = 7 + NOISE
    values[[4, 11, 17]] += 2
    is_held = np.zeros(len(AGE))
    is_held[[4, 11, 17]] = 1
    ignored = forecast_one(values, 1 - is_held, 1 - is_held)
    widened = forecast_one(values, 1 - is_held, np.ones(len(AGE)))
    assert ignored.expected[0] == pytest.approx(7, abs=0.06)
    assert widened.std_high[0] > 1.5 * ignored.std_high[0]
    assert widened.std_low[0] == pytest.approx(ignored.std_low[0], rel=0.01)


def test_chance_bounds_the_standard_deviation() -> None:
    series = DailySeries(
        np.full((1, 42), 7.0),
        np.ones((1, 42), bool),
        np.ones((1, 42), bool),
        np.full((1, 42), 0.01),
        np.array([0.01]),
        np.array([0.25]),
        np.array([0.2]),
        np.array([1.0]),
    )
    assert forecast(series).std_low[0] == 0.5
