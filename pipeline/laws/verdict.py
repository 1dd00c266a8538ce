"""Decide whether points follow a law, by rules that are fixed before the held-out largest points are used.

1. Places whose mean loss is above 90 % of chance are left out (plateau).
2. The largest sizes (and the largest models, if both vary) are held out.
3. No law if the loss at the largest fitted size is not lower than at the smallest.
4. Not identifiable yet if there are no more places than constants, or too few points for AICc.
5. No law if a constant has the lower AICc.
6. The same test one size earlier: no law if the largest fitted size is missed by more than 3 % from the smaller ones,
   or by no less than the naive forecast "same as the size before".
7. Not identifiable yet if the 95 % interval at the held-out point is wider than 5 % to a side.
8. Otherwise a law is claimed, with the form of the lowest AICc, and tested on the held-out point: no law if it is
   missed by more than 3 % (the worse of largest model and others, if size and model vary).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.laws import format
from darklode.pipeline.laws.curve_fitting import Fit, fit
from darklode.pipeline.laws.functional_forms import CONSTANT, FORMS, FunctionalForm, LawPoints, fitting_forms
from darklode.pipeline.laws.prediction_intervals import confidence_band

PLATEAU = 0.9
"""Share of the loss of chance above which a place counts as plateau."""

MAX_ERROR = 0.03
"""Maximum relative error of the prediction of a size that was not fitted."""

MAX_INTERVAL = 0.05
"""Maximum relative half-width of the 95 % interval at the held-out size; a wider one could not refute a law."""

LAW, NO_LAW, UNKNOWN = "law", "no law", "not identifiable yet"


@dataclass
class LawResult:
    """The verdict on one set of points.

    Attributes:
        points: all points.
        verdict: law, no law, or not identifiable yet.
        reason: a sentence.
        plateau: points left out because they are near chance, shape (n,).
        held_out: points held out, shape (n,).
        fits: one fit per form, to the remaining points.
        chosen: the fit with the lowest AICc, if any.
        error: relative error on the held-out places, see `prediction_error`.
        naive: relative error of the naive forecast there; NaN for several models.
        claimed: whether a law was claimed before the held-out points were used.
        places: every (size, model).
        mean_loss: mean loss at each place.
        ends: 95 % interval of a new point at each place by the chosen fit, shape (2, n_places).
        full_fit: the chosen form fitted to all points off the plateau, if a law is accepted.
    """

    points: LawPoints
    plateau: NDArray[np.bool_]
    held_out: NDArray[np.bool_]
    places: LawPoints
    mean_loss: Doubles
    fits: list[Fit] = field(default_factory=list)
    chosen: Fit | None = None
    verdict: str = UNKNOWN
    reason: str = ""
    error: float = float("nan")
    naive: float = float("nan")
    claimed: bool = False
    ends: Doubles | None = None
    full_fit: Fit | None = None

    @property
    def held_places(self) -> NDArray[np.bool_]:
        """Mask of the held-out places."""
        return is_member(self.places, self.points.take(self.held_out))

    @property
    def plateau_of_places(self) -> NDArray[np.bool_]:
        """Mask of the places on the plateau."""
        return is_member(self.places, self.points.take(self.plateau))


def find_law(points: LawPoints, chance: float | None, resamples: int, seed: int) -> LawResult:
    """Look for a law.

    Args:
        points: of one measure and one label source.
        chance: loss of an encoder that knows nothing; None if unknown.
        resamples: for the interval.
        seed: of the draws.
    """
    plateau = _plateau(points, chance)
    above_chance = points.take(~plateau)
    held_out = np.zeros(len(points), bool)
    held_out[~plateau] = largest(above_chance)
    result = LawResult(points, plateau, held_out, *mean_losses(points))
    if n_invalid := int((points.value <= 0).sum()):
        result.verdict, result.reason = (
            NO_LAW,
            format.zero_loss(n_invalid, len(points)),
        )
        return result
    fitted, beyond = points.take(~plateau & ~held_out), points.take(held_out)
    forms = (
        [form for form in fitting_forms(above_chance) if len(_places(fitted)) >= form.count]
        if len(above_chance)
        else []
    )
    result.fits = [fit(form, fitted) for form in forms]
    result.chosen = min(result.fits, key=lambda fit: (fit.aicc, fit.form.count), default=None)
    if result.chosen is not None:
        result.ends = np.stack(confidence_band(result.chosen, result.places, resamples, seed))
    result.verdict, result.reason = _claim(result, fitted, beyond)
    result.claimed = result.verdict == LAW
    if result.chosen is not None:
        result.error, result.naive = prediction_error(result.chosen, beyond), _naive_forecast(fitted, beyond)
    if result.claimed and not result.error <= MAX_ERROR:
        result.verdict, result.reason = NO_LAW, format.missed_after_claim(result.error)
    elif result.claimed and result.chosen is not None:
        result.full_fit = fit(result.chosen.form, above_chance)
    return result


def from_recorded(points: LawPoints, chance: float | None, row: Mapping[str, Any]) -> LawResult:
    """Rebuild what a plan needs from a recorded verdict: the verdict and, for a law, its fit to all points.

    Args:
        points: the points that were judged.
        chance: as it was then.
        row: their row of `law_verdicts`.
    """
    result = LawResult(points, _plateau(points, chance), np.zeros(len(points), bool), *mean_losses(points))
    result.verdict, result.reason = row["verdict"], row["reason"]
    if result.verdict == LAW:
        result.full_fit = fit(FORMS[row["form"]], points.take(~result.plateau))
    return result


def largest(points: LawPoints) -> NDArray[np.bool_]:
    """Mask of the points of the largest size and, if models vary, of the largest model."""
    if not len(points):
        return np.zeros(0, bool)
    models = points.parameters[~np.isnan(points.parameters)]
    out = np.zeros(len(points), bool)
    if len(np.unique(points.size)) > 1:
        out |= points.size == points.size.max()
    if len(np.unique(models)) > 1:
        out |= points.parameters == models.max()
    return out


def prediction_error(fit: Fit, beyond: LawPoints) -> float:
    """Mean relative error of a fit at each place's mean loss.

    If size and model vary, the worse of two means: over the places of the largest model, and over the others.
    """
    places, means = mean_losses(beyond)
    errors = np.abs(fit.predict(places) / means - 1)
    new = places.parameters == np.nan_to_num(places.parameters).max(initial=0)
    return max((float(errors[side].mean()) for side in (new, ~new) if side.any()), default=float("nan"))


def _claim(result: LawResult, fitted: LawPoints, beyond: LawPoints) -> tuple[str, str]:
    """The verdict before the held-out points are used."""
    if _flat(fitted):
        return NO_LAW, format.FLAT
    best_fit, n = result.chosen, len(_places(fitted))
    if best_fit is None or n <= best_fit.form.count or np.isinf(best_fit.aicc):
        form = best_fit.form if best_fit else fitting_forms(fitted)[0] if len(fitted) else None
        requirement = None if form is None else (form.formula, form.count)
        return UNKNOWN, format.too_few_points(requirement, len(fitted), n, int(result.plateau.sum()))
    if fit(CONSTANT, fitted).aicc <= best_fit.aicc:
        return NO_LAW, format.CONSTANT_WINS
    reason = _was_predictable(best_fit.form, fitted)
    if reason:
        return reason
    assert result.ends is not None
    low, high = result.ends[:, is_member(result.places, beyond)]
    width = float(np.log(high / low).max() / 2) if len(low) else float("inf")
    if not width <= MAX_INTERVAL:
        return UNKNOWN, format.wide_interval(width, MAX_INTERVAL)
    bounds = best_fit.form.bounds_hit(best_fit.at, best_fit.frame)
    return LAW, format.degenerate(bounds) if bounds else ""


def _was_predictable(form: FunctionalForm, fitted: LawPoints) -> tuple[str, str] | None:
    """Whether the form, fitted to even smaller sizes, would have passed the same test."""
    inner = largest(fitted)
    smaller, last = fitted.take(~inner), fitted.take(inner)
    if len(_places(smaller)) < form.count:
        return UNKNOWN, format.sizes_needed(form.count)
    error, naive = prediction_error(fit(form, smaller), last), _naive_forecast(smaller, last)
    if not error <= MAX_ERROR:
        return NO_LAW, format.missed_fitted(error)
    if error >= naive:
        return NO_LAW, format.missed_fitted(error, naive)
    return None


def _plateau(points: LawPoints, chance: float | None) -> NDArray[np.bool_]:
    """Mask of the points at places near chance."""
    if chance is None or not len(points):
        return np.zeros(len(points), bool)
    places, means = mean_losses(points)
    return is_member(points, places.take(means > PLATEAU * chance))


def is_member(points: LawPoints, other_points: LawPoints) -> NDArray[np.bool_]:
    """Mask of the points whose (size, model) occurs in `other_points`."""
    return np.asarray((_keys(points)[:, None] == _keys(other_points)[None]).all(axis=2).any(axis=1))


def _keys(points: LawPoints) -> Doubles:
    return np.column_stack([np.nan_to_num(points.parameters, nan=-1), points.size])


def _places(points: LawPoints) -> Doubles:
    """Distinct (size, model) pairs, ascending."""
    return np.unique(_keys(points), axis=0)


def mean_losses(points: LawPoints) -> tuple[LawPoints, Doubles]:
    """Each place and its mean loss."""
    keys = _keys(points)
    places, number = np.unique(keys, axis=0, return_inverse=True)
    number = number.reshape(-1)
    means = np.bincount(number, points.value) / np.bincount(number) if len(keys) else np.empty(0)
    n_parameters = np.where(places[:, 0] < 0, np.nan, places[:, 0])
    return points.with_sizes(places[:, 1], n_parameters), means


def _in_turn(points: LawPoints) -> Doubles | None:
    """Mean losses ordered by what varies; None if size and model both vary."""
    places, means = mean_losses(points)
    models = np.unique(places.parameters[~np.isnan(places.parameters)])
    if len(models) > 1 and len(np.unique(places.size)) > 1:
        return None
    return means


def _flat(points: LawPoints) -> bool:
    means = _in_turn(points)
    return means is not None and len(means) > 1 and bool(means[-1] >= means[0])


def _naive_forecast(before: LawPoints, after: LawPoints) -> float:
    forecast, other = _in_turn(before), _in_turn(after)
    if forecast is None or other is None or not len(forecast) or not len(other):
        return float("nan")
    return float(np.abs(forecast[-1] / other - 1).mean())
