"""Client of remote models: many concurrent calls, each retried until it is answered; results as they arrive.

    client = Client(endpoint)
    async with client.session() as session:
        async for results in session.results(groups_of_jobs, work):
            ...

`work` produces the result of a job with calls on its lane. Callers (judge, encoder, term weighting) define requests and
parse replies; retries, limits and budgets are handled here. The openai SDK would take 2.6 ms of processor time per call
instead of 0.2 ms; tenacity's retries do not know the servers' health, and an aiolimiter belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import orjson

from darklode.pipeline.base.errors import ArtifactError, DarklodeError
from darklode.pipeline.base.remote.budget import NO_USAGE, Budget, Counters, SpendingLedger, Usage, tokens_used
from darklode.pipeline.base.remote.call_errors import (
    BadReply,
    RequestRejected,
    Response,
    Stopped,
    TransientError,
    UnparsableReply,
    response_error,
)
from darklode.pipeline.base.remote.concurrency import INITIAL_LIMIT, ConcurrencyLimit, jittered_delay
from darklode.pipeline.base.remote.endpoint import Endpoint, Http, address
from darklode.pipeline.base.remote.job_queue import JobQueue
from darklode.pipeline.base.remote.replicas import Replica, Replicas, Slot

FIRST_WAIT, LONGEST_WAIT = 0.5, 4.0
"""Seconds between retries. Short, because overloaded servers get fewer calls, and servers that are down get none."""
LEDGER_SECONDS = 5.0
"""Seconds between updates of the ledger: a kill loses the spending of this time."""
_BUDGET_POLL_SECONDS = 0.02

Reply = TypeVar("Reply")
Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Call(Generic[Reply]):
    """A call.

    Attributes:
        body: request body.
        estimate: maximum tokens of the call.
        name: subject, for messages.
        read: parses the reply's JSON object.

            Raises:
                BadReply: the reply is invalid.
        tries: number of failures of a kind after which the call counts as rejected, because it is probably the cause.
    """

    body: bytes
    estimate: Usage
    name: str
    read: Callable[[Mapping[str, Any]], Reply]
    tries: Mapping[type[TransientError], int] = field(default_factory=dict)


class Client:
    """A model on one or several servers, with key, rate limit and budget.

    Args:
        endpoint: the servers.
        ledger: records spending across runs; None: only this client's spending counts.
        say: called with a message when a server goes down or comes back.

    Attributes:
        counters: live counters.

    Raises:
        MissingPart: the key is missing.
    """

    def __init__(
        self, endpoint: Endpoint, ledger: SpendingLedger | None = None, say: Callable[[str], None] = lambda _line: None
    ) -> None:
        self.endpoint, self._key, self._say = endpoint, endpoint.key(), say
        self.counters = Counters()
        self.budget = Budget(endpoint, self.counters, ledger)
        self._limits = [INITIAL_LIMIT] * len(endpoint.base_urls)
        self._next_send_time = 0.0

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[Session]:
        """Open connections in one event loop; concurrency limits start from those of the last session."""
        endpoint = self.endpoint
        http = Http(endpoint.base_urls, endpoint.headers(self._key), endpoint.timeout, endpoint.section)
        replicas = []
        for url, first in zip(endpoint.base_urls, self._limits, strict=True):
            limit = ConcurrencyLimit(endpoint.max_concurrency, first)
            replicas.append(Replica(address(url, endpoint.api_key_env), url.rstrip("/") + endpoint.path, limit))
        pool = Replicas(replicas, endpoint.retry_timeout, endpoint.section, self.counters, self._say)
        session = Session(self, http, pool)
        await asyncio.to_thread(self.budget.sync_ledger)
        recording = asyncio.create_task(self._record_usage())
        try:
            yield session
        finally:
            recording.cancel()
            await http.close()
            self._limits = [max(replica.concurrency.limit, 1) for replica in replicas]
            await asyncio.to_thread(self.budget.sync_ledger)

    async def wait_for_rate_limit(self) -> None:
        """Wait until the rate limit allows a call."""
        if self.endpoint.requests_per_minute:
            now = time.monotonic()
            send_time = max(now, self._next_send_time)
            self._next_send_time = send_time + 60 / self.endpoint.requests_per_minute
            await asyncio.sleep(send_time - now)

    async def post_once(self, http: Http, replica: Replica, body: bytes) -> Mapping[str, Any]:
        """Send a call once; returns the JSON object of the reply.

        Raises:
            TransientError: it may succeed later.
            RequestRejected: this call cannot succeed.
            DarklodeError: no call can succeed.
        """
        self.counters.calls += 1
        try:
            response = await http.post_json(replica.url, body)
            if response.status != 200:
                raise response_error(response, self._key, self.endpoint.api_key_env, self.endpoint.section)
        except DarklodeError as error:
            raise type(error)(f"{self.endpoint.model} at {replica.where} {error}") from None
        reply = _parse(response.content)
        if not isinstance(reply, dict):
            raise BadReply("is not a JSON object", healthy=False)
        return reply

    async def _record_usage(self) -> None:
        while True:
            await asyncio.sleep(LEDGER_SECONDS)
            with suppress(ArtifactError, OSError):  # transient; the update at the end of the session reports it
                await asyncio.to_thread(self.budget.sync_ledger)


def _parse(content: bytes) -> Any:
    """Parse JSON; the slower standard parser decides about replies that orjson rejects, such as NaN and lone
    surrogates.

    Raises:
        BadReply: it is not JSON.
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(content)
    except (json.JSONDecodeError, UnicodeDecodeError):
        start = content[:40].decode("utf-8", "replace")
        raise BadReply(f"is not JSON (it starts with {start!r})", healthy=False) from None
    except (RecursionError, ValueError) as error:
        raise UnparsableReply(f"is JSON that cannot be parsed ({type(error).__name__})") from None


