"""One call to one of the judge's servers, sent until it is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.endpoint import Stopped, Transient, backoff, pause
from pipeline.errors import DarklodeError
from pipeline.judges.budget import Budget
from pipeline.judges.calls import completion_of
from pipeline.judges.counters import Counters
from pipeline.judges.replicas import Replica, Replicas
from schemas.settings import MemberSettings

FIRST_WAIT, LONGEST_WAIT = 0.5, 4.0
"""Short: a server that turns calls away is called less, and one that is down not at all, by other means."""
_LOOK_AGAIN = 0.02
_USAGE = ("prompt_tokens", "completion_tokens")

Completion = Mapping[str, Any]


@dataclass
class Caller:
    """Sends calls within the servers' pace and the budget.

    Attributes:
        settings: of the judge.
        key: sent by the servers' clients; kept out of every message here.
        replicas: the servers.
        stop: set when the judge has failed: calls that fail are not sent again.
    """

    settings: MemberSettings
    key: str
    replicas: Replicas
    counters: Counters
    budget: Budget
    stop: asyncio.Event

    async def complete(self, home: int, body: bytes, estimate: tuple[int, int], name: str) -> Completion:
        """The completion of a call; failures that may pass are waited out, with full jitter.

        Args:
            home: the server that it should go to.
            body: of the request.
            estimate: tokens of prompt and completion that it takes at most.
            name: of its pair, for messages.

        Raises:
            Refused: the server will not take this call.
            DarklodeError: no call can succeed, a limit is reached, or this one has failed for `give_up_after` seconds.
            Stopped: it failed after the judge had stopped.
        """
        tries, since = 0, 0.0
        while True:
            replica = await self.replicas.ready(home, self.stop)
            try:
                return await self._in_turn(replica, body, estimate)
            except Transient as failure:
                self.replicas.failed(replica, failure)
                since = since or time.monotonic()
                self._check(since, f"{replica.where} {failure.reason}", name)
                self.counters.retries += 1
                await pause(backoff(tries, failure, FIRST_WAIT, LONGEST_WAIT), self.stop)
            tries += 1

    async def send(self, replica: Replica, body: bytes) -> Completion:
        """One call, once.

        Raises:
            Transient: it may succeed later.
            Refused: this call never will.
            DarklodeError: no call will.
        """
        self.counters.calls += 1
        try:
            return completion_of(await replica.http.post(body), self.key, self.settings.key_env)
        except DarklodeError as error:
            raise type(error)(f"{self.settings.model} at {replica.where} {error}") from None

    async def _in_turn(self, replica: Replica, body: bytes, estimate: tuple[int, int]) -> Completion:
        async with self.replicas.turn(replica):
            self.counters.in_flight += 1
            self.counters.limit = sum(one.pace.limit for one in self.replicas.all)
            try:
                return await self._afforded(replica, body, estimate)
            finally:
                self.counters.in_flight -= 1

    async def _afforded(self, replica: Replica, body: bytes, estimate: tuple[int, int]) -> Completion:
        while self.budget.waits(*estimate):
            await asyncio.sleep(_LOOK_AGAIN)
        if self.stop.is_set():
            raise Stopped
        self.budget.reserve(*estimate)
        used = (0, 0)
        try:
            completion = await self.send(replica, body)
            used = _used(completion, estimate)
            return completion
        except Transient as failure:
            used = estimate if failure.billed else used
            raise
        except asyncio.CancelledError:
            used = estimate
            raise
        finally:
            self.budget.settle(estimate, used)

    def _check(self, since: float, said: str, name: str) -> None:
        if time.monotonic() - since >= self.settings.give_up_after:
            raise DarklodeError(
                f"{said}; the call for {name} has failed for {self.settings.give_up_after:g} s "
                "(judge.give_up_after), while others may have been answered. What was answered is kept: run again to "
                "go on from there"
            )


def _used(completion: Completion, estimate: tuple[int, int]) -> tuple[int, int]:
    """Tokens of prompt and completion as the server counts them, or else as estimated."""
    usage = completion.get("usage")
    prompt, reply = (usage.get(name) for name in _USAGE) if isinstance(usage, dict) else (None, None)
    return (prompt, reply) if isinstance(prompt, int) and isinstance(reply, int) else estimate
