"""The servers of one model: which of them is up, how much each bears, who gets the next call, and when to give up."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote.budget import Counters
from darklode.pipeline.base.remote.call_errors import BadReply, Passing, Stopped
from darklode.pipeline.base.remote.concurrency import ConcurrencyLimit

IN_A_ROW, AT_FIRST = 20, 3
"""So many failures without a success between them make a server count as down; the fewer until it has answered."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


@dataclass(eq=False)
class Replica:
    """One server.

    Attributes:
        where: host, port and path, for messages.
        url: of its calls.
        pace: how many calls it bears.
        failing_since: first failure after the last success, on a monotonic clock; None while it works.
        reason: of its last failure.
    """

    where: str
    url: str
    pace: ConcurrencyLimit
    failing_since: float | None = None
    reason: str = ""
    _answered: bool = field(default=False, init=False)
    _failures: int = field(default=0, init=False)
    _pause: float = field(default=0.0, init=False)
    _down_until: float = field(default=0.0, init=False)

    @property
    def is_up(self) -> bool:
        """Whether calls may be sent to it now."""
        return not self._down_until or time.monotonic() >= self._down_until

    @property
    def room(self) -> int:
        """Calls that may be sent to it now."""
        return self.pace.room if self.is_up else 0

    @property
    def seconds_down(self) -> float:
        """Until it is tried again."""
        return max(0.0, self._down_until - time.monotonic())

    @property
    def max_failures(self) -> int:
        """Failures in a row after which it counts as down."""
        return IN_A_ROW if self._answered else AT_FIRST

    def record_success(self) -> float:
        """It answered; seconds since its first failure if it had counted as down, or else 0."""
        down = self._down_until and self.failing_since
        seconds = time.monotonic() - down if down else 0.0
        self.failing_since, self._failures, self._pause, self._down_until = None, 0, 0.0, 0.0
        self._answered = True
        return seconds

    def record_failure(self, failure: Passing) -> bool:
        """It failed; whether that makes it count as down."""
        now = time.monotonic()
        # A server that is too busy first gets fewer calls at once, and only then none.
        self._failures += not (failure.status and failure.overload and self.pace.limit > 1)
        self.reason = failure.reason
        self.failing_since = self.failing_since or now
        if self._failures < self.max_failures or not self.is_up:
            return False
        self._pause = min(self._pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)
        self._down_until = now + max(self._pause, failure.retry_after)
        self._failures = self.max_failures - 1  # the next failure is one too many again
        self.pace.restart()
        return True


@dataclass(frozen=True)
class Slot:
    """A call that a server has room for, and when it was taken."""

    replica: Replica
    entered: float


def _load_of(replica: Replica) -> tuple[bool, float]:
    return replica.failing_since is not None, replica.pace.in_flight / replica.pace.limit


class Replicas:
    """All servers of one model. A call goes where there is room, so that each server gets as many as it answers.

    Args:
        all_: the servers.
        give_up_after: seconds after which, if none has answered, the work stops.
        section: of the settings, for messages.
        counters: `paused`, `in_flight` and `limit` are kept up to date.
        say: told when a server goes down and when it is back.
    """

    def __init__(
        self,
        all_: Sequence[Replica],
        give_up_after: float,
        section: str,
        counters: Counters,
        say: Callable[[str], None],
    ) -> None:
        self.all, self._give_up_after, self._section = all_, give_up_after, section
        self._counters, self._say = counters, say
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._stop = asyncio.Event()

    @property
    def is_stopped(self) -> bool:
        """Whether no more calls are to be sent."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Let those who wait know that the work has failed."""
        self._stop.set()
        self._wake(len(self._waiting))

    async def pause(self, seconds: float) -> None:
        """Wait.

        Raises:
            Stopped: the work has failed meanwhile.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return
        raise Stopped

    async def enter(self, preferred: Replica | None = None) -> Slot:
        """A slot for a call, as soon as there is one: at a server of one's choice or else at the least busy one.

        Raises:
            DarklodeError: none has answered for `give_up_after` seconds.
            Stopped: the work has failed meanwhile.
        """
        while not self.is_stopped:
            open_ = [preferred] if preferred and preferred.room else [replica for replica in self.all if replica.room]
            if open_:
                chosen = open_[0] if len(open_) == 1 else min(open_, key=_load_of)
                self._counters.in_flight += 1
                self._counters.limit = sum(replica.pace.limit for replica in self.all)
                return Slot(chosen, chosen.pace.enter())
            self._check()
            await self._change()
        raise Stopped

    def leave(self, slot: Slot, failure: Passing | None, *, answered: bool) -> None:
        """Give a slot back; how the call ended tells the server's pace and health.

        Raises:
            DarklodeError: it failed, and no server has answered for `give_up_after` seconds.
        """
        replica = slot.replica
        self._counters.in_flight -= 1
        replica.pace.release(slot.entered, answered=answered, turned_away=bool(failure and failure.overload))
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
        if self._waiting:
            self._wake(sum(other_replica.room for other_replica in self.all))
        if failure:
            self._check()

    async def _change(self) -> None:
        """Wait until a slot may be free: one was given back, a server that was down is due, or hope is over."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        down = [replica.seconds_down for replica in self.all if not replica.is_up]
        try:
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that meets the turn, and calls go on for ever.
            async with asyncio.timeout(max(min(*down, self._seconds_left()), 0.01) if down else None):
                await turn
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._wake(1)  # the slot may have been this one's already
            raise

    def _wake(self, slots: int) -> None:
        while self._waiting and slots > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                slots -= 1

    def _check(self) -> None:
        """See whether there is still hope."""
        if self._seconds_left() <= 0:
            reasons = "; ".join(f"{replica.where} {replica.reason}" for replica in self.all)
            raise DarklodeError(
                f"{reasons}. No answer for {self._give_up_after:g} s ({self._section}.retry_timeout). What was "
                "answered before is kept: run again to go on from there"
            )

    def _seconds_left(self) -> float:
        """Seconds until the work stops, if nothing gets better."""
        since = [replica.failing_since for replica in self.all]
        latest = max(float("inf") if down_since is None else down_since for down_since in since)
        return latest + self._give_up_after - time.monotonic()
