"""A chat server in a process of its own, and bare client loops to compare the judge with."""

import asyncio
import itertools
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from openai import AsyncOpenAI

SERVER = Path(__file__).resolve().parents[1] / "tests" / "helpers" / "fake_chat.py"
Bodies = Callable[[int], bytes]
"""From a call's number to its body."""


@contextmanager
def serving(**options: object) -> Iterator[str]:
    """The base_url of a server in its own process; options are those of tests/helpers/fake_chat.py."""
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    server = subprocess.Popen([sys.executable, str(SERVER), *given], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()


def seen(base_url: str) -> dict[str, Any]:
    """What came to the server since the last look."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/seen") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@dataclass(frozen=True)
class Rate:
    """Calls per second by the wall clock, and per second of this process's processor time (other loads leave it)."""

    calls: int
    wall: float
    processor: float

    @property
    def per_second(self) -> float:
        return self.calls / self.wall

    @property
    def per_processor_second(self) -> float:
        return self.calls / self.processor


def timed(calls: int, work: Callable[[], object]) -> Rate:
    """How fast so many calls are."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return Rate(calls, time.perf_counter() - wall, time.process_time() - processor)


async def _loop(calls: int, slots: int, call: Callable[[int], Awaitable[object]]) -> None:
    numbers = iter(range(calls))

    async def worker() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(worker() for _ in range(slots)))


async def bare_aiohttp(base_url: str, bodies: Bodies, calls: int, slots: int) -> None:
    """aiohttp and nothing else."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def call(number: int) -> None:
            async with session.post(f"{base_url}/chat/completions", data=bodies(number)) as answer:
                json.loads(await answer.read())

        await _loop(calls, slots, call)


async def bare_openai(base_url: str, bodies: Bodies, calls: int, slots: int) -> None:
    """The openai client and nothing else."""
    async with AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0) as client:

        async def call(number: int) -> None:
            body = json.loads(bodies(number))
            more = {"structured_outputs": body.pop("structured_outputs")}
            await client.chat.completions.create(**body, extra_body=more)

        await _loop(calls, slots, call)


LOOPS = {"aiohttp, bare": bare_aiohttp, "openai, bare": bare_openai}


def take(bodies: list[bytes]) -> Bodies:
    """Bodies by number, from the beginning again where they run out."""
    count = itertools.count()
    return lambda _number: bodies[next(count) % len(bodies)]
