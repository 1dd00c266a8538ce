"""A trial in one line."""

from darklode.pipeline.train.fit.eval_point import EvalPoint
from darklode.pipeline.train.fit.progress import MAX_BARS, format_history, sparkline


def look(step: int, loss: float | None, validation: float, replaced: float | None) -> EvalPoint:
    return EvalPoint(step, loss, validation, replaced, 0.5, 0.0, 0.9)


def test_all_four_curves_stand_in_the_line_with_where_they_are() -> None:
    looks = [look(0, None, 0.4, None), look(50, 2.0, 0.41, None), look(100, 1.0, 0.48, 0.25)]
    assert format_history(looks[:1]) == "loss –, validation 0.4000 ▁, replaced –, spread 0.900 ▁"
    assert format_history(looks) == "loss 1.000 █▁, validation 0.4800 ▁▂█, replaced 25% ▁, spread 0.900 ▁▁▁"


def test_a_curve_goes_from_its_least_to_its_most_and_shows_the_latest() -> None:
    assert sparkline([float(n) for n in range(8)]) == "▁▂▃▄▅▆▇█"
    assert sparkline([9.0, *[0.0] * MAX_BARS]) == "▁" * MAX_BARS
    assert sparkline([None]) == ""
