"""The LLM judge's client.

What the judge costs beside the model: calls per second against bare loops with aiohttp and with the openai client, on
a fake server in its own process that answers at once, and on one with 256 slots of 50 ms. Client and server share the
machine, so rates by processor time of the client are less disturbed than those by the wall clock. The clients take
turns, each starts anew (the judge with an empty ledger); the turn with the median of processor time. Then the
verdicts of a server that fails three calls in ten (rate limits, server errors, dropped connections, truncated and
malformed replies) against those of one that never fails. Takes two minutes; `--quick` makes 1,000 calls (1 min).

    python -m benchmarks.judge_client [--quick] [--pairs N]
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
from openai import AsyncOpenAI

from benchmarks.judge_pairs import pair_rows
from benchmarks.report import ResultTable, options, publish
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm.judge import LlmJudge
from darklode.pipeline.judge.llm.prompt import PairText
from darklode.pipeline.judge.llm.settings import LlmSettings

SERVER = Path(__file__).resolve().parents[1] / "tests" / "helpers" / "fake_chat.py"
SLOTS, LATENCY, TURNS = 256, 0.05, 3
OPENAI_DIVISOR = 10  # the openai client gets a tenth of the calls, because it takes minutes
AIOHTTP = "aiohttp alone"
LABEL_COLUMNS = ("relevant", "probability", "grade", "raw_reply", "truncated", "error")

NextBody = Callable[[], bytes]


@dataclass(frozen=True)
class Rate:
    """Calls and the seconds they took, by the wall clock and of this process's processor time."""

    calls: int
    wall: float
    processor: float


