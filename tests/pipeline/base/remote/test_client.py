"""Many calls over several servers: who gets them, what is handed over, what a failure leaves."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.errors import ArtifactError, DarklodeError, MissingPart
from darklode.pipeline.base.remote import client
from darklode.pipeline.base.remote.budget import SpendingLedger, Usage
from darklode.pipeline.base.remote.chat import chat_call
from darklode.pipeline.base.remote.client import Client, Lane
from darklode.pipeline.base.remote.endpoint import Endpoint
from helpers.fake_chat import FakeChat, Request


def client_of(*servers: FakeChat, most: int = 8, **changed: Any) -> Client:
    urls = tuple(server.url for server in servers)
    return Client(Endpoint("judge", "fake", urls, "/chat/completions", "", most, 5.0, 20.0, **changed))


async def work(text: str, lane: Lane) -> str:
    body = {"model": "fake", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": text}]}
    await lane.call(chat_call(json.dumps(body).encode(), Usage(10, 1), text))
    return text


async def collect(one: Client, groups: Iterable[Iterable[str]], into: list[str]) -> None:
    async with one.session() as session:
        async for some in session.results(groups, work):
            into += some


def test_a_slow_server_gets_the_few_calls_that_it_answers() -> None:
    with FakeChat(latency=0.01) as quick, FakeChat(latency=0.5) as slow:
        found: list[str] = []
        asyncio.run(
            collect(client_of(quick, slow), ([f"{group} {n}" for n in range(4)] for group in range(100)), found)
        )
        assert len(found) == len({*found}) == 400
        assert 0 < sum(slow.served.values()) < 100 < 300 < sum(quick.served.values())


def test_groups_stay_together_but_the_last_ones() -> None:
    with FakeChat(latency=0.02) as one, FakeChat(latency=0.02) as other:
        found: list[str] = []
        dealt = ([f"{group} {n}" for n in range(20)] for group in range(20))
        asyncio.run(collect(client_of(one, other), dealt, found))
        groups = [{pair.split()[0] for pair in server.served} for server in (one, other)]
        assert len(groups[0] & groups[1]) <= 1
        assert min(map(len, groups)) > 2


def test_a_failure_for_good_hands_over_what_was_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)
    with FakeChat(latency=0.05) as server:
        found: list[str] = []
        one = client_of(server, most=4)

        def groups() -> Iterable[list[str]]:
            for number in range(50):
                if number == 20:
                    server.model = "gone"
                yield [str(number)]

        with pytest.raises(MissingPart, match=r"fake at 127\.0\.0\.1:\d+/v1 answered 404"):
            asyncio.run(collect(one, groups(), found))
        assert len(found) == sum(server.served.values()) >= 16
        assert one.counters.in_flight == 0


def test_jobs_that_make_no_call_give_their_places_back() -> None:
    async def idle(text: str, _lane: Lane) -> str:
        return text

    async def go() -> list[str]:
        found: list[str] = []
        async with client_of(server, most=2).session() as session:
            async for some in session.results(([str(number)] for number in range(30)), idle):
                found += some
        return found

    with FakeChat() as server:
        assert len(asyncio.run(go())) == 30
        assert server.requests == 0


class ShakyBook(SpendingLedger):
    """Its place fails once."""

    tries = 0

    def add(self, usage: Usage, cost: float) -> None:
        self.tries += 1
        if self.tries == 1:
            raise ArtifactError("not now")
        super().add(usage, cost)


def test_spending_is_entered_while_calls_go_on_though_its_place_fails_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LEDGER_SECONDS", 0.02)
    book = ShakyBook(str(tmp_path), "judge fake")

    async def entered() -> Usage:
        with FakeChat() as server:
            one = Client(client_of(server, prompt_price=1.0).endpoint, book)
            async with one.session() as session:
                await work("a", Lane(session, await session.replicas.enter()))
                for _ in range(500):
                    if any(book.total()[0]):
                        break
                    await asyncio.sleep(0.01)
                return book.total()[0]

    assert any(asyncio.run(entered()))


@pytest.mark.slow
@pytest.mark.parametrize("wait", ["86400", "Fri, 31 Dec 2099 23:59:59 GMT"])
@pytest.mark.parametrize("busy", [False, True])
def test_a_server_that_asks_for_a_long_wait_is_given_up_in_time(wait: str, busy: bool) -> None:
    """Where others are answered meanwhile, too."""
    script = None if busy else (lambda _one: "429 retry-after")
    refuse = (lambda one: "429 retry-after" if one.pair == "turned away" else None) if busy else script

    async def go() -> None:
        with FakeChat(script=refuse, retry_after=wait) as server:
            endpoint = replace(client_of(server).endpoint, retry_timeout=0.6)
            async with Client(endpoint).session() as session:
                async for _ in session.results([["turned away", "other"]], work):
                    pass

    began = time.monotonic()
    with pytest.raises(DarklodeError, match=rf"asked to wait \(Retry-After: {wait}\).*0\.6 s \(judge.retry_timeout\)"):
        asyncio.run(go())
    assert 0.5 < time.monotonic() - began < 20


def test_a_call_that_is_given_up_counts_as_what_it_was_estimated_at() -> None:
    """Nobody knows what the server made of it: a limit must not be exceeded."""

    async def go(one: Client) -> None:
        found: list[str] = []
        calling = asyncio.create_task(collect(one, [["a", "b"]], found))
        while server.requests < 2:
            await asyncio.sleep(0.01)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        assert not found

    with FakeChat(latency=3) as server:
        one = client_of(server)
        asyncio.run(go(one))
    assert (one.counters.prompt_tokens, one.counters.completion_tokens) == (20, 2)
    assert one.counters.in_flight == 0


@pytest.mark.parametrize("n_jobs", [1, 7, 40])
def test_an_error_of_the_jobs_ends_the_run_and_is_raised(n_jobs: int) -> None:
    """Whichever task asks for the next job."""

    def groups() -> Iterable[list[str]]:
        for number in range(n_jobs):
            yield [str(number)]
        raise OSError("the table is gone")

    async def go() -> None:
        async with asyncio.timeout(20):
            await collect(one, groups(), found)

    found: list[str] = []
    with FakeChat(latency=0.01) as server:
        one = client_of(server, most=4)
        with pytest.raises(OSError, match="the table is gone"):
            asyncio.run(go())
    assert len(found) == sum(server.served.values()) >= n_jobs - 4, "calls that were sent are paid for"
    assert one.counters.in_flight == 0


def test_a_retry_goes_before_jobs_that_have_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.001)
    found: list[str] = []
    attempts: list[int] = []

    def fail_once(request: Request) -> str | None:
        if request.pair == "0":
            attempts.append(request.number)
        return "500" if (request.pair, request.time) == ("0", 1) else None

    with FakeChat(latency=0.04, script=fail_once) as server:
        asyncio.run(collect(client_of(server, most=2), ([str(number)] for number in range(60)), found))
    assert len(found) == 60
    first, second = attempts
    assert second - first <= 6, "calls between the failure and its retry"
