"""Cost models of a stage: a fixed cost plus a power law of the size, fitted to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, nnls
from scipy.special import stdtrit

from darklode.pipeline.base.types import Doubles as Floats

MIN_SIZES = 4
"""Minimum number of sizes for a fit; the model has three constants."""

CONFIDENCE = 0.95
MAX_CONSTANT_EXPONENT = 0.15
"""Memory is considered constant up to this exponent between the two largest sizes."""

MAX_HALF_WIDTH = 0.5
"""Maximum half-width of an exponent's interval; above it the fixed cost dominates and the exponent is unknown."""

ASSUMED_HALF_WIDTH = 0.15
"""Half-width of the interval of an assumed exponent of 1."""

_EXPONENT_BOUNDS = (0.05, 3.0)


@dataclass(frozen=True)
class Growth:
    """cost = fixed + factor · size^exponent.

    Attributes:
        constants: log fixed, log factor, exponent; shape (3,).
        covariance: covariance of the constants; shape (3, 3).
        quantile: Student's t quantile for the residual degrees of freedom.
        assumed: whether the exponent was assumed to be 1 because it could not be fitted.
    """

    constants: Floats
    covariance: Floats
    quantile: float
    assumed: bool = False

    @property
    def exponent(self) -> float:
        """Exponent of the size."""
        return float(self.constants[2])

    @property
    def exponent_span(self) -> tuple[float, float]:
        """95 % interval of the exponent."""
        width = self.quantile * float(np.sqrt(self.covariance[2, 2]))
        return self.exponent - width, self.exponent + width

    def cost_at(self, size: float) -> float:
        """Predicted cost at a size."""
        return float(_cost(self.constants, np.array([size]))[0])

    def span(self, size: float) -> tuple[float, float]:
        """95 % interval of the predicted cost (delta method)."""
        slope = _slopes(self.constants, np.array([size]))[0]
        width = self.quantile * float(np.sqrt(slope @ self.covariance @ slope))
        with np.errstate(over="ignore"):
            return self.cost_at(size) * float(np.exp(-width)), self.cost_at(size) * float(np.exp(width))


def fit_growth(sizes: Sequence[float], costs: Sequence[float]) -> Growth:
    """Fit the model by least squares of log errors; if the exponent is too uncertain, assume 1.

    Args:
        sizes: at least `MIN_SIZES` distinct positive values.
        costs: positive cost at each size.

    Raises:
        ValueError: too few sizes, or a value is not positive.
    """
    x, y = np.asarray(sizes, np.float64), np.asarray(costs, np.float64)
    if len(np.unique(x)) < MIN_SIZES:
        raise ValueError(f"a fit requires at least {MIN_SIZES} distinct sizes, got {len(np.unique(x))}")
    if not ((x > 0).all() and (y > 0).all()):
        raise ValueError("sizes and costs must be above 0")
    fit = _fit_power_law(x, y)
    if fit.quantile * float(np.sqrt(fit.covariance[2, 2])) <= MAX_HALF_WIDTH and fit.covariance[2, 2] > 0:
        return fit
    return _fit_linear(x, y)


def _fit_linear(x: Floats, y: Floats) -> Growth:
    """Fit a linear model by relative errors; the exponent's uncertainty is added around the largest size."""
    fixed, factor = nnls(np.stack([1 / y, x / y], axis=1), np.ones(len(y)))[0]
    minimum = 1e-9 * float(y.min())  # keeps the logarithms finite
    constants = np.array([np.log(max(fixed, minimum)), np.log(max(factor, minimum / x.max())), 1.0])
    slopes = _slopes(constants, x)
    slopes[:, 2] = 0.0
    covariance, quantile = _covariance(slopes, np.log(_cost(constants, x)) - np.log(y))
    last, variance = float(np.log(x.max())), (ASSUMED_HALF_WIDTH / quantile) ** 2
    covariance[1:, 1:] += variance * np.array([[last * last, -last], [-last, 1.0]])
    return Growth(constants, covariance, quantile, assumed=True)


def _fit_power_law(x: Floats, y: Floats) -> Growth:
    low, high = [-30.0, -60.0, _EXPONENT_BOUNDS[0]], [float(np.log(y.min())), 60.0, _EXPONENT_BOUNDS[1]]
    starts = [
        [np.log(y.min()) - 1.0, np.log(y[-1]) - exponent * np.log(x[-1]), exponent] for exponent in (0.5, 1.0, 1.5)
    ]
    fits = [
        least_squares(
            lambda constants: np.log(_cost(constants, x)) - np.log(y),
            np.clip(start, np.array(low) + 1e-6, np.array(high) - 1e-6),  # a start must lie within the bounds
            bounds=(low, high),
            jac=lambda constants: _slopes(constants, x),
            x_scale=[1.0, 1.0, 0.1],
            max_nfev=200,
        )
        for start in starts
    ]
    best_fit = min(fits, key=lambda fit: float(fit.cost))
    return Growth(best_fit.x, *_covariance(_slopes(best_fit.x, x), best_fit.fun))


def local_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Exponent of growth between the last two sizes."""
    return float(np.log(values[-1] / values[-2]) / np.log(sizes[-1] / sizes[-2]))


def _covariance(slopes: Floats, residuals: Floats) -> tuple[Floats, float]:
    """Covariance of the constants and Student's t quantile; constants without effect are excluded."""
    used = np.flatnonzero(np.abs(slopes).max(axis=0) > 1e-4)
    free = max(len(residuals) - len(used), 1)
    covariance = np.zeros((3, 3))
    inner = np.linalg.pinv(slopes[:, used].T @ slopes[:, used]) * float(residuals @ residuals) / free
    covariance[np.ix_(used, used)] = inner
    return covariance, float(stdtrit(free, (1 + CONFIDENCE) / 2))


def _cost(constants: Floats, sizes: Floats) -> Floats:
    fixed, factor, exponent = constants
    return np.asarray(np.exp(fixed) + np.exp(factor + exponent * np.log(sizes)), np.float64)


def _slopes(constants: Floats, sizes: Floats) -> Floats:
    """Derivatives of log cost by the constants; shape (sizes, 3)."""
    fixed, factor, exponent = constants
    total_cost, power = _cost(constants, sizes), np.exp(factor + exponent * np.log(sizes))
    return np.stack([np.exp(fixed) / total_cost, power / total_cost, power / total_cost * np.log(sizes)], axis=1)
