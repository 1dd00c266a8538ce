"""Fit a form by Huber loss on log residuals, summed, from a grid of starts (Hoffmann et al. 2022, approach 3).

The loss is summed, not averaged, so that no optimizer tolerance ends the search early; averaging did that in one paper
(Besiroglu et al. 2024). Constants keep full precision, because rounded ones predict other values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.laws.functional_forms import CONSTANT, DataScale, FunctionalForm, LawPoints

HUBER = 1e-3
"""Where the loss turns from quadratic to linear, in log units."""

FIRST_TOLERANCE, FINAL_TOLERANCE = 1e-8, 1e-12
"""Optimizer tolerances of the first pass and of the final pass."""

FIRST_EVALUATIONS, N_REFINED, FINAL_EVALUATIONS = 40, 6, 300
"""Evaluations per start in the first pass, number of starts kept, and evaluations per kept start."""

SAME_OPTIMUM = 1e-3
"""Relative tolerance within which another start counts as the same optimum."""

MIN_DISTANCE = 1e-6
"""Lower bound of the mean distance: exact data cannot rank forms by likelihood."""

STEP = 1e-6
"""Relative step of numerical derivatives, and distance that starts keep from the bounds."""


@dataclass(frozen=True)
class Fit:
    """The best constants of a form.

    Attributes:
        form: the functional form.
        at: its coordinates.
        frame: scale of the points.
        points: the fitted points.
        loss: summed.
        starts: number of starts.
        n_optima: number of starts that end at the best loss.
    """

    form: FunctionalForm
    at: Doubles
    frame: DataScale
    points: LawPoints
    loss: float
    starts: int
    n_optima: int

    @property
    def constants(self) -> dict[str, float]:
        """The constants in full precision."""
        return dict(zip(self.form.constants, self.form.to_constants(self.at, self.frame).tolist(), strict=True))

    @property
    def residuals(self) -> Doubles:
        """Log of predicted over measured."""
        return self.form.log_value(self.at, self.frame, self.points) - np.log(self.points.value)

    def predict(self, points: LawPoints) -> Doubles:
        """Predicted loss at places."""
        return np.exp(self.form.log_value(self.at, self.frame, points))

    @property
    def r2(self) -> float:
        """Share of variance explained; descriptive only, it decides nothing."""
        value = self.points.value
        spread = ((value - value.mean()) ** 2).sum()
        return float(1 - ((self.predict(self.points) - value) ** 2).sum() / spread) if spread else float("nan")

    @property
    def aicc(self) -> float:
        """AICc (Hurvich and Tsai 1989) for Laplace-distributed residuals; inf for too few points."""
        n, count = len(self.points), self.form.count + 1
        if n <= count + 1:
            return float("inf")
        spread = max(float(np.abs(self.residuals).mean()), MIN_DISTANCE)
        return 2 * n * (float(np.log(2 * spread)) + 1) + 2 * count + 2 * count * (count + 1) / (n - count - 1)

    def covariance(self) -> Doubles:
        """Covariance of the constants from the curvature at the optimum; NaN without more points than constants."""
        n, count = len(self.points), self.form.count
        if n <= count:
            return np.full((count, count), np.nan)
        bend = _slopes(lambda at: self.form.log_value(at, self.frame, self.points), self.at, self.form, self.frame)
        turn = _slopes(lambda at: self.form.to_constants(at, self.frame), self.at, self.form, self.frame)
        spread = (self.residuals**2).sum() / (n - count)
        return np.asarray(turn @ np.linalg.pinv(bend.T @ bend) @ turn.T * spread)


def fit(form: FunctionalForm, points: LawPoints, starts: Doubles | None = None) -> Fit:
    """The best fit over all starts.

    Args:
        form: the functional form.
        points: all with values above 0.
        starts: coordinates near the optimum; None: the form's grid, of which the best are refined.
    """
    frame, logs = DataScale.from_points(points), np.log(points.value)
    low, high = form.limits(frame)
    begun = form.starts(frame) if starts is None else np.clip(starts, low, high)
    if form is CONSTANT:
        return _build_fit(form, [np.array([np.exp(np.median(logs))])], points, frame)

    def residuals(at: Doubles) -> Doubles:
        return (form.log_value(at, frame, points) - logs) / HUBER

    inner = low + STEP * (high - low), high - STEP * (high - low)

    def search(start: Doubles, max_steps: int, tolerance: float) -> Doubles:
        tight = {"ftol": tolerance, "xtol": tolerance, "gtol": tolerance, "max_nfev": max_steps}
        result = least_squares(
            residuals, np.clip(start, *inner), bounds=(low, high), loss="huber", x_scale="jac", **tight
        )
        return np.asarray(result.x)

    ends = [search(start, FIRST_EVALUATIONS, FIRST_TOLERANCE) for start in begun]
    order = np.argsort([huber(residuals(at) * HUBER) for at in ends], kind="stable")
    for index in order[: N_REFINED if starts is None else 0]:
        ends[index] = search(ends[index], FINAL_EVALUATIONS, FINAL_TOLERANCE)
    return _build_fit(form, ends, points, frame)


def _build_fit(form: FunctionalForm, ends: list[Doubles], points: LawPoints, frame: DataScale) -> Fit:
    logs = np.log(points.value)
    losses = np.array([huber(form.log_value(at, frame, points) - logs) for at in ends])
    best_index = int(np.argmin(losses))
    is_optimum = losses <= losses[best_index] * (1 + SAME_OPTIMUM) + MIN_DISTANCE
    return Fit(form, ends[best_index], frame, points, float(losses[best_index]), len(ends), int(is_optimum.sum()))


def huber(residuals: Doubles) -> float:
    """Summed Huber loss, in units of `HUBER`."""
    scaled = np.abs(residuals) / HUBER
    return float(np.where(scaled <= 1, scaled**2 / 2, scaled - 0.5).sum())


def _slopes(function: object, at: Doubles, form: FunctionalForm, frame: DataScale) -> Doubles:
    """Numerical derivatives that stay within the bounds, shape (n, n_constants)."""
    assert callable(function)
    low, high = form.limits(frame)
    columns = []
    for index in range(len(at)):
        step = np.zeros(len(at))
        step[index] = STEP * max(abs(at[index]), 1e-2)
        above, below = np.clip(at + step, low, high), np.clip(at - step, low, high)
        columns.append((function(above) - function(below)) / (above[index] - below[index]))
    return np.column_stack(columns)
