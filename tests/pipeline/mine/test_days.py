"""From which days something is learned, and what names a day's rows."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.mine.days import chain_fingerprints, days_until, settled_through

FIRST = date(2026, 3, 1)


def day(number: int) -> date:
    return FIRST + timedelta(number - 1)


@pytest.mark.parametrize(
    ("last", "expected"), [(1, None), (7, None), (8, 5), (10, 5), (14, 5), (15, 12), (21, 12), (22, 19)]
)
def test_a_period_learns_from_what_was_settled_when_it_began(last: int, expected: int | None) -> None:
    found = settled_through(FIRST, day(last), refresh_days=7, late_days=2, requested=None)
    assert found == (day(expected) if expected else None)


def test_without_periods_nothing_is_learned_until_somebody_asks() -> None:
    given = {"refresh_days": 0, "late_days": 2}
    assert settled_through(FIRST, day(100), requested=None, **given) is None
    assert settled_through(FIRST, day(100), requested=day(50), **given) == day(48)


def test_what_was_asked_for_stands_until_the_next_period() -> None:
    given = {"refresh_days": 7, "late_days": 2}
    assert settled_through(FIRST, day(10), requested=day(10), **given) == day(8)
    assert settled_through(FIRST, day(14), requested=day(10), **given) == day(8)
    assert settled_through(FIRST, day(15), requested=day(10), **given) == day(12)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 5))
def test_what_is_learned_from_is_settled(last: int, refresh_days: int, late_days: int) -> None:
    found = settled_through(FIRST, day(last), refresh_days=refresh_days, late_days=late_days, requested=None)
    assert found is None or FIRST <= found < day(last) - timedelta(late_days)


def test_a_changed_day_changes_all_after_it() -> None:
    before = {"2026-03-01": "a", "2026-03-02": "b", "2026-03-03": "c"}
    after = before | {"2026-03-02": "x"}
    same = [one for one in before if chain_fingerprints(before)[one] == chain_fingerprints(after)[one]]
    assert same == ["2026-03-01"]
    assert days_until(before, date(2026, 3, 2)) == {"2026-03-01": "a", "2026-03-02": "b"}
    assert days_until(before, None) == {}
