"""The servers of a model: health, concurrency limits, load balancing, and when to give up."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.budget import Counters
from darklode.pipeline.base.remote.call_errors import BadReply, Stopped, TransientError
from darklode.pipeline.base.remote.concurrency import ConcurrencyLimit

MAX_FAILURES, MAX_FIRST_FAILURES = 20, 3
"""Consecutive failures after which a server counts as down: in general, and before its first answer."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds without calls to a server that is down


@dataclass(eq=False)
class Replica:
    """A server.

    Attributes:
        where: host, port and path, for messages.
        url: URL of the calls.
        concurrency: its adaptive concurrency limit.
        failing_since: time of the first failure after the last success (monotonic clock); None if there is none.
        reason: reason of the last failure.
    """

    where: str
    url: str
    concurrency: ConcurrencyLimit
    failing_since: float | None = None
    reason: str = ""
    _answered: bool = field(default=False, init=False)
    _failures: int = field(default=0, init=False)
    _pause: float = field(default=0.0, init=False)
    _down_until: float = field(default=0.0, init=False)

    @property
    def is_up(self) -> bool:
        """Whether calls may be sent to it."""
        return not self._down_until or time.monotonic() >= self._down_until

    @property
    def room(self) -> int:
        """Number of calls that may be sent to it."""
        return self.concurrency.room if self.is_up else 0

    @property
    def seconds_down(self) -> float:
        """Seconds until it is tried again."""
        return max(0.0, self._down_until - time.monotonic())

    @property
    def max_failures(self) -> int:
        """Consecutive failures after which it counts as down."""
        return MAX_FAILURES if self._answered else MAX_FIRST_FAILURES

    def record_success(self) -> float:
        """Record an answer; returns the seconds since its first failure if it counted as down, else 0."""
        down = self._down_until and self.failing_since
        seconds = time.monotonic() - down if down else 0.0
        self.failing_since, self._failures, self._pause, self._down_until = None, 0, 0.0, 0.0
        self._answered = True
        return seconds

    def record_failure(self, failure: TransientError) -> bool:
        """Record a failure; returns whether the server now counts as down."""
        now = time.monotonic()
        # An overloaded server first gets fewer concurrent calls; only then it counts as down.
        self._failures += not (failure.status and failure.overload and self.concurrency.limit > 1)
        self.reason = failure.reason
        self.failing_since = self.failing_since or now
        if self._failures < self.max_failures or not self.is_up:
            return False
        self._pause = min(self._pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)
        self._down_until = now + max(self._pause, failure.retry_after)
        self._failures = self.max_failures - 1  # the next failure counts as down again
        self.concurrency.restart()
        return True


@dataclass(frozen=True)
class Slot:
    """A reserved slot at a server, and when it was taken."""

    replica: Replica
    entered: float


def _load_of(replica: Replica) -> tuple[bool, float]:
    return replica.failing_since is not None, replica.concurrency.in_flight / replica.concurrency.limit


