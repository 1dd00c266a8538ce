"""Rows as JSON lines, and the days of rows."""

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from darklode.pipeline.ingest.sources.rows import DayRange, days_of, json_line

DAY = date(2026, 3, 1)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("größe\n", "größe\n"),
        (None, None),
        (7, 7),
        (math.nan, None),
        ({"a": [math.inf, 1.5]}, {"a": [None, 1.5]}),
        (Decimal("17.50"), "17.50"),
        (datetime(2026, 3, 1, 10, tzinfo=UTC), "2026-03-01T10:00:00+00:00"),
        (DAY, "2026-03-01"),
        (timedelta(seconds=90), 90.0),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"text", "text"),
        (memoryview(b"\xff\xfe"), {"bytes": 2}),
        ({"y", "x"}, ["x", "y"]),
    ],
)
def test_a_value_is_read_back(value: Any, read: Any) -> None:
    line = json_line({"value": value})
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"value": read}


def test_a_lone_surrogate_stays_for_the_reader_to_reject() -> None:
    assert json_line({"value": "\ud800"}) == b'{"value":"\\ud800"}\n'


def test_days_are_those_of_utc() -> None:
    berlin = timezone(timedelta(hours=1))
    times = [
        datetime(2026, 3, 1, 0, 30, tzinfo=berlin),
        datetime(2026, 3, 1, 0, 30),
        "2026-03-01T00:30:00+01:00",
        "2026-03-01 12:00:00",
        int(datetime(2026, 3, 1, tzinfo=UTC).timestamp()),
        DAY,
        None,
        True,
        "yesterday",
    ]
    rows = [{"at": time} for time in times] + [{}]
    before = date(2026, 2, 28)
    assert days_of(rows, "at", "Europe/Berlin") == [before, before, before, DAY, DAY, before, *[None] * 4]


def test_a_query_for_days_is_wider_than_they_are() -> None:
    days = DayRange(DAY, date(2026, 3, 2))
    assert [date(2026, 2, 28) in days, DAY in days, date(2026, 3, 2) in days, date(2026, 3, 3) in days] == [
        False,
        True,
        True,
        False,
    ]
    assert days.bounds == (date(2026, 2, 28), date(2026, 3, 4))
    assert DayRange(None, DAY).bounds == (None, date(2026, 3, 3))
    assert DAY in DayRange()
