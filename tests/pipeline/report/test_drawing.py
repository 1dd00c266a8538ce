"""From numbers to places on an axis."""

from math import log10

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.report.drawing import AxisScale, integer_step, round_up_nicely


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, 1), (-3, 1), (1, 1), (1.1, 2), (2, 2), (3, 5), (5.1, 10), (0.03, 0.05), (0.3, 0.5), (99, 100)],
)
def test_nice_numbers(value: float, said: float) -> None:
    assert round_up_nicely(value) == pytest.approx(said)


@given(st.floats(1e-9, 1e12))
def test_a_nice_number_is_the_next_of_its_kind(value: float) -> None:
    found = round_up_nicely(value)
    assert value <= found * (1 + 1e-9) <= value * 2.5 * (1 + 1e-6)
    assert round(found / 10 ** round(log10(found) // 1), 6) in {1, 2, 5, 10}


@pytest.mark.parametrize(("value", "step"), [(0, 1), (0.2, 1), (1.5, 2), (30, 50)])
def test_a_whole_step_is_never_below_one(value: float, step: int) -> None:
    assert integer_step(value) == step


@pytest.mark.parametrize(
    ("high", "end", "ticks"),
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (7, 8, ["0", "2", "4", "6", "8"]),
        (100, 100, ["0", "20", "40", "60", "80", "100"]),
        (18_000, 20_000, ["0", "5k", "10k", "15k", "20k"]),
    ],
)
def test_an_axis_from_nothing_ends_at_a_round_number(high: float, end: float, ticks: list[str]) -> None:
    scale = AxisScale.up_to(high)
    assert (scale.low, scale.high) == (0, end)
    assert [said for _, said in scale.axis("").ticks] == ticks


@given(st.floats(0, 1), st.floats(0, 1))
def test_an_axis_around_holds_both_ends_and_has_a_width(one: float, other: float) -> None:
    low, high = sorted((one, other))
    scale = AxisScale.including(low, high, 0.02)
    assert scale.low <= low + 1e-9
    assert scale.high >= high - 1e-9
    assert scale.high - scale.low >= 0.02 - 1e-9


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (0.91, 1.0, (0.9, 1)),
        (0.997, 1.0, (0.98, 1)),
        (0.0, 0.0, (0, 0.02)),
        (-0.1, 0.3, (-0.1, 0.3)),
        (0.0, 1.0, (0, 1)),
    ],
)
def test_an_axis_around_fits_its_numbers(low: float, high: float, ends: tuple[float, float]) -> None:
    scale = AxisScale.including(low, high, 0.02)
    assert (scale.low, scale.high) == ends


def test_places_are_percent_of_the_way_and_never_outside() -> None:
    scale = AxisScale(10, 30)
    assert [scale.position_of(value) for value in (5, 10, 15, 30, 99)] == [0, 0, 25, 100, 100]
    assert scale.span(15, 20) == 25
    assert AxisScale(3, 3).position_of(3) == 0
