"""Servers of one model: which one a call goes to, when one is down, and when hope is over."""

from __future__ import annotations

import asyncio

import pytest

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote import replicas as module
from darklode.pipeline.base.remote.budget import Counters
from darklode.pipeline.base.remote.call_errors import BadReply, Stopped, TransientError
from darklode.pipeline.base.remote.concurrency import ConcurrencyLimit
from darklode.pipeline.base.remote.replicas import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MAX_FAILURES,
    MAX_FIRST_FAILURES,
    Replica,
    Replicas,
)

BROKEN = TransientError("broke the connection")
BUSY = TransientError("answered 429", status=429, overload=True)


def replica(name: str = "one", most: int = 2) -> Replica:
    """A server that has answered before."""
    made = Replica(name, f"http://{name}/v1", ConcurrencyLimit(most))
    made.record_success()
    return made


def of(*all_: Replica, retry_timeout: float = 60.0) -> tuple[Replicas, list[str]]:
    said: list[str] = []
    return Replicas(all_, retry_timeout, "judge", Counters(), said.append), said


def down(one: Replica) -> Replica:
    for _ in range(MAX_FAILURES):
        one.record_failure(BROKEN)
    return one


def test_a_server_counts_as_down_after_failures_in_a_row() -> None:
    one = replica()
    assert not any(one.record_failure(BROKEN) for _ in range(MAX_FAILURES - 1))
    assert (one.is_up, one.room) == (True, 2)
    assert one.record_failure(BROKEN)
    assert (one.is_up, one.room, one.concurrency.limit) == (False, 0, 1)
    assert 0 < one.seconds_down <= FIRST_PAUSE
    assert not one.record_failure(BROKEN), "what fails while it is down is no news"


def test_one_that_never_answered_counts_as_down_sooner() -> None:
    one = Replica("new", "http://new/v1", ConcurrencyLimit(2))
    assert [one.record_failure(BROKEN) for _ in range(MAX_FIRST_FAILURES)] == [False] * (MAX_FIRST_FAILURES - 1) + [
        True
    ]
    one._down_until = 1e-9  # the pause is over
    one.record_success()
    assert not any(one.record_failure(BROKEN) for _ in range(MAX_FAILURES - 1))


def test_a_success_between_makes_it_count_anew() -> None:
    one = replica()
    for _ in range(3):
        assert not any(one.record_failure(BROKEN) for _ in range(MAX_FAILURES - 1))
        one.record_success()
    assert (one.failing_since, one.is_up) == (None, True)


def test_a_busy_server_gets_fewer_calls_before_it_gets_none() -> None:
    one = replica(most=4)
    assert not any(one.record_failure(BUSY) for _ in range(3 * MAX_FAILURES))
    assert one.is_up
    one.concurrency.restart()
    assert any(one.record_failure(BUSY) for _ in range(MAX_FAILURES)), (
        "with one call at a time it is down like any other"
    )


def test_pauses_double_up_to_a_bound_and_a_server_may_ask_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    one, pauses = down(replica()), []
    for _ in range(8):
        pauses.append(one._pause)
        one._down_until = 1e-9  # the pause is over
        assert one.record_failure(BROKEN), "one failure more is enough"
    assert pauses == [min(FIRST_PAUSE * 2**number, LONGEST_PAUSE) for number in range(8)]
    one._down_until = 1e-9
    assert one.record_failure(TransientError("answered 503", status=503, retry_after=100))
    assert one.seconds_down > LONGEST_PAUSE


def test_a_call_goes_to_the_least_busy_server_that_works() -> None:
    async def go() -> list[str]:
        given = [replica("one", 4), replica("two", 4), down(replica("down"))]
        given[0].failing_since = 1.0
        all_, _ = of(*given)
        return [(await all_.enter()).replica.where for _ in range(6)] + [(await all_.enter(given[0])).replica.where]

    assert asyncio.run(go()) == ["two", "two", "two", "two", "one", "one", "one"]


def test_who_waits_gets_the_slot_that_is_given_back() -> None:
    async def go() -> tuple[bool, int]:
        all_, _ = of(replica(most=1))
        first = await all_.enter()
        waiting = asyncio.create_task(all_.enter())
        await asyncio.sleep(0.02)
        waited = not waiting.done()
        all_.leave(first, None, answered=True)
        all_.leave(await waiting, None, answered=True)
        return waited, all_._counters.in_flight

    assert asyncio.run(go()) == (True, 0)


