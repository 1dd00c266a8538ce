"""Waiting for coroutines: results, errors, ticks, and nothing left running behind an interrupt."""

import asyncio
import time
from concurrent.futures import Future

import pytest

from darklode.pipeline.base.remote import background
from darklode.pipeline.base.remote.background import Background


async def slow(seconds: float, log: list[str]) -> int:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(0.05)  # such as keeping what was answered
        log.append("cleaned up")
        raise
    return 7


def never() -> None:
    raise AssertionError("too early")


async def broken(error: BaseException) -> int:
    raise error


def test_results_and_errors_come_back_and_the_loop_stays() -> None:
    loops = []

    async def loop() -> None:
        loops.append(asyncio.get_running_loop())

    with Background() as ours:
        assert ours.run(slow(0, []), never) == 7
        for error in (ValueError("no"), TimeoutError("its own")):
            with pytest.raises(type(error), match=str(error)):
                ours.run(broken(error), never)
        ours.run(loop(), never)
        ours.run(loop(), never)
    assert loops[0] is loops[1]
    assert loops[0].is_closed()


def test_it_ticks_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "TICK_SECONDS", 0.02)
    ticks: list[float] = []
    with Background() as ours:
        assert ours.run(slow(0.3, []), lambda: ticks.append(time.monotonic())) == 7
    assert len(ticks) >= 3


def test_an_interrupt_waits_until_the_work_has_cleaned_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "TICK_SECONDS", 0.02)
    log: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    with Background() as ours:
        with pytest.raises(KeyboardInterrupt):
            ours.run(slow(60, log), interrupt)
        assert log == ["cleaned up"]
        assert ours.run(slow(0, log), never) == 7


def test_an_interrupt_ends_work_that_had_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "TICK_SECONDS", 0.02)
    log: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    with Background() as ours:
        ours._loop.call_soon_threadsafe(time.sleep, 0.3)
        with pytest.raises(KeyboardInterrupt):
            ours.run(slow(0, log), interrupt)
        assert ours.run(slow(0, log), lambda: None) == 7
    assert log == []


class EndsAsItsTimeIsUp(Future[int]):
    """Its result comes just after the wait for it has timed out."""

    def result(self, timeout: float | None = None) -> int:
        found = super().result()
        if timeout is not None:
            raise TimeoutError
        return found


def test_a_result_that_comes_as_its_time_is_up_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "Future", EndsAsItsTimeIsUp)
    with Background() as ours:
        assert ours.run(slow(0, []), never) == 7
