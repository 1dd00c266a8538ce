"""The one client of remote models: many calls at once, each sent until it is answered, results as they come.

    client = Client(endpoint)
    async with client.session() as session:
        async for results in session.results(groups_of_jobs, work):
            ...

`work` makes a result of a job with calls on the lane that it is given. Judge, encoder and planner say what a call
holds and what its reply means; all else is here.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from darklode.pipeline.base.errors import ArtifactError, DarklodeError
from darklode.pipeline.base.remote.budget import NOTHING, Budget, Counters, SpendingBook, Usage, tokens_used
from darklode.pipeline.base.remote.call_errors import (
    BadReply,
    Indigestible,
    Passing,
    Refused,
    Response,
    Stopped,
    fault_of_response,
)
from darklode.pipeline.base.remote.concurrency import FIRST, ConcurrencyLimit, jittered_delay
from darklode.pipeline.base.remote.endpoint import Endpoint, Http, address
from darklode.pipeline.base.remote.gc_tuning import rarely_collected
from darklode.pipeline.base.remote.replicas import Replica, Replicas, Slot

FIRST_WAIT, LONGEST_WAIT = 0.5, 4.0
"""Short: a server that turns calls away is called less, and one that is down not at all, by other means."""
GATHER_SECONDS = 0.02
"""Results that arrive within this time are handed over together."""
WAITING_PER_PLACE = 3
"""Jobs that may wait to be sent again, and results to be taken, for each slot in flight."""
KEEP_SECONDS = 5.0
"""How much spending a kill may make the book forget."""
_LOOK_AGAIN = 0.02

Reply = TypeVar("Reply")
Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Call(Generic[Reply]):
    """One call.

    Attributes:
        body: of the request.
        estimate: tokens that it takes at most.
        name: what it is about, for messages.
        read: makes the reply of its JSON object.

            Raises:
                BadReply: it is not what was asked for.
        tries: failures of some kinds after which the call itself counts as to blame, and as refused.
    """

    body: bytes
    estimate: Usage
    name: str
    read: Callable[[Mapping[str, Any]], Reply]
    tries: Mapping[type[Passing], int] = field(default_factory=dict)


class Client:
    """A model behind one server or several, with its key, its pace and its budget.

    Args:
        endpoint: the servers.
        book: where spending is kept over runs; None: it counts for this client alone.
        say: told when a server goes down or comes back.

    Attributes:
        counters: what was done so far.

    Raises:
        MissingPart: the key is missing.
    """

    def __init__(
        self, endpoint: Endpoint, book: SpendingBook | None = None, say: Callable[[str], None] = lambda _line: None
    ) -> None:
        self.endpoint, self._key, self._say = endpoint, endpoint.key(), say
        self.counters = Counters()
        self.budget = Budget(endpoint, self.counters, book)
        self._limits = [FIRST] * len(endpoint.base_urls)
        self._next_turn = 0.0

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[Session]:
        """Connections to the servers, for one event loop; the pace goes on from that of the last session."""
        endpoint, headers = self.endpoint, {"Authorization": f"Bearer {self._key}"} if self._key else {}
        http = Http(endpoint.base_urls, headers, endpoint.timeout, endpoint.section)
        replicas = []
        for url, first in zip(endpoint.base_urls, self._limits, strict=True):
            limit = ConcurrencyLimit(endpoint.max_in_flight, first)
            replicas.append(Replica(address(url, endpoint.key_env), url.rstrip("/") + endpoint.path, limit))
        pool = Replicas(replicas, endpoint.give_up_after, endpoint.section, self.counters, self._say)
        session = Session(self, http, pool)
        await asyncio.to_thread(self.budget.sync_book)
        keeping = asyncio.create_task(self._record_usage())
        try:
            with rarely_collected():
                yield session
        finally:
            keeping.cancel()
            await http.close()
            self._limits = [max(replica.pace.limit, 1) for replica in replicas]
            await asyncio.to_thread(self.budget.sync_book)

    async def turn(self) -> None:
        """Wait until the rate limit allows a call."""
        if self.endpoint.requests_per_minute:
            now = time.monotonic()
            turn = max(now, self._next_turn)
            self._next_turn = turn + 60 / self.endpoint.requests_per_minute
            await asyncio.sleep(turn - now)

    async def post_once(self, http: Http, replica: Replica, body: bytes) -> Mapping[str, Any]:
        """One call, once; the JSON object that came back.

        Raises:
            Passing: it may succeed later.
            Refused: this call never will.
            DarklodeError: no call will.
        """
        self.counters.calls += 1
        try:
            response = await http.post_json(replica.url, body)
            if response.status != 200:
                raise fault_of_response(response, self._key, self.endpoint.key_env, self.endpoint.section)
        except DarklodeError as error:
            raise type(error)(f"{self.endpoint.model} at {replica.where} {error}") from None
        try:
            reply = json.loads(response.content)
        except (json.JSONDecodeError, UnicodeDecodeError):
            start = response.content[:40].decode("utf-8", "replace")
            raise BadReply(f"is not JSON (it starts with {start!r})", healthy=False) from None
        except (RecursionError, ValueError) as error:
            raise Indigestible(f"is JSON that cannot be taken in ({type(error).__name__})") from None
        if not isinstance(reply, dict):
            raise BadReply("is not a JSON object", healthy=False)
        return reply

    async def _record_usage(self) -> None:
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            with suppress(ArtifactError, OSError):  # what may pass; the last look, at the end, says it
                await asyncio.to_thread(self.budget.sync_book)


class Session:
    """Calls over open connections; see `Client.session`."""

    def __init__(self, client: Client, http: Http, replicas: Replicas) -> None:
        self.replicas, self._client, self._http = replicas, client, http
        self.most_in_flight = client.endpoint.max_in_flight * len(replicas.all)

    async def call(self, call: Call[Reply], slot: Slot | None = None) -> Reply:
        """The reply to a call; failures that may pass are waited out, with full jitter.

        Args:
            call: what to send.
            slot: where to send it first; None: wherever there is room.

        Raises:
            Refused: the server will not take this call, or it has failed so often that it is to blame.
            DarklodeError: no call can succeed, a limit is reached, `give_up_after` is over, or another call failed.
        """
        tries, since, failures = 0, 0.0, Counter[type[Passing]]()
        while True:
            slot = slot or await self.replicas.enter()
            try:
                return await self._send(slot, call)
            except Passing as failure:
                failures[type(failure)] += 1
                if failures[type(failure)] == call.tries.get(type(failure)):
                    raise Refused(failure.reason, failure=failure) from None
                since = since or time.monotonic()
                seconds_left = self._check(since, slot.replica, failure, call)
                self._client.counters.retries += 1
                wait = failure.retry_after + jittered_delay(tries, FIRST_WAIT, LONGEST_WAIT)
                await self.replicas.pause(min(wait, seconds_left))
            tries, slot = tries + 1, None

    async def look(self, path: str) -> list[Response | None]:
        """What each server shows below its address, asked once; None where no whole answer came."""

        async def probe(base_url: str) -> Response | None:
            try:
                return await self._http.get(base_url.rstrip("/") + path)
            except (Passing, DarklodeError):
                return None

        return await asyncio.gather(*map(probe, self._client.endpoint.base_urls))

    async def results(
        self, groups: Iterable[Iterable[Job]], work: Callable[[Job, Lane], Awaitable[Result]]
    ) -> AsyncGenerator[list[Result]]:
        """Results as they come.

        After a failure no job is begun, those under way are awaited and their results handed over, and only then the
        failure is raised: what was received, and paid for, is not lost. Closing the iterator gives up the rest.

        Args:
            groups: jobs. Those of a group go to one server, for its prefix cache, unless others would stand idle.
            work: does one job; its result is not None.
        """
        run = _Run(self, groups, work)
        try:
            while some := await run.gather():
                yield some
        finally:
            await run.end()
        if run.failure:
            raise run.failure

    async def _send(self, slot: Slot, call: Call[Reply]) -> Reply:
        """A call's reply, once; the slot is given back."""
        answered, failed = False, None
        try:
            reply = await self._reserve_and_send(slot.replica, call)
            answered = True
            return reply
        except Refused:
            answered = True
            raise
        except Passing as failure:
            failed = failure
            raise
        finally:
            self.replicas.leave(slot, failed, answered=answered)

    async def _reserve_and_send(self, replica: Replica, call: Call[Reply]) -> Reply:
        client, budget = self._client, self._client.budget
        await client.turn()
        while budget.must_wait(call.estimate):
            await asyncio.sleep(_LOOK_AGAIN)
        if self.replicas.is_stopped:
            raise Stopped
        budget.reserve(call.estimate)
        used = NOTHING
        try:
            reply = await client.post_once(self._http, replica, call.body)
            used = tokens_used(reply, call.estimate)
            return call.read(reply)
        except Passing as failure:
            used = used if any(used) or not failure.billed else call.estimate
            raise
        except asyncio.CancelledError:
            used = call.estimate
            raise
        finally:
            budget.settle(call.estimate, used)

    def _check(self, since: float, replica: Replica, failure: Passing, call: Call[Reply]) -> float:
        """Seconds until a call that has failed since then is given up.

        Raises:
            DarklodeError: none are left.
        """
        endpoint = self._client.endpoint
        seconds = min(endpoint.give_up_after, failure.patience)
        seconds_left = since + seconds - time.monotonic()
        if seconds_left <= 0:
            setting = f" ({endpoint.section}.retry_timeout)" if seconds == endpoint.give_up_after else ""
            raise DarklodeError(
                f"{endpoint.model} at {replica.where} {failure.reason}; the call for {call.name} has failed for "
                f"{seconds:g} s{setting}, while others may have been answered. What was answered is kept: run again to "
                "go on from there"
            )
        return seconds_left


