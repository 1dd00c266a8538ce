"""Decide whether points follow a law, by rules that are fixed before the held-out largest points are used.

A *place* is a pair of size (labelled queries) and model (its number of parameters); it has one point per seed. A law is
*claimed* by rules 1 to 7, which do not use the held-out points, and *accepted* if rule 8 confirms it.

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

PLATEAU_SHARE = 0.9
"""Share of the chance loss above which a place is on the plateau, where an encoder has learned too little for the power
law to have begun; fitting such places bends the curve.
"""

MAX_ERROR = 0.03
"""Maximum relative error of the predicted loss at a size that was not fitted. Raising it accepts weaker laws."""

MAX_INTERVAL = 0.05
"""Maximum relative half-width of the 95 % interval at the held-out size; a wider one gives `NOT_IDENTIFIABLE`."""

LAW, NO_LAW, NOT_IDENTIFIABLE = "law", "no law", "not identifiable yet"
"""Verdicts: accepted; refuted; or too few or too noisy points to decide."""


@dataclass
class LawResult:
    """The verdict on one set of points.

    Attributes:
        points: all n points.
        plateau: mask of the points left out because their place is near chance, shape (n,).
        held_out: mask of the points held out to test the law, shape (n,).
        places: every distinct (size, model), without losses.
        mean_loss: mean loss at each place, shape (n_places,).
        fits: one fit per form to the fitted points, which are neither on the plateau nor held out.
        chosen: the fit with the lowest AICc; None if no form could be fitted.
        verdict: `LAW`, `NO_LAW` or `NOT_IDENTIFIABLE`.
        reason: why, as a sentence part; empty for a law without caveat.
        error: relative error of the chosen fit at the held-out places, see `prediction_error`.
        naive: relative error there of the naive forecast "same as the size before"; NaN if size and model vary.
        claimed: whether a law was claimed before the held-out points were used.
        ends: 95 % interval of a new point at each place by the chosen fit, shape (2, n_places).
        full_fit: the chosen form fitted to all points off the plateau; None unless a law is accepted.
    """

    points: LawPoints
    plateau: NDArray[np.bool_]
    held_out: NDArray[np.bool_]
    places: LawPoints
    mean_loss: Doubles
    fits: list[Fit] = field(default_factory=list)
    chosen: Fit | None = None
    verdict: str = NOT_IDENTIFIABLE
    reason: str = ""
    error: float = float("nan")
    naive: float = float("nan")
    claimed: bool = False
    ends: Doubles | None = None
    full_fit: Fit | None = None

    @property
    def held_places(self) -> NDArray[np.bool_]:
        """Mask of the held-out places, shape (n_places,)."""
        return is_member(self.places, self.points.take(self.held_out))

    @property
    def plateau_of_places(self) -> NDArray[np.bool_]:
        """Mask of the places on the plateau, shape (n_places,)."""
        return is_member(self.places, self.points.take(self.plateau))


def find_law(points: LawPoints, chance: float | None, resamples: int, seed: int) -> LawResult:
    """Decide whether points follow a law, by the rules of this module.

    Args:
        points: points of one measure and one label source.
        chance: loss of an encoder that ranks at random; None if unknown, and then no place is on the plateau.
        resamples: number of refits behind the interval at the held-out place.
        seed: seed of the refits.
    """
    plateau = _plateau(points, chance)
    off_plateau = points.take(~plateau)
    held_out_mask = np.zeros(len(points), bool)
    held_out_mask[~plateau] = largest(off_plateau)
    result = LawResult(points, plateau, held_out_mask, *mean_losses(points))
    if n_without_loss := int((points.value <= 0).sum()):
        result.verdict = NO_LAW
        result.reason = format.zero_loss(n_without_loss, len(points))
        return result
    fitted = points.take(~plateau & ~held_out_mask)
    held_out = points.take(held_out_mask)
    if len(off_plateau):
        n_places = len(_places(fitted))
        result.fits = [fit(form, fitted) for form in fitting_forms(off_plateau) if n_places >= form.count]
    result.chosen = min(result.fits, key=lambda candidate: (candidate.aicc, candidate.form.count), default=None)
    if result.chosen is not None:
        result.ends = np.stack(confidence_band(result.chosen, result.places, resamples, seed))
    result.verdict, result.reason = _claim(result, fitted, held_out)
    result.claimed = result.verdict == LAW
    if result.chosen is not None:
        result.error = prediction_error(result.chosen, held_out)
        result.naive = _naive_forecast(fitted, held_out)
    # `not <=` also refutes a law whose error is NaN because nothing was held out.
    if result.claimed and not result.error <= MAX_ERROR:
        result.verdict = NO_LAW
        result.reason = format.missed_after_claim(result.error)
    elif result.claimed and result.chosen is not None:
        result.full_fit = fit(result.chosen.form, off_plateau)
    return result


def from_recorded(points: LawPoints, chance: float | None, row: Mapping[str, Any]) -> LawResult:
    """Rebuild what a plan needs from a recorded verdict: the verdict and, for a law, its fit to all points.

    Only the recorded form is fitted; `fits`, `chosen` and the errors stay empty, and nothing is held out.

    Args:
        points: the points that the verdict is about.
        chance: loss of an encoder that ranks at random, the same as for the verdict; another one changes the plateau.
        row: the row of `law_verdicts`.
    """
    result = LawResult(points, _plateau(points, chance), np.zeros(len(points), bool), *mean_losses(points))
    result.verdict = row["verdict"]
    result.reason = row["reason"]
    if result.verdict == LAW:
        result.full_fit = fit(FORMS[row["form"]], points.take(~result.plateau))
    return result


def largest(points: LawPoints) -> NDArray[np.bool_]:
    """Mask of the points of the largest size, if sizes vary, and of those of the largest model, if models vary."""
    if not len(points):
        return np.zeros(0, bool)
    known_parameters = points.parameters[~np.isnan(points.parameters)]
    mask = np.zeros(len(points), bool)
    if len(np.unique(points.size)) > 1:
        mask |= points.size == points.size.max()
    if len(np.unique(known_parameters)) > 1:
        mask |= points.parameters == known_parameters.max()
    return mask


def prediction_error(fit: Fit, beyond: LawPoints) -> float:
    """Mean relative error of a fit's predictions of the mean loss at each place; NaN without points.

    If size and model vary, the worse of two means: over the places of the largest model, and over the others. A single
    mean could hide a bad prediction along one of the two directions.

    Args:
        fit: the fit to test.
        beyond: points that the fit has not used.
    """
    places, actual_losses = mean_losses(beyond)
    errors = np.abs(fit.predict(places) / actual_losses - 1)
    is_largest_model = places.parameters == np.nan_to_num(places.parameters).max(initial=0)
    means = [float(errors[mask].mean()) for mask in (is_largest_model, ~is_largest_model) if mask.any()]
    return max(means, default=float("nan"))


def _claim(result: LawResult, fitted: LawPoints, held_out: LawPoints) -> tuple[str, str]:
    """Verdict and reason by rules 3 to 7; of the held-out points, only the places are used, not the losses."""
    if _is_flat(fitted):
        return NO_LAW, format.NO_EFFECT
    best_fit = result.chosen
    n_places = len(_places(fitted))
    if best_fit is None or n_places <= best_fit.form.count or np.isinf(best_fit.aicc):
        form = best_fit.form if best_fit else fitting_forms(fitted)[0] if len(fitted) else None
        requirement = None if form is None else (form.formula, form.count)
        return NOT_IDENTIFIABLE, format.too_few_points(requirement, len(fitted), n_places, int(result.plateau.sum()))
    if fit(CONSTANT, fitted).aicc <= best_fit.aicc:
        return NO_LAW, format.CONSTANT_WINS
    failed_check = _failed_earlier_check(best_fit.form, fitted)
    if failed_check:
        return failed_check
    assert result.ends is not None
    low, high = result.ends[:, is_member(result.places, held_out)]
    half_width = float(np.log(high / low).max() / 2) if len(low) else float("inf")
    if not half_width <= MAX_INTERVAL:  # also if it is NaN
        return NOT_IDENTIFIABLE, format.wide_interval(half_width, MAX_INTERVAL)
    bounds_hit = best_fit.form.bounds_hit(best_fit.at, best_fit.frame)
    return LAW, format.degenerate(bounds_hit) if bounds_hit else ""


def _failed_earlier_check(form: FunctionalForm, fitted: LawPoints) -> tuple[str, str] | None:
    """Verdict and reason if rule 6 fails; None if it passes.

    The rule holds out the largest of the fitted sizes, fits the form to the smaller ones, and tests it as rule 8 does.
    """
    held_out_mask = largest(fitted)
    smaller = fitted.take(~held_out_mask)
    largest_fitted = fitted.take(held_out_mask)
    if len(_places(smaller)) < form.count:
        return NOT_IDENTIFIABLE, format.sizes_needed(form.count)
    error = prediction_error(fit(form, smaller), largest_fitted)
    naive_error = _naive_forecast(smaller, largest_fitted)
    if not error <= MAX_ERROR:
        return NO_LAW, format.missed_fitted(error)
    if error >= naive_error:
        return NO_LAW, format.missed_fitted(error, naive_error)
    return None


def _plateau(points: LawPoints, chance: float | None) -> NDArray[np.bool_]:
    """Mask of the points at places whose mean loss is near chance, shape (n,)."""
    if chance is None or not len(points):
        return np.zeros(len(points), bool)
    places, place_means = mean_losses(points)
    return is_member(points, places.take(place_means > PLATEAU_SHARE * chance))


def is_member(points: LawPoints, other_points: LawPoints) -> NDArray[np.bool_]:
    """Mask of the points whose place occurs in `other_points`, shape (n,)."""
    return np.asarray((_place_keys(points)[:, None] == _place_keys(other_points)[None]).all(axis=2).any(axis=1))


def _place_keys(points: LawPoints) -> Doubles:
    """The place of each point as (parameters, size), shape (n, 2).

    Unknown parameters become −1, because NaN does not equal itself.
    """
    return np.column_stack([np.nan_to_num(points.parameters, nan=-1), points.size])


def _places(points: LawPoints) -> Doubles:
    """Keys of the distinct places, ascending by parameters, then size, shape (n_places, 2)."""
    return np.unique(_place_keys(points), axis=0)


def mean_losses(points: LawPoints) -> tuple[LawPoints, Doubles]:
    """Each distinct place, ascending by parameters, then size, and its mean loss, shape (n_places,)."""
    keys = _place_keys(points)
    places, place_index = np.unique(keys, axis=0, return_inverse=True)
    place_index = place_index.reshape(-1)  # NumPy 2.0 returns shape (n, 1)
    means = np.bincount(place_index, points.value) / np.bincount(place_index) if len(keys) else np.empty(0)
    parameters = np.where(places[:, 0] < 0, np.nan, places[:, 0])
    return points.with_sizes(places[:, 1], parameters), means


def _ordered_losses(points: LawPoints) -> Doubles | None:
    """Mean losses by ascending size or model, whichever varies; None if both vary, because then no order exists."""
    places, means = mean_losses(points)
    model_sizes = np.unique(places.parameters[~np.isnan(places.parameters)])
    if len(model_sizes) > 1 and len(np.unique(places.size)) > 1:
        return None
    return means


def _is_flat(points: LawPoints) -> bool:
    """Whether the loss at the largest place is not lower than at the smallest (rule 3)."""
    means = _ordered_losses(points)
    return means is not None and len(means) > 1 and bool(means[-1] >= means[0])


def _naive_forecast(before: LawPoints, after: LawPoints) -> float:
    """Mean relative error at `after` of the forecast "same as at the largest place of `before`".

    NaN if size and model vary, or if either side has no points.
    """
    losses_before, losses_after = _ordered_losses(before), _ordered_losses(after)
    if losses_before is None or losses_after is None or not len(losses_before) or not len(losses_after):
        return float("nan")
    return float(np.abs(losses_before[-1] / losses_after - 1).mean())
