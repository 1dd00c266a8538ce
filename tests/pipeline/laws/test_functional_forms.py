"""The forms: which of them points can speak of, what they are at known places, and where the search begins."""

import numpy as np
import pytest

from darklode.pipeline.laws.functional_forms import (
    ADDITIVE,
    FORMS,
    JOINT,
    PARAMETERS,
    SIZE,
    SIZE_WITH_OFFSET,
    DataScale,
    FunctionalForm,
    LawPoints,
    fitting_forms,
)


def points(sizes: list[float], models: list[float] | None = None) -> LawPoints:
    n = len(sizes)
    return LawPoints(np.array(sizes), np.full(n, np.nan) if models is None else np.array(models), np.linspace(2, 1, n))


def test_what_varies_says_which_laws_can_be_told() -> None:
    assert fitting_forms(points([1, 2, 4])) == [SIZE, SIZE_WITH_OFFSET]
    assert fitting_forms(points([0, 1, 2])) == [SIZE_WITH_OFFSET]  # Eq. 8 is infinite at D = 0
    assert fitting_forms(points([8, 8, 8], [1, 2, 4])) == [PARAMETERS]
    assert fitting_forms(points([1, 2, 4], [1, 2, 4])) == [JOINT, ADDITIVE]
    assert fitting_forms(points([1, 2, 4], [1, 2, np.nan])) == [SIZE, SIZE_WITH_OFFSET]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_start_lies_within_the_limits(form: FunctionalForm) -> None:
    frame = DataScale.from_points(points([100, 200, 400], [1e6, 2e6, 4e6]))
    low, high = form.limits(frame)
    starts = form.starts(frame)
    assert starts.shape[1] == form.count == len(low)
    assert ((starts >= low) & (starts <= high)).all()


def test_a_form_says_what_its_constants_say() -> None:
    mine = points([100, 200, 400], [1e6, 2e6, 4e6])
    frame = DataScale.from_points(mine)
    at = np.array([0.3, 0.5, -0.2, 0.8, 0.1])
    a, alpha, b, beta, delta = JOINT.to_constants(at, frame)
    by_hand = ((a / mine.parameters) ** (alpha / beta) + b / mine.size) ** beta + delta
    assert np.exp(JOINT.log_value(at, frame, mine)) == pytest.approx(by_hand)
    a, alpha, b, beta, delta = ADDITIVE.to_constants(at, frame)
    by_hand = (a / mine.parameters) ** alpha + (b / mine.size) ** beta + delta
    assert np.exp(ADDITIVE.log_value(at, frame, mine)) == pytest.approx(by_hand)
    at = np.array([0.3, 0.5, 4.0, 0.1])
    b, beta, d0, delta = SIZE_WITH_OFFSET.to_constants(at, frame)
    by_hand = (b / (mine.size + d0)) ** beta + delta
    assert np.exp(SIZE_WITH_OFFSET.log_value(at, frame, mine)) == pytest.approx(by_hand)


def test_a_begun_law_is_finite_without_labels() -> None:
    mine = points([0, 100, 400])
    value = np.exp(SIZE_WITH_OFFSET.log_value(np.array([0.1, 0.5, 5.0, 0.2]), DataScale.from_points(mine), mine))
    assert np.isfinite(value).all()
    assert (np.diff(value) < 0).all()
