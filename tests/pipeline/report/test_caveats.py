"""Drift: the newest day against the seven before it, and nothing said of too few."""

import pyarrow as pa
import pytest

from darklode.pipeline.report.caveats import WATCHED, drift


def nights(*clicks: int) -> pa.Table:
    rows = [{"date": f"2026-03-{n + 1:02d}", **dict.fromkeys(WATCHED, 100), "clicks": c} for n, c in enumerate(clicks)]
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("clicks", [(), (10,), (10, 10, 10)])
def test_three_days_must_lie_before_it(clicks: tuple[int, ...]) -> None:
    table = nights(*clicks) if clicks else nights(1).slice(1)
    assert drift(table) == []


def test_seven_days_before_are_the_measure() -> None:
    found = {one.measure: one for one in drift(nights(10_000, 10, 20, 30, 10, 20, 30, 20, 5))}
    assert (found["clicks"].value, found["clicks"].mean, found["clicks"].change) == (5, 20, -0.75)
    assert found["exposures"].change == 0
    assert str(found["clicks"]) == "clicks 5 against 20.0 (-75%)"


def test_nothing_is_said_of_what_was_never_there() -> None:
    assert "clicks" not in {one.measure for one in drift(nights(0, 0, 0, 5))}