class Session:
    """Calls over open connections."""

    def __init__(self, client: Client, http: Http, replicas: Replicas) -> None:
        self.replicas, self._client, self._http = replicas, client, http
        self.most_in_flight = client.endpoint.max_concurrency * len(replicas.all)

    async def call(self, call: Call[Reply], slot: Slot | None = None) -> Reply:
        """Send a call until it is answered; transient failures are retried with full jitter.

        Args:
            call: the call.
            slot: slot for the first attempt; None: any free one.

        Raises:
            RequestRejected: the server rejects this call, or it failed so often that it is probably the cause.
            DarklodeError: no call can succeed, a limit is reached, or `retry_timeout` seconds have passed.
        """
        tries, since, failures = 0, 0.0, Counter[type[TransientError]]()
        while True:
            slot = slot or await self.replicas.enter()
            try:
                return await self._send(slot, call)
            except TransientError as failure:
                failures[type(failure)] += 1
                if failures[type(failure)] == call.tries.get(type(failure)):
                    raise RequestRejected(failure.reason, failure=failure) from None
                since = since or time.monotonic()
                seconds_left = self._check(since, slot.replica, failure, call)
                self._client.counters.retries += 1
                wait = failure.retry_after + jittered_delay(tries, FIRST_WAIT, LONGEST_WAIT)
                await self.replicas.pause(min(wait, seconds_left))
            tries, slot = tries + 1, None

    async def probe(self, path: str) -> list[Response | None]:
        """GET a path from each server once; None if there was no complete response."""

        async def get(base_url: str) -> Response | None:
            try:
                return await self._http.get(base_url.rstrip("/") + path)
            except (TransientError, DarklodeError):
                return None

        return await asyncio.gather(*map(get, self._client.endpoint.base_urls))

    async def results(
        self, groups: Iterable[Iterable[Job]], work: Callable[[Job, Lane], Awaitable[Result]]
    ) -> AsyncGenerator[list[Result]]:
        """Yield results as they arrive.

        After a failure no job is started; running jobs are awaited and their results returned before the failure is
        raised, because they are paid for. Closing the iterator cancels the rest.

        Args:
            groups: groups of jobs. A group goes to one server, for its prefix cache, unless others would be idle.
            work: executes a job; its result is not None.
        """

        async def execute(job: Job, slot: Slot) -> Result:
            lane = Lane(self, slot)
            try:
                return await work(job, lane)
            finally:
                lane.close()

        queue = JobQueue(self.replicas, self.most_in_flight, groups, execute)
        try:
            while results := await queue.gather():
                yield results
        finally:
            await queue.cancel()
        if queue.failure:
            raise queue.failure

    async def _send(self, slot: Slot, call: Call[Reply]) -> Reply:
        """Send a call once and release the slot."""
        answered, failed = False, None
        try:
            reply = await self._reserve_and_send(slot.replica, call)
            answered = True
            return reply
        except RequestRejected:
            answered = True
            raise
        except TransientError as failure:
            failed = failure
            raise
        finally:
            self.replicas.leave(slot, failed, answered=answered)

    async def _reserve_and_send(self, replica: Replica, call: Call[Reply]) -> Reply:
        client, budget = self._client, self._client.budget
        await client.wait_for_rate_limit()
        while budget.must_wait(call.estimate):
            await asyncio.sleep(_BUDGET_POLL_SECONDS)
        if self.replicas.is_stopped:
            raise Stopped
        budget.reserve(call.estimate)
        used = NO_USAGE
        try:
            reply = await client.post_once(self._http, replica, call.body)
            used = tokens_used(reply, call.estimate)
            return call.read(reply)
        except TransientError as failure:
            used = used if any(used) or not failure.billed else call.estimate
            raise
        except asyncio.CancelledError:
            used = call.estimate
            raise
        finally:
            budget.settle(call.estimate, used)

    def _check(self, since: float, replica: Replica, failure: TransientError, call: Call[Reply]) -> float:
        """Seconds left for retries of a call that has failed since the given time.

        Raises:
            DarklodeError: no time is left.
        """
        endpoint = self._client.endpoint
        seconds = min(endpoint.retry_timeout, failure.patience)
        seconds_left = since + seconds - time.monotonic()
        if seconds_left <= 0:
            setting = f" ({endpoint.section}.retry_timeout)" if seconds == endpoint.retry_timeout else ""
            raise DarklodeError(
                f"{endpoint.model} at {replica.where} {failure.reason}; the call for {call.name} has failed for "
                f"{seconds:g} s{setting}, while others may have succeeded. Results so far are kept: run again to "
                "continue"
            )
        return seconds_left


class Lane:
    """Sends the calls of a job: the first has a slot, later ones go to the same server if it has room."""

    def __init__(self, session: Session, slot: Slot) -> None:
        self._session, self._preferred = session, slot.replica
        self._slot: Slot | None = slot

    async def call(self, call: Call[Reply]) -> Reply:
        slot, self._slot = self._slot or await self._session.replicas.enter(self._preferred), None
        return await self._session.call(call, slot)

    def close(self) -> None:
        """Release the first call's slot if there was no call."""
        if self._slot:
            self._session.replicas.leave(self._slot, None, answered=False)
            self._slot = None