def test_who_gives_up_waiting_passes_the_slot_on() -> None:
    async def go() -> str:
        all_, _ = of(replica(most=1))
        first = await all_.enter()
        impatient, patient = (asyncio.create_task(all_.enter()) for _ in range(2))
        await asyncio.sleep(0.01)
        all_.leave(first, None, answered=True)
        impatient.cancel()
        return (await asyncio.wait_for(patient, 5)).replica.where

    assert asyncio.run(go()) == "one"


def test_when_all_are_cancelled_a_slot_given_back_keeps_nobody() -> None:
    async def go() -> list[bool]:
        all_, _ = of(replica(most=1), down(replica("down")))

        async def call() -> None:
            while True:
                slot = await all_.enter()
                try:
                    await asyncio.sleep(60)
                finally:
                    all_.leave(slot, None, answered=False)

        tasks = [asyncio.create_task(call()) for _ in range(3)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        done, _ = await asyncio.wait(tasks, timeout=5)
        return [task.cancelled() for task in done]

    assert asyncio.run(go()) == [True] * 3


def test_down_and_back_are_said() -> None:
    async def go() -> list[str]:
        one = replica()
        all_, said = of(one)
        for _ in range(MAX_FAILURES):
            all_.leave(await all_.enter(), BROKEN, answered=False)
        assert all_._counters.paused == said[0]
        one._down_until = 1e-9
        all_.leave(await all_.enter(), None, answered=True)
        assert all_._counters.paused == ""
        return said

    first, second = asyncio.run(go())
    assert first.startswith(
        f"one broke the connection, {MAX_FAILURES} times in a row: no calls for 1 s; the judge gives up"
    )
    assert second == "one answers again, after 0 s"


def test_a_failure_that_passes_says_nothing_of_a_server_that_is_down() -> None:
    async def go() -> tuple[list[str], str]:
        one, other = replica("one"), replica("other")
        all_, said = of(one, other)
        for _ in range(MAX_FAILURES):
            all_.leave(await all_.enter(one), BROKEN, answered=False)
        for failure in (BROKEN, None):
            all_.leave(await all_.enter(other), failure, answered=failure is None)
        return said, all_._counters.paused

    said, paused = asyncio.run(go())
    assert [paused] == said
    assert paused.startswith("one broke the connection")


@pytest.mark.parametrize(("healthy", "since"), [(True, None), (False, 0.0)])
def test_a_reply_that_cannot_be_read_shows_that_a_server_is_up_unless_something_else_sent_it(
    healthy: bool, since: float | None
) -> None:
    async def go() -> float | None:
        all_, _ = of(replica())
        all_.leave(await all_.enter(), BadReply("is not JSON", healthy=healthy), answered=False)
        return all_.all[0].failing_since

    found = asyncio.run(go())
    assert found is None if since is None else found is not None


def test_hope_is_over_when_no_server_has_answered_for_so_long() -> None:
    async def go(*failing: float | None) -> None:
        given = [replica(f"s{number}") for number in range(len(failing))]
        for one, since in zip(given, failing, strict=True):
            one.failing_since, one.reason = since, "broke"
        all_, _ = of(*given, retry_timeout=5.0)
        all_.leave(await all_.enter(), BROKEN, answered=False)

    now = module.time.monotonic()
    with pytest.raises(
        DarklodeError, match=r"s0 broke the connection; s1 broke\. No answer for 5 s \(judge\.retry_timeout\)"
    ):
        asyncio.run(go(now - 6, now - 6))
    asyncio.run(go(now - 6, now - 1))
    asyncio.run(go(now - 6, None))


def test_when_the_work_has_failed_nobody_waits_on() -> None:
    async def go() -> list[object]:
        all_, _ = of(replica(most=1))
        await all_.enter()
        waiting = [asyncio.create_task(all_.enter()), asyncio.create_task(all_.pause(60))]
        await asyncio.sleep(0.01)
        all_.stop()
        assert all_.is_stopped
        return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)

    assert [type(one) for one in asyncio.run(go())] == [Stopped, Stopped]
    asyncio.run(of(replica())[0].pause(0.001))
