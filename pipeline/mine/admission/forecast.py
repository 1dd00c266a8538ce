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

from darklode.pipeline.base.types import Doubles

HALF_LIFE_DAYS = 21.0
"""Age at which a day counts half: shorter follows seasons faster, longer knows weekdays better."""
ROBUST_DF, ITERATIONS = 4.0, 4
"""Degrees of freedom of the t-weights, and iterations of reweighting."""
PRIOR_DAYS = 5.0
"""Days that the prior spread counts for, on each side of the forecast."""
MAX_SQUARED_RESIDUAL = 16.0
"""Limit of a day's squared standardized residual in the estimate of the spread: campaigns widen it, one garbage day
hardly.
"""
MIN_SPREAD_RATIO = 0.15
"""Lower limit of the estimated variance as a multiple of the prior one."""


@dataclass(frozen=True)
class Forecast:
    """Forecasts of today and leave-one-out residuals of the past days.

    Attributes:
        expected: forecast of each series, shape (n_series,).
        std_low, std_high: standard deviation of today's value around it, below and above, shape (n_series,).
        df_low, df_high: degrees of freedom of these estimates, shape (n_series,).
        past_z: leave-one-out residuals of past days in standard deviations of their side, shape (n_series, n_days);
            NaN where there is no value.
        n_days: number of past values of each series, shape (n_series,).
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


def forecast(
    values: Doubles,
    variances: Doubles,
    variance_today: Doubles,
    trend_std: Doubles,
    weekday_std: Doubles,
) -> Forecast:
    """Forecast each series one day ahead.

    Args:
        values: of the days before today, the day before first, shape (n_series, n_days); NaN where there is none.
        variances: prior variance of each value around its forecast, same shape.
        variance_today: prior variance of today's value, shape (n_series,).
        trend_std: prior standard deviation of the change per week, shape (n_series,).
        weekday_std: prior standard deviation of a weekday's effect, shape (n_series,).
    """
    n_days = values.shape[1]
    age = np.arange(1, n_days + 1)
    design = _design(age)
    today = _design(np.zeros(1, int))[0]
    is_known = np.isfinite(values)
    discount = np.where(is_known, 0.5 ** ((age - 1) / HALF_LIFE_DAYS), 0.0)
    y = np.where(is_known, values, 0.0)
    precision = np.concatenate(
        [np.full((len(values), 1), 1e-6), trend_std[:, None] ** -2.0, np.repeat(weekday_std[:, None] ** -2.0, 7, 1)],
        axis=1,
    )
    robustness = np.ones_like(y)
    ratio_low = ratio_high = np.ones(len(values))
    for _ in range(ITERATIONS):
        weights = discount * robustness / variances
        covariance = np.linalg.inv(np.einsum("di,sd,dj->sij", design, weights, design) + _diagonals(precision))
        coefficients = np.einsum("sij,dj,sd->si", covariance, design, weights * y)
        residuals = y - coefficients @ design.T
        leverage = weights * np.einsum("di,sij,dj->sd", design, covariance, design)
        squared = residuals**2 / (variances * np.maximum(1 - leverage, 0.05))
        ratio_low, n_low = _spread_ratio(squared, discount * (residuals < 0))
        ratio_high, n_high = _spread_ratio(squared, discount * (residuals >= 0))
        ratio = np.where(residuals < 0, ratio_low[:, None], ratio_high[:, None])
        robustness = (ROBUST_DF + 1) / (ROBUST_DF + squared / ratio)
    variance = variance_today + np.einsum("i,sij,j->s", today, covariance, today)
    past_z = np.where(is_known, np.sign(residuals) * np.sqrt(squared / ratio), np.nan)
    return Forecast(
        coefficients @ today,
        np.sqrt(ratio_low * variance),
        np.sqrt(ratio_high * variance),
        PRIOR_DAYS + n_low,
        PRIOR_DAYS + n_high,
        past_z,
        is_known.sum(axis=1).astype(float),
    )


def _design(age: np.ndarray) -> Doubles:
    """Intercept, time in weeks, and indicators of the weekday; the weekday of today is the first of them."""
    weekdays = np.eye(7)[age % 7]
    design: Doubles = np.concatenate([np.ones((len(age), 1)), -age[:, None] / 7, weekdays], axis=1)
    return design


def _diagonals(precision: Doubles) -> Doubles:
    """Diagonal matrices, shape (n_series, n, n)."""
    matrices: Doubles = precision[:, :, None] * np.eye(precision.shape[1])
    return matrices


def _spread_ratio(squared: Doubles, weights: Doubles) -> tuple[Doubles, Doubles]:
    """Variance of one side as a multiple of the prior variance, and the number of days that it was estimated from."""
    n = weights.sum(axis=1)
    total = (weights * np.minimum(squared, MAX_SQUARED_RESIDUAL)).sum(axis=1)
    return np.maximum((PRIOR_DAYS + total) / (PRIOR_DAYS + n), MIN_SPREAD_RATIO), n
