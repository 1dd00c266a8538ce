"""Fit a form by summed Huber loss of log residuals, from a grid of starts (Hoffmann et al. 2022, approach 3).

A *start* is a vector of initial coordinates; see `functional_forms` for coordinates and constants.

The loss is summed, not averaged, so that no optimizer tolerance ends the search early; averaging did that in one paper
(Besiroglu et al. 2024). Constants keep full precision, because rounded ones predict other values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.laws.functional_forms import CONSTANT, DataScale, FunctionalForm, LawPoints

HUBER_DELTA = 1e-3
"""Residual at which the Huber loss turns from quadratic to linear, in log units; the value of Hoffmann et al. 2022."""

FIRST_TOLERANCE, FINAL_TOLERANCE = 1e-8, 1e-12
"""Optimizer tolerances of the first pass over all starts, and of the final pass over the best ones."""

FIRST_EVALUATIONS, N_REFINED, FINAL_EVALUATIONS = 40, 6, 300
"""Maximum evaluations per start in the first pass, number of starts kept, and maximum evaluations per kept start."""

SAME_OPTIMUM = 1e-3
"""Relative tolerance within which another start counts as the same optimum."""

MIN_DISTANCE = 1e-6
"""Lower bound of the mean absolute residual, in log units: on exact data it is 0, and AICc would be −∞. It is also the
absolute tolerance of the loss, besides `SAME_OPTIMUM`.
"""

RELATIVE_STEP = 1e-6
"""Relative step of numerical derivatives, and distance of starts from the bounds as a share of their range."""


@dataclass(frozen=True)
class Fit:
    """The best constants of a form for a set of points.

    Attributes:
        form: the functional form.
        at: the best search coordinates, shape (n_constants,).
        frame: scale of the points, to which the coordinates are relative.
        points: the fitted points.
        loss: summed Huber loss of the log residuals, in units of `HUBER_DELTA`.
        starts: number of starts.
        n_optima: number of starts that end at the best loss, within `SAME_OPTIMUM`.
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
        """The reported constants by name, in full precision."""
        return dict(zip(self.form.constants, self.form.to_constants(self.at, self.frame).tolist(), strict=True))

    @property
    def residuals(self) -> Doubles:
        """Log of predicted over measured loss, shape (n_points,)."""
        return self.form.log_value(self.at, self.frame, self.points) - np.log(self.points.value)

    def predict(self, points: LawPoints) -> Doubles:
        """Predicted loss at places, shape (n_places,)."""
        return np.exp(self.form.log_value(self.at, self.frame, points))

    @property
    def r2(self) -> float:
        """Share of variance explained; descriptive only, it decides nothing."""
        value = self.points.value
        total_squares = ((value - value.mean()) ** 2).sum()
        if not total_squares:
            return float("nan")
        return float(1 - ((self.predict(self.points) - value) ** 2).sum() / total_squares)

    @property
    def aicc(self) -> float:
        """AICc (Hurvich and Tsai 1989) for Laplace-distributed residuals; inf for too few points."""
        n = len(self.points)
        n_estimated = self.form.count + 1  # the scale of the noise is estimated, too
        if n <= n_estimated + 1:
            return float("inf")
        noise_scale = max(float(np.abs(self.residuals).mean()), MIN_DISTANCE)
        correction = 2 * n_estimated * (n_estimated + 1) / (n - n_estimated - 1)
        return 2 * n * (float(np.log(2 * noise_scale)) + 1) + 2 * n_estimated + correction

    def covariance(self) -> Doubles:
        """Covariance of the reported constants, shape (n_constants, n_constants).

        From the curvature at the optimum in coordinates, carried over to the constants by the delta method. NaN if
        there are no more points than constants.
        """
        n, count = len(self.points), self.form.count
        if n <= count:
            return np.full((count, count), np.nan)
        form, frame = self.form, self.frame
        jacobian = _jacobian(lambda at: form.log_value(at, frame, self.points), self.at, form, frame)
        constants_jacobian = _jacobian(lambda at: form.to_constants(at, frame), self.at, form, frame)
        residual_variance = (self.residuals**2).sum() / (n - count)
        inverse_curvature = np.linalg.pinv(jacobian.T @ jacobian)
        return np.asarray(constants_jacobian @ inverse_curvature @ constants_jacobian.T * residual_variance)


