"""How a stage's cost grows: a fixed part and a power of the size, fitted to a few measured sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, nnls
from scipy.special import stdtrit

from darklode.pipeline.base.types import Doubles as Floats

LEAST = 4
"""Sizes that a fit takes: it has three constants."""

CONFIDENCE = 0.95
FLAT = 0.15
"""Memory whose exponent between the two largest sizes is at most this one does not grow."""

OPEN = 0.5
"""An exponent whose interval reaches further than this is not known: the sizes hardly reach beyond the fixed part."""

LEEWAY = 0.15
"""What an exponent of 1, taken where none is known, may be off."""

_EXPONENTS = (0.05, 3.0)


@dataclass(frozen=True)
class Growth:
    """cost = fixed + factor · size^exponent, its constants as logarithms where they may span magnitudes.

    Attributes:
        constants: log fixed, log factor, exponent; shape (3,).
        covariance: of the constants; shape (3, 3).
        quantile: of Student's t for the points that were left over.
        assumed: no exponent is known, and 1 was taken.
    """

    constants: Floats
    covariance: Floats
    quantile: float
    assumed: bool = False

    @property
    def exponent(self) -> float:
        """Of the size."""
        return float(self.constants[2])

    @property
    def exponent_span(self) -> tuple[float, float]:
        """Its 95 % interval."""
        width = self.quantile * float(np.sqrt(self.covariance[2, 2]))
        return self.exponent - width, self.exponent + width

    def cost_at(self, size: float) -> float:
        """The cost at a size."""
        return float(_cost(self.constants, np.array([size]))[0])

    def span(self, size: float) -> tuple[float, float]:
        """The 95 % interval of the cost at a size: what the fit leaves open, not what lies beyond it."""
        slope = _slopes(self.constants, np.array([size]))[0]
        width = self.quantile * float(np.sqrt(slope @ self.covariance @ slope))
        with np.errstate(over="ignore"):
            return self.cost_at(size) * float(np.exp(-width)), self.cost_at(size) * float(np.exp(width))


def fit_growth(sizes: Sequence[float], costs: Sequence[float]) -> Growth:
    """Fit the three constants by least squares of relative errors; where the exponent stays open, it is taken as 1.

    Args:
        sizes: at least `LEAST` different ones, above 0.
        costs: of each, above 0.

    Raises:
        ValueError: there are too few sizes, or a size or a cost is not above 0.
    """
    x, y = np.asarray(sizes, np.float64), np.asarray(costs, np.float64)
    if len(np.unique(x)) < LEAST:
        raise ValueError(f"a fit takes {LEAST} sizes, and there are {len(np.unique(x))}")
    if not ((x > 0).all() and (y > 0).all()):
        raise ValueError("sizes and costs must be above 0")
    free = _fit_power_law(x, y)
    if free.quantile * float(np.sqrt(free.covariance[2, 2])) <= OPEN and free.covariance[2, 2] > 0:
        return free
    return _linear(x, y)


def _linear(x: Floats, y: Floats) -> Growth:
    """A fixed part and a line, by relative errors; its exponent may be off by `LEEWAY`, seen from the largest size."""
    fixed, factor = nnls(np.stack([1 / y, x / y], axis=1), np.ones(len(y)))[0]
    least = 1e-9 * float(y.min())
    constants = np.array([np.log(max(fixed, least)), np.log(max(factor, least / x.max())), 1.0])
    slopes = _slopes(constants, x)
    slopes[:, 2] = 0.0
    covariance, quantile = _covariance(slopes, np.log(_cost(constants, x)) - np.log(y))
    last, variance = float(np.log(x.max())), (LEEWAY / quantile) ** 2
    covariance[1:, 1:] += variance * np.array([[last * last, -last], [-last, 1.0]])
    return Growth(constants, covariance, quantile, assumed=True)


def _fit_power_law(x: Floats, y: Floats) -> Growth:
    low, high = [-30.0, -60.0, _EXPONENTS[0]], [float(np.log(y.min())), 60.0, _EXPONENTS[1]]
    starts = [
        [np.log(y.min()) - 1.0, np.log(y[-1]) - exponent * np.log(x[-1]), exponent] for exponent in (0.5, 1.0, 1.5)
    ]
    fits = [
        least_squares(
            lambda constants: np.log(_cost(constants, x)) - np.log(y),
            np.clip(start, np.array(low) + 1e-6, np.array(high) - 1e-6),  # within, as the solver asks
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
    """By what power the last value is larger than the one before it."""
    return float(np.log(values[-1] / values[-2]) / np.log(sizes[-1] / sizes[-2]))


def _covariance(slopes: Floats, residuals: Floats) -> tuple[Floats, float]:
    """Covariance of the constants and the quantile; a constant that changes nothing (no fixed part) is left out."""
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
    """Derivatives of the cost's logarithm, shape (sizes, 3)."""
    fixed, factor, exponent = constants
    total_cost, power = _cost(constants, sizes), np.exp(factor + exponent * np.log(sizes))
    return np.stack([np.exp(fixed) / total_cost, power / total_cost, power / total_cost * np.log(sizes)], axis=1)
