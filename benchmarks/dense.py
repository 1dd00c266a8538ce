"""Exact dense search.

Darklode's exact search against faiss (IndexFlatIP), sentence-transformers' `semantic_search`, and bare matrix
products with top-k in torch and NumPy: the same float32 vectors of 384 dimensions, all cores, no GPU, wall time. The
systems take turns; medians. A ratio above 1 means that Darklode is faster. Takes 5 minutes and 10 GB of memory;
`--quick` measures 20,000 chunks (1 min).

    python -m benchmarks.dense [--quick] [--chunks N ...]
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import product
from statistics import median
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.util import dot_score, semantic_search

from benchmarks.report import ResultTable, options, publish
from darklode.pipeline.retrieve.retrievers.blocks import ArrayVectors
from darklode.pipeline.retrieve.retrievers.exact import exact_search
from darklode.schemas.pooling import VectorSearchSettings

DIMENSIONS = 384
SIZES, QUICK = (200_000, 1_000_000), (20_000,)
QUERIES, DEPTHS = (1, 64, 1024), (60, 420)
SETTINGS = VectorSearchSettings(device="cpu")
DARKLODE = "Darklode"
OTHERS = ("faiss", "semantic_search", "bare torch", "bare NumPy")
BLOCK = 1 << 16
MAX_ROUNDS = 15
ROUND_SECONDS, QUICK_ROUND_SECONDS = 20, 2
COSTLY = 3e8  # queries × chunks from which on one round is enough, because it takes minutes
PAUSE = 0.1  # seconds until the threads of the previous search stop spinning

Floats = NDArray[np.float32]
Search = Callable[[Floats, int], Any]


def unit_vectors(n: int, seed: int) -> Floats:
    """Random vectors of length 1, made block by block."""
    generator, vectors = np.random.default_rng(seed), np.empty((n, DIMENSIONS), dtype=np.float32)
    for start in range(0, n, BLOCK):
        block = generator.standard_normal((min(BLOCK, n - start), DIMENSIONS), dtype=np.float32)
        vectors[start : start + BLOCK] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return vectors


def systems(vectors: Floats) -> dict[str, Search]:
    """A search for each system; what can be prepared once is prepared here."""
    source, tensor, index = ArrayVectors(vectors), torch.from_numpy(vectors), faiss.IndexFlatIP(DIMENSIONS)
    index.add(vectors)
    return {
        DARKLODE: lambda queries, k: exact_search(queries, source, k, SETTINGS).rows,
        "faiss": lambda queries, k: index.search(queries, k)[1],
        "semantic_search": lambda queries, k: semantic_search(
            torch.from_numpy(queries), tensor, top_k=k, score_function=dot_score
        ),
        "bare torch": lambda queries, k: torch.topk(torch.from_numpy(queries) @ tensor.T, k).indices.numpy(),
        "bare NumPy": lambda queries, k: torch.topk(torch.from_numpy(queries @ vectors.T), k),
    }


def compare(n: int, max_seconds: float) -> list[list[object]]:
    """A row for each number of queries and depth; no round begins after `max_seconds`, but for the least number."""
    searches, rows = systems(unit_vectors(n, 1)), []
    for n_queries, depth in product(QUERIES, DEPTHS):
        rounds = (3 if n * n_queries < COSTLY else 1, max_seconds)
        seconds, same = take_turns(searches, unit_vectors(n_queries, 2), depth, *rounds)
        rows.append(result_row(n, n_queries, depth, seconds, same))
        print(rows[-1], flush=True)
    return rows


def take_turns(
    searches: dict[str, Search], queries: Floats, depth: int, least: int, max_seconds: float
) -> tuple[dict[str, float], float]:
    """Median seconds of each system, in a changing order; and the share of Darklode's rows that are faiss's."""
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    results: dict[str, Any] = {}
    order, began, rounds = random.Random(1), time.perf_counter(), 0
    while rounds < least or (rounds < MAX_ROUNDS and time.perf_counter() - began < max_seconds):
        for name in order.sample(list(searches), len(searches)):
            time.sleep(PAUSE)
            start = time.perf_counter()
            results[name] = searches[name](queries, depth)
            seconds[name].append(time.perf_counter() - start)
        rounds += 1
    same = float((results[DARKLODE] == results["faiss"]).mean())
    return {name: median(spent) for name, spent in seconds.items()}, same


def result_row(n: int, n_queries: int, depth: int, seconds: dict[str, float], same: float) -> list[object]:
    """Darklode's seconds, and the others' as multiples of it."""
    ours = seconds[DARKLODE]
    return [n, n_queries, depth, ours, *(seconds[name] / ours for name in OTHERS), same]


def table(rows: Sequence[Sequence[object]]) -> ResultTable:
    """Times by size."""
    columns = {"chunks": ",d", "queries": ",d", "top": "d", "Darklode s": ".4f"}
    columns |= {f"{name} ÷ Darklode": ".2f" for name in OTHERS} | {"same rows as faiss": ".4f"}
    note = "Rows differ from faiss's where two scores differ in the last bit of a float32."
    packages = ("faiss-cpu", "numpy", "sentence-transformers", "torch")
    return ResultTable("Side by side", columns, rows, note, packages)


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__)
    parser.add_argument("--chunks", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    sizes, seconds = (QUICK, QUICK_ROUND_SECONDS) if arguments.quick else (arguments.chunks, ROUND_SECONDS)
    rows = [row for n in sizes for row in compare(n, seconds)]
    publish("dense", [table(rows)], quick=arguments.quick)


if __name__ == "__main__":
    main()
