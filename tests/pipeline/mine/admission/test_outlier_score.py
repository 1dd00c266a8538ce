"""Robust distances from the days before, worked out by hand."""

from collections.abc import Mapping
from datetime import date, timedelta

import duckdb
import pyarrow as pa
import pytest

from darklode.pipeline.mine.admission.outlier_score import distances
from darklode.schemas.tables import TABLES

DAY = date(2026, 3, 30)
MEASURES = TABLES["day_measures"]


def far(before: Mapping[int, float], value: float, measure: str = "searches", size: float = 1.0) -> float | None:
    """The distance of a value from those of days so many days before."""
    rows = [
        {"tenant": "t", "date": DAY - timedelta(back), "measure": measure, "value": one, "size": size, "expected": one}
        for back, one in before.items()
    ]
    with duckdb.connect() as connection:
        connection.register("measures_before", pa.Table.from_pylist(rows, MEASURES.schema))
        today = pa.table({"tenant": ["t"], "measure": [measure], "value": [value], "size": [size]})
        (row,) = distances(connection, today, str(DAY)).to_pylist()
    found: float | None = row["distance"]
    return found


LARGE = 20.0  # a logarithm of so many searches that chance has no part in it
WEEKDAYS = {7 * week: LARGE for week in range(1, 5)}


def test_the_same_weekday_counts_and_no_other() -> None:
    others = {back: LARGE - 1.1 for back in range(1, 28) if back % 7}
    assert far(WEEKDAYS | others, LARGE + 0.2) == 2.0
    assert far(WEEKDAYS | others, LARGE - 1.1) == 11.0


def test_before_there_are_three_of_a_weekday_other_days_count_and_weekends_are_expected() -> None:
    assert far(dict.fromkeys(range(1, 6), LARGE), LARGE - 1.1) == pytest.approx(4.4)
    assert far(dict.fromkeys(range(1, 5), LARGE), LARGE - 9) is None
    assert far(dict.fromkeys(range(1, 7), LARGE) | {7: LARGE - 1.1}, LARGE - 1.1) == 0.0


def test_days_that_vary_more_than_the_least_spread_widen_it() -> None:
    varied = {7: 20.0, 14: 20.2, 21: 20.4, 28: 20.6, 35: 20.8}
    assert far(varied, 21.4) == pytest.approx(1.0 / (1.4826 * 0.2), abs=0.001)


def test_few_counts_are_given_to_chance() -> None:
    few = dict.fromkeys(range(7, 57, 7), 1.0)
    assert far(few, 3.0) == pytest.approx(2 / (0.01 + 2 / 2.71828) ** 0.5, abs=0.001)


def test_what_may_only_be_low_is_never_too_high() -> None:
    assert far(dict.fromkeys(range(7, 57, 7), 1.0), 1.5, "known_queries", 1e9) == 0.0
    assert far(dict.fromkeys(range(7, 57, 7), 1.0), 0.5, "known_queries", 1e9) == 10.0


def test_eight_weeks_back_it_ends() -> None:
    assert far({7 * week: LARGE for week in (9, 10, 11)} | {1: LARGE}, LARGE + 5) is not None