class Lane:
    """A job's way to the servers: its first call has a slot, later ones go to the same server if it has room."""

    def __init__(self, session: Session, slot: Slot) -> None:
        self._session, self._preferred = session, slot.replica
        self._slot: Slot | None = slot

    async def call(self, call: Call[Reply]) -> Reply:
        slot, self._slot = self._slot or await self._session.replicas.enter(self._preferred), None
        return await self._session.call(call, slot)

    def close(self) -> None:
        """Give the first call's slot back, if there was no call."""
        if self._slot:
            self._session.replicas.leave(self._slot, None, answered=False)
            self._slot = None


class _End:
    """What comes after the last result."""


class _Run(Generic[Job, Result]):
    """Jobs that are dealt out to servers with room, and the results that they leave."""

    def __init__(
        self,
        session: Session,
        groups: Iterable[Iterable[Job]],
        work: Callable[[Job, Lane], Awaitable[Result]],
    ) -> None:
        self._session, self._replicas, self._work = session, session.replicas, work
        self._groups, self._hands = iter(groups), dict[Replica, Iterator[Job]]()
        max_waiting = session.most_in_flight * (1 + WAITING_PER_PLACE)
        self._room, self._done = asyncio.Semaphore(max_waiting), asyncio.Queue[Result | _End]()
        self._tasks, self._under_way = set[asyncio.Task[None]](), 0
        self._dealing = asyncio.create_task(self._assign_jobs())
        self.failure: Exception | None = None

    async def gather(self) -> list[Result]:
        """What has come since the last time; empty at the end."""
        results, item = list[Result](), await self._done.get()
        if self._under_way:
            await asyncio.sleep(GATHER_SECONDS)
        while not isinstance(item, _End):
            results.append(item)
            self._room.release()
            if self._done.empty():
                return results
            item = self._done.get_nowait()
        if results:
            self._done.put_nowait(item)
        return results

    async def end(self) -> None:
        """Give up what is under way."""
        tasks = [self._dealing, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _assign_jobs(self) -> None:
        try:
            while True:
                await self._room.acquire()
                slot = await self._replicas.enter()
                try:
                    job = self._next_job(slot.replica)
                except BaseException:
                    self._replicas.leave(slot, None, answered=False)
                    raise
                self._under_way += 1
                task = asyncio.create_task(self._do(job, Lane(self._session, slot)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (StopIteration, Stopped):
            pass
        except Exception as error:
            self._fail(error)
        await asyncio.gather(*self._tasks)
        self._done.put_nowait(_End())

    def _next_job(self, replica: Replica) -> Job:
        """The next job for a server: of its own group, of a new one, or at the end of another server's group.

        Raises:
            StopIteration: there is none.
        """
        for job in self._hands.get(replica, ()):
            return job
        for group in self._groups:
            self._hands[replica] = iter(group)
            for job in self._hands[replica]:
                return job
        return next(job for hand in self._hands.values() for job in hand)

    async def _do(self, job: Job, lane: Lane) -> None:
        result: Result | _End | None = None
        try:
            result = await self._work(job, lane)
        except Stopped:
            pass
        except Exception as error:
            self._fail(error)
        finally:
            lane.close()
            self._under_way -= 1
        if result is None:
            self._room.release()
        else:
            self._done.put_nowait(result)

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self._replicas.stop()
