"""One-day-ahead forecasts of many short daily series: local level, linear trend and weekday effects.

Each series is a weighted ridge regression on an intercept, the time in weeks and the weekday, i.e. the posterior mean
of a Gaussian model in which trend and weekday effects have a prior around zero. Weights halve every `HALF_LIFE_DAYS`,
and residuals have t-weights (`ROBUST_DF`), so a single garbage day moves no level. Until a weekday has been observed,
the prior of its effect widens the forecast instead of failing the day.

Sources: West and Harrison, Bayesian Forecasting and Dynamic Models, chapter 6 (discounting); Lange, Little and Taylor
1989, Robust Statistical Modeling Using the t Distribution (weights).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Doubles

HALF_LIFE_DAYS = 21.0
"""Age at which a day counts half: shorter follows seasons faster, longer knows weekdays better."""
ROBUST_DF, ITERATIONS = 4.0, 4
"""Degrees of freedom of the t-weights, and iterations of reweighting."""
PRIOR_DAYS = 5.0
"""Days that the prior spread counts for, on each side of the forecast."""
MAX_SQUARED_RESIDUAL, MAX_SQUARED_TAIL = 4.0, 36.0
"""Limits of a day's squared standardized residual in the estimate of the spread from all days, and in the one of a
single side, which counts if it is larger: campaigns widen the upper side and leave the lower one sharp.
"""
MIN_TAIL_RATIO = 1.5
"""A side counts on its own if its variance exceeds the one of all days by this factor, more than by chance."""
MIN_SPREAD_RATIO = 0.15
"""Lower limit of the estimated variance as a multiple of the prior one."""

FLAT_PRECISION = 1e-6
"""Precision of the intercept's prior, which leaves it to the data."""
MIN_WEEKDAY_RATIO = 0.1
"""Lower limit of the estimated standard deviation of weekday effects as a multiple of the prior one."""


@dataclass(frozen=True)
class DailySeries:
    """Past values of many series and what is known about them; the day before today comes first.

    Attributes:
        values: shape (n_series, n_days); NaN where there is none.
        is_fitted: values that level, trend and weekday effects are fitted to, same shape.
        is_in_tail: values that count for the spread of their side, same shape.
        variances: prior variance of each value around its forecast, same shape.
        variance_today: prior variance of today's value, shape (n_series,).
        by_chance_today: the part of it that is due to chance, which stays even if other days varied less.
        trend_std: prior standard deviation of the change per week, shape (n_series,).
        weekday_std: prior standard deviation of a weekday's effect, shape (n_series,).
    """

    values: Doubles
    is_fitted: NDArray[np.bool_]
    is_in_tail: NDArray[np.bool_]
    variances: Doubles
    variance_today: Doubles
    by_chance_today: Doubles
    trend_std: Doubles
    weekday_std: Doubles


@dataclass(frozen=True)
class Forecast:
    """Forecasts of today and leave-one-out residuals of the past days.

    Attributes:
        expected: forecast of each series, shape (n_series,).
        std_low, std_high: standard deviation of today's value around it, below and above, shape (n_series,).
        df_low, df_high: degrees of freedom of these estimates, shape (n_series,).
        past_z: leave-one-out residuals of past days in standard deviations of their side, shape (n_series, n_days);
            NaN where there is no value.
        n_days: number of past values that each series is fitted to, shape (n_series,).
    """

    expected: Doubles
    std_low: Doubles
    std_high: Doubles
    df_low: Doubles
    df_high: Doubles
    past_z: Doubles
    n_days: Doubles

    def standardize(self, deviation: Doubles) -> Doubles:
        """Deviations from the forecast in standard deviations of their side, shape (n_series,)."""
        z: Doubles = deviation / np.where(deviation < 0, self.std_low, self.std_high)
        return z

    def df(self, deviation: Doubles) -> Doubles:
        """Degrees of freedom of the side of each deviation, shape (n_series,)."""
        degrees: Doubles = np.where(deviation < 0, self.df_low, self.df_high)
        return degrees