class Replicas:
    """All servers of a model. Calls go to servers with free slots, so that faster servers get more.

    Args:
        all_: the servers.
        retry_timeout: seconds without any answer after which the run stops.
        section: settings section, for messages.
        counters: `paused`, `in_flight` and `limit` are updated.
        say: called with a message when a server goes down or comes back.
    """

    def __init__(
        self,
        all_: Sequence[Replica],
        retry_timeout: float,
        section: str,
        counters: Counters,
        say: Callable[[str], None],
    ) -> None:
        self.all, self._retry_timeout, self._section = all_, retry_timeout, section
        self._counters, self._say = counters, say
        # Calls of started jobs, such as retries, go before new jobs.
        self._waiting_calls: deque[asyncio.Future[None]] = deque()
        self._waiting_jobs: deque[asyncio.Future[None]] = deque()
        self._is_waking = False
        self._n_waiting_calls = 0
        self._stop = asyncio.Event()

    @property
    def has_waiting_calls(self) -> bool:
        """Whether calls of started jobs, such as retries, wait for a slot: they go before new jobs."""
        return self._n_waiting_calls > 0

    @property
    def is_stopped(self) -> bool:
        """Whether no more calls may be sent."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop all waiting calls, because the run has failed."""
        self._stop.set()
        self._wake(len(self._waiting_calls) + len(self._waiting_jobs))

    async def pause(self, seconds: float) -> None:
        """Sleep.

        Raises:
            Stopped: the run has failed meanwhile.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return
        raise Stopped

    async def enter(self, preferred: Replica | None = None, *, is_new_job: bool = False) -> Slot:
        """Wait for a slot: at the preferred server if it has room, else at the least busy one.

        Args:
            preferred: the preferred server.
            is_new_job: whether it is for a job that has not started.

        Raises:
            DarklodeError: no server has answered for `retry_timeout` seconds.
            Stopped: the run has failed meanwhile.
        """
        while not self.is_stopped:
            if not (is_new_job and self.has_waiting_calls) and (slot := self.try_enter(preferred)):
                return slot
            self._check()
            self._n_waiting_calls += not is_new_job
            try:
                await self._change(self._waiting_jobs if is_new_job else self._waiting_calls)
            finally:
                self._n_waiting_calls -= not is_new_job
        raise Stopped

    def try_enter(self, preferred: Replica | None = None) -> Slot | None:
        """Take a slot as `enter` does; None if there is none."""
        available = [preferred] if preferred and preferred.room else [replica for replica in self.all if replica.room]
        if not available:
            return None
        chosen = available[0] if len(available) == 1 else min(available, key=_load_of)
        self._counters.in_flight += 1
        self._counters.limit = sum(replica.concurrency.limit for replica in self.all)
        return Slot(chosen, chosen.concurrency.enter())

    def leave(self, slot: Slot, failure: TransientError | None, *, answered: bool) -> None:
        """Release a slot, and update the server's health and concurrency limit with the outcome.

        Raises:
            DarklodeError: the call failed, and no server has answered for `retry_timeout` seconds.
        """
        replica = slot.replica
        self._counters.in_flight -= 1
        replica.concurrency.release(slot.entered, answered=answered, overloaded=bool(failure and failure.overload))
        if answered or (isinstance(failure, BadReply) and failure.healthy):
            if seconds := replica.record_success():
                self._counters.paused = ""
                self._say(f"{replica.where} answers again, after {seconds:.0f} s")
        elif failure and replica.record_failure(failure):
            self._counters.paused = (
                f"{replica.where} {failure.reason}, {replica.max_failures} times in a row: no calls for "
                f"{replica.seconds_down:.0f} s; the {self._section} gives up in {max(self._seconds_left(), 0):.0f} s"
            )
            self._say(self._counters.paused)
        if (self._waiting_calls or self._waiting_jobs) and not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake_for_room)
        if failure:
            self._check()

    def _wake_for_room(self) -> None:
        """Wake waiting calls, after the task that released a slot had the chance to take it for its next job."""
        self._is_waking = False
        self._wake(sum(replica.room for replica in self.all))

    async def _change(self, queue: deque[asyncio.Future[None]]) -> None:
        """Wait in a queue until a slot may be free: one was released, a server is due for a retry, or time is up."""
        waiter = asyncio.get_running_loop().create_future()
        queue.append(waiter)
        down = [replica.seconds_down for replica in self.all if not replica.is_up]
        try:
            # Not `wait_for`: in Python 3.11 it can swallow a cancellation, and calls would never end.
            async with asyncio.timeout(max(min(*down, self._seconds_left()), 0.01) if down else None):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._wake(1)  # this waiter may already have been given the slot
            raise

    def _wake(self, slots: int) -> None:
        for queue in (self._waiting_calls, self._waiting_jobs):
            while queue and slots > 0:
                waiter = queue.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    slots -= 1

    def _check(self) -> None:
        """Raise if no server has answered for `retry_timeout` seconds."""
        if self._seconds_left() <= 0:
            reasons = "; ".join(f"{replica.where} {replica.reason}" for replica in self.all)
            raise DarklodeError(
                f"{reasons}. No answer for {self._retry_timeout:g} s ({self._section}.retry_timeout). Results so "
                "far are kept: run again to continue"
            )

    def _seconds_left(self) -> float:
        """Seconds until the run stops, if no server answers."""
        since = [replica.failing_since for replica in self.all]
        latest = max(float("inf") if down_since is None else down_since for down_since in since)
        return latest + self._retry_timeout - time.monotonic()
