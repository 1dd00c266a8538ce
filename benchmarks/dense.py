"""Exact search beside faiss, sentence-transformers and a bare matrix product, and how it grows with the chunks.

Usage: python -m benchmarks.dense [--repeats 3] [--chunks 200000 1000000] [--work DIR]
Needs faiss-cpu, sentence-transformers, 10 GB of memory, 8 minutes. Writes benchmarks/results/dense.md and dense.json.
"""

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import psutil
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sentence_transformers.util import dot_score, semantic_search

from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.retrievers.blocks import ArrayVectors, CachedVectors
from darklode.pipeline.retrieve.retrievers.exact import exact_search
from darklode.schemas.pooling import VectorSearchSettings

DIMENSIONS = 384
QUERIES = (1, 64, 1024)
DEPTHS = (60, 420)
GROWTH = (10_000, 100_000, 1_000_000)
SETTINGS = VectorSearchSettings(device="cpu")
OTHERS = ("faiss", "semantic_search", "bare torch", "bare NumPy")
BLOCK = 1 << 16
MOST_ROUNDS = 15
ROUNDS_SECONDS = 20
"""After so long no further round of a cell begins, but for the least number of rounds."""

MANY_CELLS = 3e8
"""Products from which on one round is enough: it takes minutes."""

Search = Callable[[NDArray[np.float32], int], Any]

PAUSE = 0.1
"""Seconds in which the threads of the last search stop spinning for work."""


def unit(n: int, seed: int) -> NDArray[np.float32]:
    """Random unit vectors, made block by block."""
    random = np.random.default_rng(seed)
    vectors = np.empty((n, DIMENSIONS), dtype=np.float32)
    for start in range(0, n, BLOCK):
        block = random.standard_normal((min(BLOCK, n - start), DIMENSIONS), dtype=np.float32)
        vectors[start : start + BLOCK] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return vectors


def contestants(vectors: NDArray[np.float32]) -> dict[str, Search]:
    """Each finds the best rows of queries; what can be prepared once is prepared here."""
    source, tensor = ArrayVectors(vectors), torch.from_numpy(vectors)
    index = faiss.IndexFlatIP(DIMENSIONS)
    index.add(vectors)

    def semantic(queries: NDArray[np.float32], k: int) -> Any:
        return semantic_search(torch.from_numpy(queries), tensor, top_k=k, score_function=dot_score)

    def bare_numpy(queries: NDArray[np.float32], k: int) -> Any:
        return torch.topk(torch.from_numpy(queries @ vectors.T), k)

    return {
        "Darklode": lambda queries, k: exact_search(queries, source, k, SETTINGS).rows,
        "faiss": lambda queries, k: index.search(queries, k)[1],
        "semantic_search": semantic,
        "bare torch": lambda queries, k: torch.topk(torch.from_numpy(queries) @ tensor.T, k).indices.numpy(),
        "bare NumPy": bare_numpy,
    }


def side_by_side(n: int) -> list[dict[str, Any]]:
    """Medians of seconds of each cell with `n` chunks."""
    searches = contestants(unit(n, 1))
    rows = []
    for n_queries, depth in product(QUERIES, DEPTHS):
        least = 3 if n * n_queries < MANY_CELLS else 1
        row = {"chunks": n, "queries": n_queries, "depth": depth, **cell(searches, unit(n_queries, 2), depth, least)}
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def cell(searches: dict[str, Search], queries: NDArray[np.float32], depth: int, least: int) -> dict[str, Any]:
    """The contestants take turns in a changing order, so that a noisy machine is noisy for all."""
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    found: dict[str, Any] = {}
    order, began, rounds = random.Random(1), time.perf_counter(), 0
    while rounds < least or (rounds < MOST_ROUNDS and time.perf_counter() - began < ROUNDS_SECONDS):
        for name in order.sample(list(searches), len(searches)):
            time.sleep(PAUSE)
            start = time.perf_counter()
            result = searches[name](queries, depth)
            seconds[name].append(time.perf_counter() - start)
            if name in ("Darklode", "faiss"):
                found[name] = result
        rounds += 1
    return {
        "rounds": rounds,
        "seconds": {name: statistics.median(each) for name, each in seconds.items()},
        "fastest": {name: min(each) for name, each in seconds.items()},
        "same rows as faiss": float((found["Darklode"] == found["faiss"]).mean()),
    }


