"""How many calls at once: what growth, shrinkage and a restart do, by a clock that the test sets."""

from __future__ import annotations

import pytest

from darklode.pipeline.base.remote import concurrency as module
from darklode.pipeline.base.remote.concurrency import (
    INITIAL_LIMIT,
    MIN_WINDOW_SECONDS,
    WINDOWS_BEFORE_RETRY,
    ConcurrencyLimit,
)


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def round_of(pace: ConcurrencyLimit, clock: Clock, seconds: float, *, answered: int, overloaded: int = 0) -> None:
    """So many calls at once that end together after some seconds."""
    entered = [pace.enter() for _ in range(answered + overloaded)]
    clock.now += seconds
    for number, at in enumerate(entered):
        pace.release(at, answered=number < answered, overloaded=number >= answered)


def test_it_begins_small_and_never_exceeds_what_is_allowed(clock: Clock) -> None:
    assert ConcurrencyLimit(1000).limit == INITIAL_LIMIT
    assert ConcurrencyLimit(3).limit == 3
    pace = ConcurrencyLimit(40)
    for _ in range(9):
        round_of(pace, clock, 2 * MIN_WINDOW_SECONDS, answered=pace.limit)
    assert pace.limit == 40


def test_it_doubles_while_that_brings_throughput(clock: Clock) -> None:
    pace, limits = ConcurrencyLimit(1000), []
    for _ in range(4):
        limits.append(pace.limit)
        round_of(pace, clock, 2 * MIN_WINDOW_SECONDS, answered=pace.limit)
    assert limits == [16, 32, 64, 128]


def test_a_server_that_answers_no_faster_keeps_its_limit_and_is_tried_again_later(clock: Clock) -> None:
    pace, limits = ConcurrencyLimit(10_000), []
    for _ in range(WINDOWS_BEFORE_RETRY + 6):
        limits.append(pace.limit)
        round_of(pace, clock, pace.limit / 100, answered=pace.limit)  # 100 a second, however many at once
    assert limits[:3] == [16, 32, 32]
    assert len(set(limits[1 : WINDOWS_BEFORE_RETRY + 2])) == 1
    assert limits[-1] == int(limits[1] * 1.1 + 1), "after a while it creeps on"


def test_places_that_were_not_taken_say_nothing_of_the_limit(clock: Clock) -> None:
    pace = ConcurrencyLimit(1000)
    for _ in range(40):
        round_of(pace, clock, 2 * MIN_WINDOW_SECONDS, answered=INITIAL_LIMIT - 1)
    assert pace.limit == INITIAL_LIMIT


def test_calls_overloaded_take_three_tenths_off_once(clock: Clock) -> None:
    pace = ConcurrencyLimit(1000, first=100)
    round_of(pace, clock, 1.0, answered=0, overloaded=100)
    assert pace.limit == 70, "calls of before the step count no more"
    round_of(pace, clock, 1.0, answered=60, overloaded=10)
    assert pace.limit == 70, "a few are turned away for other reasons"


def test_it_never_falls_below_one(clock: Clock) -> None:
    pace = ConcurrencyLimit(8, first=2)
    for _ in range(20):
        for _ in range(4):
            round_of(pace, clock, 0.01, answered=0, overloaded=1)
    assert (pace.limit, pace.room) == (1, 1)


def test_room_is_what_is_not_taken(clock: Clock) -> None:
    pace = ConcurrencyLimit(2)
    first = pace.enter()
    assert (pace.room, pace.in_flight) == (1, 1)
    pace.enter()
    pace.enter()
    assert pace.room == 0, "never below nothing"
    pace.release(first, answered=True, overloaded=False)
    assert pace.in_flight == 2


def test_after_a_restart_it_begins_with_one_and_old_failures_do_not_count(clock: Clock) -> None:
    pace = ConcurrencyLimit(1000, first=50)
    entered = [pace.enter() for _ in range(50)]
    clock.now += 1
    pace.restart()
    assert pace.limit == 1
    for at in entered:
        pace.release(at, answered=False, overloaded=True)
    assert (pace.limit, pace.room) == (1, 1)
    round_of(pace, clock, 2 * MIN_WINDOW_SECONDS, answered=1)
    assert pace.limit == 2


def test_one_call_may_always_be_under_way_however_often_it_is_overloaded(clock: Clock) -> None:
    pace = ConcurrencyLimit(8, first=4)
    for _ in range(30):
        round_of(pace, clock, MIN_WINDOW_SECONDS / 4, answered=0, overloaded=1)
        assert pace.limit >= 1
        assert pace.room >= 1