@contextmanager
def chat_server(**flags: object) -> Iterator[str]:
    """The base URL of a fake chat server in its own process; flags are those of tests/helpers/fake_chat.py."""
    arguments = [text for name, value in flags.items() for text in (f"--{name}", str(value))]
    server = subprocess.Popen([sys.executable, str(SERVER), *arguments], stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()


def server_counts(base_url: str) -> dict[str, Any]:
    """What the server received since the last call of this function."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/seen") as answer:
        counts: dict[str, Any] = json.load(answer)
    return counts


def llm_judge(base_url: str, **settings: Any) -> LlmJudge:
    """The judge, ready to be asked."""
    judge = LlmJudge(LlmSettings(model="fake", base_url=(base_url,), **settings))
    assert judge.judge_id
    return judge


def request_bodies(judge: LlmJudge, pairs: pa.Table) -> NextBody:
    """Bodies of the judge's calls, one after another, over and over."""
    columns = [pairs.slice(0, 2000)[name].to_pylist() for name in ("query", "title", "heading", "text")]
    template = judge.template
    bodies = [template.body(template.fit_pair(PairText(*row), 2048)[0]) for row in zip(*columns, strict=True)]
    return itertools.cycle(bodies).__next__


async def call_in_slots(calls: int, call: Callable[[], Awaitable[object]]) -> None:
    """Make so many calls, SLOTS at a time."""
    numbers = iter(range(calls))

    async def worker() -> None:
        for _ in numbers:
            await call()

    await asyncio.gather(*(worker() for _ in range(SLOTS)))


async def call_by_aiohttp(base_url: str, next_body: NextBody, calls: int) -> None:
    """aiohttp and nothing else."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def call() -> None:
            async with session.post(f"{base_url}/chat/completions", data=next_body()) as answer:
                json.loads(await answer.read())

        await call_in_slots(calls, call)


async def call_by_openai(base_url: str, next_body: NextBody, calls: int) -> None:
    """The openai client and nothing else."""
    async with AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0) as client:

        async def call() -> None:
            body = json.loads(next_body())
            extra = {"structured_outputs": body.pop("structured_outputs")}
            await client.chat.completions.create(**body, extra_body=extra)

        await call_in_slots(calls, call)


async def judge_without_ledger(judge: LlmJudge, pairs: pa.Table) -> None:
    """Judge the pairs and drop the verdicts."""
    async for _ in judge.stream(pairs):
        pass


def measure_rates(pairs: int, latency: float) -> dict[str, Rate]:
    """The median turn of each client, on a server with this latency."""
    turns: dict[str, list[Rate]] = {}
    rows = pair_rows(pairs)
    with chat_server(latency=latency, slots=SLOTS) as url, tempfile.TemporaryDirectory() as scratch:
        next_body = request_bodies(llm_judge(url), rows)
        for turn in range(TURNS):
            ledger_judge = LedgerJudge(llm_judge(url), Ledger(str(Path(scratch, str(turn)))))
            few = pairs // OPENAI_DIVISOR
            clients: dict[str, tuple[int, Callable[[], object]]] = {
                AIOHTTP: (pairs, lambda: asyncio.run(call_by_aiohttp(url, next_body, pairs))),
                "openai client alone": (few, lambda few=few: asyncio.run(call_by_openai(url, next_body, few))),  # type: ignore[misc]
                "judge": (pairs, lambda: asyncio.run(judge_without_ledger(llm_judge(url), rows))),
                "judge with its ledger": (pairs, lambda judge=ledger_judge: asyncio.run(judge.judge(rows))),  # type: ignore[misc]
            }
            for name, (calls, work) in clients.items():
                wall, processor = time.perf_counter(), time.process_time()
                work()
                rate = Rate(calls, time.perf_counter() - wall, time.process_time() - processor)
                turns.setdefault(name, []).append(rate)
    return {name: sorted(rates, key=lambda rate: rate.processor)[len(rates) // 2] for name, rates in turns.items()}


def rate_table(title: str, rates: Mapping[str, Rate]) -> ResultTable:
    """Calls per second of each client, and as a share of aiohttp's."""
    columns = {"client": "", "calls": ",d", "calls/s, wall": ",.0f", "calls/s, processor": ",.0f", "÷ aiohttp": ".2f"}
    baseline = rates[AIOHTTP].calls / rates[AIOHTTP].processor
    rows = [
        [name, rate.calls, rate.calls / rate.wall, rate.calls / rate.processor, rate.calls / rate.processor / baseline]
        for name, rate in rates.items()
    ]
    return ResultTable(title, columns, rows, packages=("aiohttp", "openai"))


def measure_failures(pairs: int) -> tuple[list[list[object]], bool]:
    """A row for a sound and a failing server, and whether their labels, probabilities and replies are equal."""
    verdicts: list[pa.Table] = []
    rows: list[list[object]] = []
    for name, flags in (("never fails", {}), ("30 % of calls fail", {"faults": 0.3, "hang": 5})):
        with chat_server(latency=LATENCY, slots=SLOTS, **flags) as url, tempfile.TemporaryDirectory() as scratch:
            judge = llm_judge(url, timeout=2, max_attempts=5)
            ledger_judge = LedgerJudge(judge, Ledger(scratch))
            server_counts(url)  # resets the counts of the probing call
            began = time.perf_counter()
            verdicts.append(asyncio.run(ledger_judge.judge(pair_rows(pairs))))
            seconds, counters = time.perf_counter() - began, judge.counters
            twice = server_counts(url)["twice"] if flags else None
            rows.append([name, pairs, seconds, counters.calls, counters.retries, counters.nulls, twice])
    first, second = (table.select(LABEL_COLUMNS) for table in verdicts)
    return rows, first.equals(second)


def failure_table(rows: Sequence[Sequence[object]], *, equal: bool) -> ResultTable:
    """The failing server beside the sound one."""
    columns = {"server": "", "pairs": ",d", "seconds": ".0f", "calls": ",d", "retries": ",d", "null labels": "d"}
    columns |= {"pairs answered twice": "d"}
    note = f"Labels, probabilities and replies of both are {'the same' if equal else 'DIFFERENT'}."
    return ResultTable("A failing server", columns, rows, note, ["aiohttp"])


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    arguments = parser.parse_args()
    pairs = 1_000 if arguments.quick else arguments.pairs
    tables = [
        rate_table("A server that answers at once", measure_rates(pairs, 0.0)),
        rate_table("A server with 256 slots of 50 ms", measure_rates(pairs, LATENCY)),
    ]
    rows, equal = measure_failures(pairs)
    publish("judge_client", [*tables, failure_table(rows, equal=equal)], quick=arguments.quick)


if __name__ == "__main__":
    main()