def forecast(series: DailySeries) -> Forecast:
    """Forecast each series one day ahead."""
    age = np.arange(1, series.values.shape[1] + 1)
    design, today = _design(age), _design(np.zeros(1, np.int64))[0]
    is_known = np.isfinite(series.values)
    recency = 0.5 ** ((age - 1) / HALF_LIFE_DAYS)
    discount = recency * (is_known & series.is_fitted)
    tail_weights = recency * (is_known & series.is_in_tail)
    y = np.where(is_known, series.values, 0.0)
    robustness, weekday_std = np.ones_like(y), series.weekday_std
    for iteration in range(ITERATIONS):
        weights = discount * robustness / series.variances
        coefficients, covariance = _ridge(design, y, weights, series.trend_std, weekday_std)
        if iteration == 1:
            weekday_std = _weekday_std(coefficients, covariance, discount @ design[:, 2:], weekday_std)
        residuals = y - coefficients @ design.T
        leverage = weights * np.einsum("di,sij,dj->sd", design, covariance, design)
        squared = residuals**2 / (series.variances * np.maximum(1 - leverage, 0.05))
        ratio_low, df_low = _spread_ratio(squared, discount, tail_weights * (residuals < 0))
        ratio_high, df_high = _spread_ratio(squared, discount, tail_weights * (residuals >= 0))
        ratio = np.where(residuals < 0, ratio_low[:, None], ratio_high[:, None])
        robustness = (ROBUST_DF + 1) / (ROBUST_DF + squared / ratio)
    variance = series.variance_today + np.einsum("i,sij,j->s", today, covariance, today)
    return Forecast(
        coefficients @ today,
        np.sqrt(np.maximum(ratio_low * variance, series.by_chance_today)),
        np.sqrt(np.maximum(ratio_high * variance, series.by_chance_today)),
        df_low,
        df_high,
        np.where(is_known, np.sign(residuals) * np.sqrt(squared / ratio), np.nan),
        (is_known & series.is_fitted).sum(axis=1).astype(float),
    )


def _design(age: NDArray[np.int64]) -> Doubles:
    """Intercept, time in weeks, and indicators of the weekday; the weekday of today is the first of them."""
    weekdays = np.eye(7)[age % 7]
    design: Doubles = np.concatenate([np.ones((len(age), 1)), -age[:, None] / 7, weekdays], axis=1)
    return design


def _ridge(
    design: Doubles, y: Doubles, weights: Doubles, trend_std: Doubles, weekday_std: Doubles
) -> tuple[Doubles, Doubles]:
    """Coefficients and their posterior covariance, shapes (n_series, n) and (n_series, n, n)."""
    flat = np.full((len(y), 1), FLAT_PRECISION)
    weekdays = np.repeat(weekday_std[:, None] ** -2.0, 7, axis=1)
    precision = np.concatenate([flat, trend_std[:, None] ** -2.0, weekdays], axis=1)
    prior = precision[:, :, None] * np.eye(precision.shape[1])
    covariance = np.linalg.inv(np.einsum("di,sd,dj->sij", design, weights, design) + prior)
    return np.einsum("sij,dj,sd->si", covariance, design, weights * y), covariance


def _weekday_std(coefficients: Doubles, covariance: Doubles, n_observed: Doubles, prior_std: Doubles) -> Doubles:
    """Standard deviation of a series' weekday effects (empirical Bayes); the prior one until all have been observed.

    Without this, a weekday's level in a log without weekday effects would be the noise of its few days.
    """
    effects = coefficients[:, 2:]
    variances = covariance[:, range(2, 9), range(2, 9)]
    centered = effects - effects.mean(axis=1, keepdims=True)
    excess = (centered**2).sum(axis=1) / 6 - variances.mean(axis=1)
    estimate = np.sqrt(np.maximum(excess, (MIN_WEEKDAY_RATIO * prior_std) ** 2))
    result: Doubles = np.where((n_observed > 0.5).all(axis=1), np.minimum(estimate, prior_std), prior_std)
    return result


def _spread_ratio(squared: Doubles, discount: Doubles, tail_weights: Doubles) -> tuple[Doubles, Doubles]:
    """Variance of one side as a multiple of the prior variance, and its degrees of freedom."""
    ratio, n = _mean_ratio(squared, discount, MAX_SQUARED_RESIDUAL)
    tail_ratio, n_tail = _mean_ratio(squared, tail_weights, MAX_SQUARED_TAIL)
    has_tail = tail_ratio > MIN_TAIL_RATIO * ratio
    combined = np.maximum(np.where(has_tail, tail_ratio, ratio), MIN_SPREAD_RATIO)
    return combined, PRIOR_DAYS + np.where(has_tail, n_tail, n)


def _mean_ratio(squared: Doubles, weights: Doubles, limit: float) -> tuple[Doubles, Doubles]:
    """Weighted mean of the squared residuals with the prior, and the sum of the weights."""
    n = weights.sum(axis=1)
    total = (weights * np.minimum(squared, limit)).sum(axis=1)
    return (PRIOR_DAYS + total) / (PRIOR_DAYS + n), n
