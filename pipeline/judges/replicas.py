"""The servers of a judge: which of them is up, how much each bears, and when to give up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pipeline.endpoint import Transient, pause
from pipeline.errors import DarklodeError
from pipeline.judges.calls import Refused
from pipeline.judges.counters import Counters
from pipeline.judges.http import Http
from pipeline.judges.pace import Pace

IN_A_ROW = 20
"""So many failures without a success between them, and a server counts as down."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
BUSY = ("answered 429", "answered 503")
"""A server that says so is there, and may have turned away only what was too much."""
_TURNED_AWAY = (*BUSY, "gave no answer")


@dataclass
class Replica:
    """One server.

    Attributes:
        where: host, port and path, for messages.
        pace: how many calls it bears.
        http: posts to it.
        failing_since: first failure after the last success, on a monotonic clock; None while it works.
    """

    where: str
    pace: Pace
    http: Http = field(repr=False)
    failing_since: float | None = None
    reason: str = ""
    _failures: int = 0
    _pause: float = FIRST_PAUSE
    _down_until: float = 0.0

    @property
    def up(self) -> bool:
        """Whether calls may be sent to it now."""
        return time.monotonic() >= self._down_until

    def succeeded(self) -> None:
        """It answered."""
        self.failing_since, self._failures, self._pause = None, 0, FIRST_PAUSE

    def failed(self, failure: Transient) -> bool:
        """It failed; whether that makes it count as down."""
        now = time.monotonic()
        busy = failure.reason in BUSY and self.pace.limit > 1  # first fewer calls at once, then none
        self._failures += not busy
        self.reason = failure.reason
        if self.failing_since is None:
            self.failing_since = now
        if self._failures < IN_A_ROW or not self.up:
            return False
        self._down_until = now + max(self._pause, failure.retry_after or 0)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        self._failures = IN_A_ROW - 1  # the next failure is one too many again
        self.pace.restart()
        return True

    @property
    def seconds_down(self) -> float:
        """Until it is tried again."""
        return max(0.0, self._down_until - time.monotonic())


class Replicas:
    """All servers of one model: a call goes to its own, or to the next one that is up.

    Args:
        all_: the servers.
        give_up_after: seconds after which, if none has answered, the judge stops.
        counters: `paused` is kept up to date.
        say: told when a server goes down and when it is back.
        section: of the settings, for messages.
    """

    def __init__(
        self,
        all_: Sequence[Replica],
        give_up_after: float,
        counters: Counters,
        say: Callable[[str], None],
        section: str = "judge",
    ) -> None:
        self.all = all_
        self._give_up_after = give_up_after
        self._counters = counters
        self._say = say
        self._section = section

    async def ready(self, home: int, stop: asyncio.Event) -> Replica:
        """The server to call, as soon as one is up.

        Raises:
            DarklodeError: none has answered for `give_up_after` seconds.
            Stopped: the judge has stopped meanwhile.
        """
        while True:
            for step in range(len(self.all)):
                if (replica := self.all[(home + step) % len(self.all)]).up:
                    return replica
            self.check()
            wait = min(self._left(), *(replica.seconds_down for replica in self.all))
            await pause(max(wait, 0.01), stop)

    @asynccontextmanager
    async def turn(self, replica: Replica) -> AsyncIterator[None]:
        """One of the places of a server, for one call; how the call ends tells its pace and its health."""
        entered = await replica.pace.enter()
        answered = turned_away = False
        try:
            yield
            answered = True
            self.succeeded(replica)
        except Refused:
            answered = True
            self.succeeded(replica)
            raise
        except Transient as failure:
            turned_away = failure.reason.startswith(_TURNED_AWAY)
            raise
        finally:
            replica.pace.leave(entered, answered=answered, turned_away=turned_away)

    def succeeded(self, replica: Replica) -> None:
        """A server answered."""
        if self._counters.paused and replica.failing_since is not None:
            self._counters.paused = ""
            self._say(f"{replica.where} answers again")
        replica.succeeded()

    def failed(self, replica: Replica, failure: Transient) -> None:
        """A server failed.

        Raises:
            DarklodeError: none has answered for `give_up_after` seconds.
        """
        if replica.failed(failure):
            self._counters.paused = (
                f"{replica.where} {failure.reason}, {IN_A_ROW} times in a row: no calls for "
                f"{replica.seconds_down:.0f} s; the {self._section} gives up in {max(self._left(), 0):.0f} s"
            )
            self._say(self._counters.paused)
        self.check()

    def check(self) -> None:
        """See whether there is still hope.

        Raises:
            DarklodeError: none has answered for `give_up_after` seconds.
        """
        if self._left() <= 0:
            said = "; ".join(f"{replica.where} {replica.reason}" for replica in self.all)
            raise DarklodeError(
                f"{said}. No answer for {self._give_up_after:g} s ({self._section}.give_up_after). What was answered "
                "before is kept: run again to go on from there"
            )

    def _left(self) -> float:
        """Seconds until the judge gives up, if nothing gets better."""
        since = [replica.failing_since for replica in self.all]
        latest = max((float("inf") if one is None else one for one in since), default=0.0)
        return latest + self._give_up_after - time.monotonic()
