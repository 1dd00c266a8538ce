"""Whether points follow a law: rules that are gone through before the largest points are looked at, then those points.

1. Places whose mean loss is above nine tenths of chance are left out: there a loss does not fall yet.
2. The largest sizes (and the largest models, where both vary) are held out.
3. No law, where the loss at the largest size fitted is no lower than at the smallest.
4. Not identifiable yet, where there are not more places than constants, or too few points for AICc.
5. No law, where a constant has the lower AICc.
6. The same again one size lower: no law, where the largest size fitted is missed by more than 3 % from the smaller
   ones, or by no less than "as the size before" misses it.
7. Not identifiable yet, where the 95 % interval at the held-out point is wider than 5 % to a side.
8. Otherwise a law is claimed, of the form with the lowest AICc. Now the held-out point is looked at: no law, where it
   is missed by more than 3 %; where size and model vary, the largest model or the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.laws.bands import confidence_band
from darklode.pipeline.laws.fitting import Fit, fit
from darklode.pipeline.laws.forms import CONSTANT, FORMS, Floats, FunctionalForm, LawPoints, fitting

PLATEAU = 0.9
"""Of the loss of chance."""

MISSED = 0.03
WIDE = 0.05

LAW, NO_LAW, UNKNOWN = "law", "no law", "not identifiable yet"


@dataclass
class LawResult:
    """What is found of points.

    Attributes:
        points: all.
        verdict: one of the three.
        reason: in words.
        plateau: which points are left out for being near to chance, shape (n,).
        held_out: which are held out.
        fits: of each form, to the others.
        chosen: that with the lowest AICc, if there is any.
        error: how far it misses the held-out places, as a share; see `prediction_error`.
        naive: how far "as the size before" misses them; NaN for several models.
        claimed: whether a law was claimed before they were looked at.
        places: every size and model.
        mean_loss: the mean loss at each.
        ends: of the 95 % interval of a new point there, by the chosen fit, shape (2, n_places).
        full_fit: the chosen form fitted to all points but those near to chance, where a law stands.
    """

    points: LawPoints
    plateau: NDArray[np.bool_]
    held_out: NDArray[np.bool_]
    places: LawPoints
    mean_loss: Floats
    fits: list[Fit] = field(default_factory=list)
    chosen: Fit | None = None
    verdict: str = UNKNOWN
    reason: str = ""
    error: float = float("nan")
    naive: float = float("nan")
    claimed: bool = False
    ends: Floats | None = None
    full_fit: Fit | None = None

    @property
    def held_places(self) -> NDArray[np.bool_]:
        """Which places are held out."""
        return is_member(self.places, self.points.take(self.held_out))

    @property
    def plateau_of_places(self) -> NDArray[np.bool_]:
        """Which places are near to chance."""
        return is_member(self.places, self.points.take(self.plateau))


def judge(points: LawPoints, chance: float | None, resamples: int, seed: int) -> LawResult:
    """Look for a law.

    Args:
        points: of one measure and one source of labels.
        chance: loss of an encoder that knows nothing; None: nobody knows.
        resamples: of the interval.
        seed: of its draws.
    """
    plateau = _plateau(points, chance)
    above_chance = points.take(~plateau)
    held_out = np.zeros(len(points), bool)
    held_out[~plateau] = largest(above_chance)
    result = LawResult(points, plateau, held_out, *mean_losses(points))
    if n_invalid := int((points.value <= 0).sum()):
        result.verdict, result.reason = (
            NO_LAW,
            f"the loss is 0 at {n_invalid} of {len(points)} points: it can fall no more",
        )
        return result
    fitted, beyond = points.take(~plateau & ~held_out), points.take(held_out)
    forms = [form for form in fitting(above_chance) if len(_places(fitted)) >= form.count] if len(above_chance) else []
    result.fits = [fit(form, fitted) for form in forms]
    result.chosen = min(result.fits, key=lambda fit: (fit.aicc, fit.form.count), default=None)
    if result.chosen is not None:
        result.ends = np.stack(confidence_band(result.chosen, result.places, resamples, seed))
    result.verdict, result.reason = _claim(result, fitted, beyond)
    result.claimed = result.verdict == LAW
    if result.chosen is not None:
        result.error, result.naive = prediction_error(result.chosen, beyond), _naive_forecast(fitted, beyond)
    if result.claimed and not result.error <= MISSED:
        result.verdict, result.reason = NO_LAW, f"one was claimed, and the largest size is missed by {result.error:.1%}"
    elif result.claimed and result.chosen is not None:
        result.full_fit = fit(result.chosen.form, above_chance)
    return result


def from_recorded(points: LawPoints, chance: float | None, row: Mapping[str, Any]) -> LawResult:
    """What was found of these points before, as far as a plan needs it: the verdict, and a law's fit to all points.

    Args:
        points: as they were judged.
        chance: likewise.
        row: theirs of `law_verdicts`.
    """
    result = LawResult(points, _plateau(points, chance), np.zeros(len(points), bool), *mean_losses(points))
    result.verdict, result.reason = row["verdict"], row["reason"]
    if result.verdict == LAW:
        result.full_fit = fit(FORMS[row["form"]], points.take(~result.plateau))
    return result


def largest(points: LawPoints) -> NDArray[np.bool_]:
    """The points of the largest size, and where models vary, too, those of the largest model."""
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
    """How far a fit misses the means at places, as a share of them; the mean over the places.

    Where size and model vary, the worse of two: over the places of the largest model, and over the others.
    """
    places, means = mean_losses(beyond)
    off = np.abs(fit.predict(places) / means - 1)
    new = places.parameters == np.nan_to_num(places.parameters).max(initial=0)
    return max((float(off[side].mean()) for side in (new, ~new) if side.any()), default=float("nan"))


def _claim(result: LawResult, fitted: LawPoints, beyond: LawPoints) -> tuple[str, str]:
    """The verdict as far as it needs no look at the values held out."""
    if _flat(fitted):
        return NO_LAW, "no effect is measurable: the loss at the largest size fitted is no lower than at the smallest"
    best_fit, n = result.chosen, len(_places(fitted))
    if best_fit is None or n <= best_fit.form.count or np.isinf(best_fit.aicc):
        required = (best_fit.form if best_fit else fitting(fitted)[0] if len(fitted) else None, n)
        return UNKNOWN, _too_few(*required, int(result.plateau.sum()), len(fitted))
    if fit(CONSTANT, fitted).aicc <= best_fit.aicc:
        return NO_LAW, "a constant has the lower AICc: so few points carry no law"
    reason = _was_predictable(best_fit.form, fitted)
    if reason:
        return reason
    assert result.ends is not None
    low, high = result.ends[:, is_member(result.places, beyond)]
    width = float(np.log(high / low).max() / 2) if len(low) else float("inf")
    if not width <= WIDE:
        return (
            UNKNOWN,
            f"the prediction of the held-out size is known to {width:.1%} to a side only, {WIDE:.0%} is wanted",
        )
    degenerate = "; ".join(best_fit.form.ends(best_fit.at, best_fit.frame))
    return LAW, f"its constants are degenerate and not to be quoted: {degenerate}" if degenerate else ""


def _was_predictable(form: FunctionalForm, fitted: LawPoints) -> tuple[str, str] | None:
    """Whether the form, fitted to smaller sizes still, would have been believed."""
    inner = largest(fitted)
    smaller, last = fitted.take(~inner), fitted.take(inner)
    if len(_places(smaller)) < form.count:
        return UNKNOWN, f"{form.count} sizes below the largest one fitted are needed to check it"
    error, naive = prediction_error(fit(form, smaller), last), _naive_forecast(smaller, last)
    if not error <= MISSED:
        return NO_LAW, f"the largest size fitted is missed by {error:.1%} from the smaller ones"
    if error >= naive:
        return NO_LAW, f"the largest size fitted is missed by {error:.1%}, by {naive:.1%} if nothing changed"
    return None


def _too_few(form: FunctionalForm | None, places: int, n_near_chance: int, points: int) -> str:
    left_out_text = f"; {n_near_chance} points near to chance are left out" if n_near_chance else ""
    if form is None:
        return f"no point is left to fit{left_out_text}"
    requirement = f"{form.formula} takes {form.count + 3} points at {form.count + 1} places besides the largest"
    return f"{requirement}, and there are {points} at {places}{left_out_text}"


def _plateau(points: LawPoints, chance: float | None) -> NDArray[np.bool_]:
    """The points of places whose mean is near to chance."""
    if chance is None or not len(points):
        return np.zeros(len(points), bool)
    places, means = mean_losses(points)
    return is_member(points, places.take(means > PLATEAU * chance))


def is_member(points: LawPoints, other_points: LawPoints) -> NDArray[np.bool_]:
    """Which points lie at a size and model of others."""
    return np.asarray((_keys(points)[:, None] == _keys(other_points)[None]).all(axis=2).any(axis=1))


def _keys(points: LawPoints) -> Floats:
    return np.column_stack([np.nan_to_num(points.parameters, nan=-1), points.size])


def _places(points: LawPoints) -> Floats:
    """Different sizes and models, ascending."""
    return np.unique(_keys(points), axis=0)


def mean_losses(points: LawPoints) -> tuple[LawPoints, Floats]:
    """Each place and the mean loss there."""
    keys = _keys(points)
    places, number = np.unique(keys, axis=0, return_inverse=True)
    number = number.reshape(-1)
    means = np.bincount(number, points.value) / np.bincount(number) if len(keys) else np.empty(0)
    n_parameters = np.where(places[:, 0] < 0, np.nan, places[:, 0])
    return points.with_sizes(places[:, 1], n_parameters), means


def _in_turn(points: LawPoints) -> Floats | None:
    """Mean losses in ascending order of what varies; None where size and model do."""
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
