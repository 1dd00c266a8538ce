"""Which points are a law, and which are not: real curves that refuse to be one, and planted ones."""

import re

import numpy as np
import pytest

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.laws import verdict
from darklode.pipeline.laws.curve_fitting import Fit
from darklode.pipeline.laws.fit_stage import CHANCE_LOSSES
from darklode.pipeline.laws.functional_forms import ADDITIVE, DataScale, LawPoints
from darklode.pipeline.laws.points import ENTROPY_MEASURE
from darklode.pipeline.laws.verdict import LAW, NO_LAW, NOT_IDENTIFIABLE, LawResult, find_law, largest, prediction_error
from helpers.repeats import mostly_slow

# A bag of embeddings trained from scratch, at six sizes of data and at seven of the model; a head on a frozen encoder.
BY_SIZE = [250, 500, 1000, 2000, 4000, 8000], [5.29, 5.24, 5.05, 4.69, 4.40, 3.94]
BY_MODEL = [640, 1152, 2176, 4224, 8320, 16512, 32896], [5.11, 4.78, 4.57, 4.22, 3.94, 3.66, 3.64]
OF_HEAD = [15, 30, 60, 120], [3.65, 3.65, 3.67, 3.68]

SIZES = np.repeat(2.0 ** np.arange(7, 14), 3)


def judged(size: object, value: object, parameters: object = None, resamples: int = 30) -> LawResult:
    sizes, values = np.asarray(size, float), np.asarray(value, float)
    models = np.full(len(sizes), np.nan) if parameters is None else np.asarray(parameters, float)
    return find_law(LawPoints(sizes, models, values), CHANCE_LOSSES[ENTROPY_MEASURE], resamples, 0)


def noisy(exact: Doubles, spread: float) -> Doubles:
    return exact * np.exp(np.random.default_rng(1).normal(0, spread, len(exact)))


def test_a_curve_that_leaves_chance_late_is_not_identifiable() -> None:
    found = judged(*BY_SIZE)
    assert (found.verdict, found.claimed) == (NOT_IDENTIFIABLE, False)
    assert found.plateau.sum() == 3
    assert "3 points near chance are left out" in found.reason


def test_a_curve_with_an_r2_of_997_is_not_identifiable_and_misses_the_largest() -> None:
    found = judged([8000] * 7, BY_MODEL[1], BY_MODEL[0])
    assert found.verdict == NOT_IDENTIFIABLE
    assert found.chosen is not None
    assert found.chosen.r2 > 0.99
    assert found.error > 0.05


def test_what_does_not_fall_is_no_law() -> None:
    found = judged(*OF_HEAD)
    assert found.verdict == NO_LAW
    assert "no effect is measurable" in found.reason


def test_what_reached_its_best_is_no_law() -> None:
    found = judged([0, 50, 100, 200, 400], [0.02, 0.01, 0.01, 0.0, 0.0])
    assert (found.verdict, found.chosen) == (NO_LAW, None)
    assert "0 at 2 of 5 points" in found.reason


def test_a_planted_law_is_claimed_and_holds_at_the_largest() -> None:
    found = judged(SIZES, noisy((600 / SIZES) ** 0.4 + 0.8, 0.003))
    assert found.verdict == LAW
    assert found.claimed
    assert found.error < 0.03 < found.naive
    assert found.full_fit is not None
    assert found.ends is not None
    assert (found.ends[0] <= found.mean_loss * 1.01).all()


@pytest.mark.slow
def test_a_law_that_breaks_at_the_largest_is_taken_back() -> None:
    value = (600 / SIZES) ** 0.4 + 0.8
    found = judged(SIZES, np.where(SIZES.max() == SIZES, value * 1.08, value))
    assert (found.verdict, found.claimed) == (NO_LAW, True)
    assert "a law was claimed" in found.reason


@pytest.mark.parametrize("spread", mostly_slow([0.02, 0.1], fast=1))
@pytest.mark.slow
def test_noise_alone_is_no_law(spread: float) -> None:
    assert judged(SIZES, noisy(np.full(len(SIZES), 1.5), spread)).verdict != LAW


@pytest.mark.slow
def test_the_held_out_point_changes_no_claim() -> None:
    value = noisy((600 / SIZES) ** 0.4 + 0.8, 0.003)
    found = [judged(SIZES, np.where(SIZES.max() == SIZES, value * off, value)) for off in (1, 1.2)]
    assert [one.claimed for one in found] == [True, True]
    assert found[0].chosen is not None
    assert found[1].chosen is not None
    assert found[0].chosen.constants == found[1].chosen.constants


def test_the_largest_of_a_grid_are_those_of_the_largest_size_and_of_the_largest_model() -> None:
    size, model = np.array([1.0, 2, 1, 2]), np.array([5.0, 5, 9, 9])
    assert largest(LawPoints(size, model, size)).tolist() == [False, True, True, True]


@pytest.mark.slow
def test_a_width_is_told_finer_than_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "MAX_INTERVAL", 0.001)
    found = judged(SIZES, noisy((600 / SIZES) ** 0.4 + 0.8, 0.003))
    assert found.verdict == NOT_IDENTIFIABLE
    assert re.search(r"is ±[1-9]?\d\.\d%; at most", found.reason)


def test_a_model_that_is_missed_is_not_hidden_by_sizes_that_are_not() -> None:
    size, model = (one.ravel() for one in np.meshgrid(2.0 ** np.arange(5, 10), [2e6, 4e6, 8e6, 1.6e7]))
    points = LawPoints(size, model, np.ones(20))
    whole = Fit(ADDITIVE, np.array([-1.0, 0.57, -0.5, 0.5, 0.03]), DataScale.from_points(points), points, 0.0, 1, 1)
    value = whole.predict(points)
    value[model == model.max()] *= 1.04
    beyond = points.with_values(value).take(largest(points))
    assert prediction_error(whole, beyond) == pytest.approx(1 - 1 / 1.04)
    alone = points.with_values(value).take(model == model.min())
    assert prediction_error(whole, alone) == pytest.approx(0)


@pytest.mark.parametrize("empty", [0, 1], ids=["before", "after"])
def test_without_points_before_or_after_nothing_is_known_of_the_size_before(empty: int) -> None:
    points = [LawPoints(SIZES[at : at + 3], np.full(3, np.nan), np.ones(3)) for at in (0, 3)]
    points[empty] = points[empty].take(np.zeros(3, np.bool_))
    assert np.isnan(verdict._naive_forecast(points[0], points[1]))


def test_without_points_none_is_the_largest() -> None:
    empty = np.empty(0)
    assert largest(LawPoints(empty, empty, empty)).tolist() == []