def growth(work: Path, repeats: int) -> list[dict[str, float]]:
    """Seconds and peak memory of a search over cached shards, in a process of its own for each size."""
    cache = EmbeddingCache(str(work), "float32")
    for start in range(0, max(GROWTH), BLOCK):
        n = min(BLOCK, max(GROWTH) - start)
        cache.append("random", [name_of(start + row) for row in range(n)], unit(n, 100 + start))
    found = []
    for n in GROWTH:
        command = [sys.executable, "-m", "benchmarks.dense", "--one", str(n), "--work", str(work)]
        runs = [json.loads(subprocess.check_output(command, env=os.environ)) for _ in range(repeats)]
        found.append({key: statistics.median(run[key] for run in runs) for key in runs[0]})
        print(json.dumps(found[-1]), flush=True)
    return found


def name_of(row: int) -> str:
    """A made-up content hash, spread like a real one."""
    return f"{row * 0x9E3779B97F4A7C15 % 2**64:016x}{row:016x}"


def one(work: Path, n: int) -> dict[str, float]:
    """Open the cache and search the first `n` chunks, 64 queries, 420 deep."""
    queries, process = unit(64, 2), psutil.Process()
    starts = range(0, n, BLOCK)
    names = pa.chunked_array([[name_of(row) for row in range(start, min(start + BLOCK, n))] for start in starts])
    exact_search(queries, unit(1000, 3), 420, SETTINGS)
    before, began = process.memory_info().rss, time.perf_counter()
    shards = EmbeddingCache(str(work), "float32").open("random")
    if shards is None:
        raise SystemExit(f"{work} holds no vectors")
    vectors = CachedVectors(shards, names)
    opened = time.perf_counter()
    exact_search(queries, vectors, 420, SETTINGS)
    ended, peak = time.perf_counter(), _peak()
    return {"chunks": n, "open": opened - began, "search": ended - opened, "peak": peak, "before": before / 1e6}


def _peak() -> float:
    """Megabytes; the system's own high-water mark where there is one."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return float(psutil.Process().memory_info().rss / 1e6)


def exponent(first: float, last: float) -> float:
    """How a quantity grew from the smallest to the largest size: n to this power."""
    return math.log(last / first) / math.log(max(GROWTH) / min(GROWTH))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chunks", type=int, nargs="*", default=[200_000, 1_000_000])
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--one", type=int, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="darklode-dense-"))
    if arguments.one:
        print(json.dumps(one(work, arguments.one)))
        return
    try:
        load = os.getloadavg()[0]
        grown = growth(work, arguments.repeats)
        rows = [row for n in arguments.chunks for row in side_by_side(n)]
    finally:
        if not arguments.work:
            shutil.rmtree(work)
    peak = _peak()
    data = {"side_by_side": rows, "growth": grown, "load": load, "peak": peak}
    write("dense", _markdown(rows, grown, load, peak), data)


def _markdown(rows: Sequence[dict[str, Any]], grown: Sequence[dict[str, float]], load: float, peak: float) -> str:
    head = ["chunks", "queries", "top", "rounds", "Darklode s", *(f"× {name}" for name in OTHERS), "same rows as faiss"]
    cells = []
    for row in rows:
        seconds = row["seconds"]
        ratios = [f"{seconds[name] / seconds['Darklode']:.2f}" for name in OTHERS]
        sizes = [row[key] for key in ("chunks", "queries", "depth", "rounds")]
        cells.append([*sizes, f"{seconds['Darklode']:.4f}", *ratios, f"{row['same rows as faiss']:.4f}"])
    growing = [
        [f"{one['chunks']:.0f}", *(f"{one[key]:.2f}" for key in ("open", "search")), f"{one['peak']:.0f}"]
        for one in grown
    ]
    power = exponent(grown[0]["search"], grown[-1]["search"])
    return "\n\n".join(
        [
            "# Exact dense search",
            f"{machine()}, load {load:.1f} at the start, no GPU used. {DIMENSIONS} dimensions, float32, medians. "
            f"The side-by-side part took at most {peak:.0f} MB.",
            "A ratio is the other's time over Darklode's: above 1, Darklode is ahead. "
            "semantic_search is told that vectors have length 1 (dot_score). "
            "Rows differ from faiss where two scores differ in the last bit of a float32.",
            markdown_table(head, cells),
            "Over cached shards, 64 queries, top 420, each size in a process of its own:",
            markdown_table(["chunks", "open s", "search s", "peak MB of the process"], growing),
            f"Search time grows with the number of chunks to the power {power:.2f}.",
        ]
    )


if __name__ == "__main__":
    main()