def fit(form: FunctionalForm, points: LawPoints, starts: Doubles | None = None) -> Fit:
    """The best fit over all starts.

    Args:
        form: the functional form.
        points: the points to fit, all with losses above 0.
        starts: coordinates near the optimum, shape (n_starts, n_constants), which are searched once; None for the
            form's own grid of starts, of which the best are refined.
    """
    frame = DataScale.from_points(points)
    log_losses = np.log(points.value)
    low, high = form.limits(frame)
    initial_coordinates = form.starts(frame) if starts is None else np.clip(starts, low, high)
    if form is CONSTANT:  # the median minimizes absolute log residuals, so no search is needed
        return _build_fit(form, [np.array([np.exp(np.median(log_losses))])], points, frame)

    def scaled_residuals(at: Doubles) -> Doubles:
        return (form.log_value(at, frame, points) - log_losses) / HUBER_DELTA

    # Starts are moved off the bounds.
    margin = RELATIVE_STEP * (high - low)
    inner_low, inner_high = low + margin, high - margin

    def search(start: Doubles, max_steps: int, tolerance: float) -> Doubles:
        limits = {"ftol": tolerance, "xtol": tolerance, "gtol": tolerance, "max_nfev": max_steps}
        inner_start = np.clip(start, inner_low, inner_high)
        result = least_squares(scaled_residuals, inner_start, bounds=(low, high), loss="huber", x_scale="jac", **limits)
        return np.asarray(result.x)

    optima = [search(start, FIRST_EVALUATIONS, FIRST_TOLERANCE) for start in initial_coordinates]
    order = np.argsort([huber(scaled_residuals(optimum) * HUBER_DELTA) for optimum in optima], kind="stable")
    for index in order[: N_REFINED if starts is None else 0]:
        optima[index] = search(optima[index], FINAL_EVALUATIONS, FINAL_TOLERANCE)
    return _build_fit(form, optima, points, frame)


def _build_fit(form: FunctionalForm, optima: list[Doubles], points: LawPoints, frame: DataScale) -> Fit:
    """The fit at the best of the local optima, one per start."""
    log_losses = np.log(points.value)
    fit_losses = np.array([huber(form.log_value(optimum, frame, points) - log_losses) for optimum in optima])
    best_index = int(np.argmin(fit_losses))
    best_loss = float(fit_losses[best_index])
    is_best = fit_losses <= fit_losses[best_index] * (1 + SAME_OPTIMUM) + MIN_DISTANCE
    return Fit(form, optima[best_index], frame, points, best_loss, len(optima), int(is_best.sum()))


def huber(residuals: Doubles) -> float:
    """Summed Huber loss, in units of `HUBER_DELTA`."""
    scaled = np.abs(residuals) / HUBER_DELTA
    return float(np.where(scaled <= 1, scaled**2 / 2, scaled - 0.5).sum())


def _jacobian(function: object, at: Doubles, form: FunctionalForm, frame: DataScale) -> Doubles:
    """Numerical derivatives of a vector function by coordinates, within the bounds, shape (n, n_constants)."""
    assert callable(function)
    low, high = form.limits(frame)
    columns = []
    for index in range(len(at)):
        step = np.zeros(len(at))
        step[index] = RELATIVE_STEP * max(abs(at[index]), 1e-2)
        above, below = np.clip(at + step, low, high), np.clip(at - step, low, high)
        columns.append((function(above) - function(below)) / (above[index] - below[index]))
    return np.column_stack(columns)
