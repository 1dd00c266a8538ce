"""Fitting a form: Huber's loss on logarithms, summed, from a grid of starts (Hoffmann et al. 2022, approach 3).

The loss is summed and told in its own unit, so that no tolerance ends the search early, which averaging it did in one
paper (Besiroglu et al. 2024). Constants keep their full precision: rounded ones predict something else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from darklode.pipeline.laws.forms import CONSTANT, DataScale, Floats, FunctionalForm, LawPoints

HUBER = 1e-3
"""Where the loss turns from squares to distances, in logarithms."""

NEAR, TOLERANCE = 1e-8, 1e-12
"""Of a first look, and of the end."""

LOOK, KEPT, MOST = 40, 6, 300
"""Evaluations of each start, how many of the best go on, and their evaluations."""

SAME = 1e-3
"""Starts whose loss is as near to the best one, as a share, reach it."""

LEAST = 1e-6
"""A mean distance below it counts as this one: exact data tell no better form from an exact one."""

STEP = 1e-6


@dataclass(frozen=True)
class Fit:
    """A form's best constants.

    Attributes:
        form: which.
        at: its coordinates.
        frame: of the points.
        points: it is fitted to.
        loss: summed.
        starts: how many there were.
        n_optima: how many of them end at the best loss.
    """

    form: FunctionalForm
    at: Floats
    frame: DataScale
    points: LawPoints
    loss: float
    starts: int
    n_optima: int

    @property
    def constants(self) -> dict[str, float]:
        """In full precision."""
        return dict(zip(self.form.constants, self.form.to_constants(self.at, self.frame).tolist(), strict=True))

    @property
    def residuals(self) -> Floats:
        """Logarithms of predicted over measured."""
        return self.form.log_value(self.at, self.frame, self.points) - np.log(self.points.value)

    def predict(self, points: LawPoints) -> Floats:
        """The loss at places."""
        return np.exp(self.form.log_value(self.at, self.frame, points))

    @property
    def r2(self) -> float:
        """Share of the values' variance that is explained; it proves nothing."""
        value = self.points.value
        spread = ((value - value.mean()) ** 2).sum()
        return float(1 - ((self.predict(self.points) - value) ** 2).sum() / spread) if spread else float("nan")

    @property
    def aicc(self) -> float:
        """Akaike's criterion for few points (Hurvich and Tsai 1989), of Laplace's distribution; inf for too few."""
        n, count = len(self.points), self.form.count + 1
        if n <= count + 1:
            return float("inf")
        spread = max(float(np.abs(self.residuals).mean()), LEAST)
        return 2 * n * (float(np.log(2 * spread)) + 1) + 2 * count + 2 * count * (count + 1) / (n - count - 1)

    def covariance(self) -> Floats:
        """Of the constants, from the curvature at the best one; NaN where there are no more points than constants."""
        n, count = len(self.points), self.form.count
        if n <= count:
            return np.full((count, count), np.nan)
        bend = _slopes(lambda at: self.form.log_value(at, self.frame, self.points), self.at, self.form, self.frame)
        turn = _slopes(lambda at: self.form.to_constants(at, self.frame), self.at, self.form, self.frame)
        spread = (self.residuals**2).sum() / (n - count)
        return np.asarray(turn @ np.linalg.pinv(bend.T @ bend) @ turn.T * spread)


def fit(form: FunctionalForm, points: LawPoints, starts: Floats | None = None) -> Fit:
    """The best of all starts.

    Args:
        form: which.
        points: all above 0.
        starts: coordinates near to the best ones; None: the form's grid, the best of which are searched to the end.
    """
    frame, logs = DataScale.from_points(points), np.log(points.value)
    low, high = form.limits(frame)
    begun = form.starts(frame) if starts is None else np.clip(starts, low, high)
    if form is CONSTANT:
        return _build_fit(form, [np.array([np.exp(np.median(logs))])], points, frame)

    def residuals(at: Floats) -> Floats:
        return (form.log_value(at, frame, points) - logs) / HUBER

    inner = low + STEP * (high - low), high - STEP * (high - low)

    def search(start: Floats, max_steps: int, tolerance: float) -> Floats:
        tight = {"ftol": tolerance, "xtol": tolerance, "gtol": tolerance, "max_nfev": max_steps}
        result = least_squares(
            residuals, np.clip(start, *inner), bounds=(low, high), loss="huber", x_scale="jac", **tight
        )
        return np.asarray(result.x)

    ends = [search(start, LOOK, NEAR) for start in begun]
    order = np.argsort([huber(residuals(at) * HUBER) for at in ends], kind="stable")
    for index in order[: KEPT if starts is None else 0]:
        ends[index] = search(ends[index], MOST, TOLERANCE)
    return _build_fit(form, ends, points, frame)


def _build_fit(form: FunctionalForm, ends: list[Floats], points: LawPoints, frame: DataScale) -> Fit:
    logs = np.log(points.value)
    losses = np.array([huber(form.log_value(at, frame, points) - logs) for at in ends])
    best_index = int(np.argmin(losses))
    is_optimum = losses <= losses[best_index] * (1 + SAME) + LEAST
    return Fit(form, ends[best_index], frame, points, float(losses[best_index]), len(ends), int(is_optimum.sum()))


def huber(residuals: Floats) -> float:
    """Huber's loss, summed, in units of `HUBER`."""
    off = np.abs(residuals) / HUBER
    return float(np.where(off <= 1, off**2 / 2, off - 0.5).sum())


def _slopes(function: object, at: Floats, form: FunctionalForm, frame: DataScale) -> Floats:
    """Derivatives by differences that stay within the bounds, shape (n, n_constants)."""
    assert callable(function)
    low, high = form.limits(frame)
    columns = []
    for index in range(len(at)):
        step = np.zeros(len(at))
        step[index] = STEP * max(abs(at[index]), 1e-2)
        above, below = np.clip(at + step, low, high), np.clip(at - step, low, high)
        columns.append((function(above) - function(below)) / (above[index] - below[index]))
    return np.column_stack(columns)
