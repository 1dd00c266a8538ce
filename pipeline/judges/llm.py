"""A language model behind OpenAI-compatible servers, as a judge: one pair a call, many calls at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa

from pipeline.endpoint import Stopped, Transient, address, backoff, key_from, pause
from pipeline.judges.asker import Answered
from pipeline.judges.asking import Asking
from pipeline.judges.budget import Budget
from pipeline.judges.caller import FIRST_WAIT, LONGEST_WAIT, Caller
from pipeline.judges.cases import Cases, by_replica
from pipeline.judges.counters import Counters
from pipeline.judges.http import Http
from pipeline.judges.metrics import PrefixCache
from pipeline.judges.pace import Pace
from pipeline.judges.probe import patient, probe
from pipeline.judges.prompt import load_prompt
from pipeline.judges.reading import Reading, answered
from pipeline.judges.replicas import Replica, Replicas
from schemas.settings import MemberSettings

GATHER_SECONDS = 0.02
"""Replies that arrive within this time are handed over together."""
WAITING_PER_PLACE = 3
"""Calls that may wait to be sent again, for each place in flight, before the server's places stay empty."""


class LlmJudge:
    """An asker. Its calls follow the queries, so that a prefix cache serves what a query's pairs share.

    Whatever the transport does, a pair gets a verdict by a reply to it or none at all; a reply that cannot be read
    is asked for again, and then left null.

    Args:
        settings: of the kind llm.
        say: told when a server goes down or comes back.

    Raises:
        SettingsError: the prompt, or an address, cannot be used.
        MissingPart: the key is missing.
    """

    def __init__(self, settings: MemberSettings, say: Callable[[str], None] = lambda _line: None) -> None:
        self._settings, self._say = settings, say
        self._prompt = load_prompt(settings.prompt)
        self._where = [address(url, settings.key_env) for url in settings.base_url]
        self._key = key_from(settings.key_env, f"model {settings.model} at {', '.join(self._where)}")
        self._paces = [Pace(settings.max_in_flight) for _ in settings.base_url]
        self.counters = Counters()
        self._budget = Budget(settings, self.counters)

    @property
    def judge_id(self) -> str:
        """See `Asking.judge_id`; the first reading asks the server which form it obeys.

        Raises:
            DarklodeError: no server can be reached, or none can judge.
        """
        return self.asking.judge_id

    @property
    def note(self) -> str:
        """The counters in a line, with the prefix cache's hit rate where the servers tell it."""
        rate = self._prefix_cache.recent_rate
        return ", ".join(filter(None, [str(self.counters), "" if rate is None else f"prefix cache {rate:.0%}"]))

    @cached_property
    def _prefix_cache(self) -> PrefixCache:
        return PrefixCache(self._settings.base_url)

    @cached_property
    def asking(self) -> Asking:
        """Prompt and form in use; the first reading asks the server, in a thread of its own."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._probe()).result()

    async def ask(self, pairs: pa.Table) -> AsyncGenerator[Answered]:
        """See `Asker`."""
        asking = await asyncio.to_thread(lambda: self.asking)
        async with self._caller() as caller:
            run = _Run(Cases(pairs, asking, caller), caller)
            rows = by_replica(pairs, len(caller.replicas.all))
            async for some in run.results([iter(one.tolist()) for one in rows]):
                yield some

    @asynccontextmanager
    async def _caller(self) -> AsyncGenerator[Caller]:
        given, replicas = self._settings, []
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        for where, base_url, pace in zip(self._where, given.base_url, self._paces, strict=True):
            http = Http(base_url.rstrip("/") + "/chat/completions", headers, given.timeout)
            replicas.append(Replica(where, pace, http))
        all_ = Replicas(replicas, given.give_up_after, self.counters, self._say)
        try:
            yield Caller(given, self._key, all_, self.counters, self._budget, asyncio.Event())
        finally:
            for replica in replicas:
                await replica.http.close()

    async def _probe(self) -> Asking:
        """Ask the first server that answers."""
        async with self._caller() as caller:
            tries, replicas = 0, caller.replicas
            while True:
                replica = await replicas.ready(tries, caller.stop)

                async def complete(body: bytes, replica: Replica = replica) -> Mapping[str, Any]:
                    return await caller.send(replica, body)

                try:
                    return await probe(self._settings, self._prompt, patient(complete))
                except Transient as failure:
                    replicas.failed(replica, failure)
                    tries += 1
                    turns = tries // len(replicas.all)
                    await pause(backoff(turns, failure, FIRST_WAIT, LONGEST_WAIT), caller.stop)


class _Run:
    """One batch: workers that take rows, and the verdicts that they hand over."""

    def __init__(self, cases: Cases, caller: Caller) -> None:
        self._cases, self._caller = cases, caller
        self._most = caller.settings.max_in_flight
        self._done: asyncio.Queue[tuple[int, Reading] | None] = asyncio.Queue(4 * self._most)
        self._failure: BaseException | None = None

    async def results(self, rows: list[Iterator[int]]) -> AsyncIterator[Answered]:
        """Verdicts as they come; a failure is raised after the last of them."""
        each = range(self._most * (1 + WAITING_PER_PLACE))
        workers = [asyncio.create_task(self._work(home, mine)) for home, mine in enumerate(rows) for _ in each]
        end = asyncio.create_task(self._end(workers))
        try:
            while found := await self._gathered():
                yield answered(found)
        finally:
            for task in [*workers, end]:
                task.cancel()
            await asyncio.gather(*workers, end, return_exceptions=True)
        if self._failure:
            raise self._failure

    async def _gathered(self) -> list[tuple[int, Reading]]:
        """What has come since the last time; empty at the end."""
        if (first := await self._done.get()) is None:
            return []
        await asyncio.sleep(GATHER_SECONDS)
        found = [first]
        while not self._done.empty():
            if (one := self._done.get_nowait()) is None:
                self._done.put_nowait(None)
                break
            found.append(one)
        return found

    async def _end(self, workers: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*workers)
        await self._done.put(None)

    async def _work(self, home: int, rows: Iterator[int]) -> None:
        for row in rows:
            try:
                reading = await self._cases.judge(row, home)
            except Stopped:
                return
            except Exception as error:
                self._failure = self._failure or error
                self._caller.stop.set()
                return
            self._caller.counters.answer(null=not reading.readable, truncated=reading.said["truncated"])
            await self._done.put((row, reading))
            if self._caller.stop.is_set():
                return
