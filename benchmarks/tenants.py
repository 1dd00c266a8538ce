"""Heads of many tenants in one run against one head on all their queries: processor seconds and peak memory.

    python -m benchmarks.tenants

Made tenants: 100 queries each over 100 texts of its own, 384 numbers a vector, of which the base's queries are turned
away by a rotation that is the tenant's own. Both sides take equally many steps of 64 queries in all, so that each query
has as many turns; each side mines once and looks twice. Run it with OMP_NUM_THREADS=1; each figure is of a process of
its own. Writes benchmarks/results/tenants.md.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.retrieve.retrievers.blocks import ArrayVectors
from darklode.pipeline.train.data.dataset import Labels, QuerySet, Task
from darklode.pipeline.train.data.vectors import FrozenIndex
from darklode.pipeline.train.fit import loop
from darklode.pipeline.train.fit.batched_heads import StackedTrial, train_stacked
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings

TENANTS, QUERIES, TEXTS, DIMENSIONS, STEPS, RATE = (10, 100, 1000), 100, 100, 384, 20, 3e-3
TRAIN, VALIDATION = 70, 15
"""Of a tenant's 100 queries; the other 15 are the test's, which training does not touch."""

Floats = NDArray[np.float32]


class Texts(ArrayVectors):
    """Vectors in memory, each text its own."""

    def positions(self) -> NDArray[np.int64]:
        """Of each text."""
        return np.arange(len(self))


def unit(vectors: NDArray[Any]) -> Floats:
    """The same at length 1."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def made(tenant: int) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Vectors of a tenant's texts, of its queries, and the text that answers each."""
    draws = np.random.default_rng([7, tenant])
    texts = unit(draws.standard_normal((TEXTS, DIMENSIONS)))
    turn = 0.15 * np.eye(DIMENSIONS) + draws.standard_normal((DIMENSIONS, DIMENSIONS)) / np.sqrt(DIMENSIONS)
    right = draws.integers(0, TEXTS, QUERIES)
    noise = draws.standard_normal((QUERIES, DIMENSIONS)) / np.sqrt(DIMENSIONS)
    return texts, unit(texts[right] @ turn + noise), right


def task(tenants: range) -> Task:
    """What some tenants' rows are as one tenant's."""
    texts, queries, right = zip(*map(made, tenants), strict=True)
    right = tuple(one + n * TEXTS for n, one in enumerate(right))
    n = TEXTS * len(tenants)
    rows = pa.table({"text_id": pa.array(map(str, range(n))), "index": pa.array(np.zeros(n, np.int32))})
    frozen = FrozenIndex([Texts(np.concatenate(texts))], rows, None, VectorSearchSettings(device="cpu"))  # type: ignore[list-item,arg-type]
    train, validation = slice(0, TRAIN), slice(TRAIN, TRAIN + VALIDATION)
    position = np.concatenate([one[train] for one in right])
    none = np.empty(0, np.int64)
    return Task(
        frozen,
        _questions([one[train] for one in queries], [one[train] for one in right]),
        _questions([one[validation] for one in queries], [one[validation] for one in right]),
        np.arange(len(position)),
        position,
        Labels.from_pairs(np.arange(len(position)), position, n),
        Labels.from_pairs(none, none, n),
        None,
    )


def _questions(vectors: list[Floats], right: list[NDArray[np.int64]]) -> QuerySet:
    every, answer = np.concatenate(vectors), np.concatenate(right)
    ids = pa.array([f"{n:07}" for n in range(len(every))])
    labels = pa.table(
        {"query_id": ids, "text_id": pa.array(map(str, answer)), "relevance": np.ones(len(ids), np.int32)}
    )
    return QuerySet(ids, every, np.zeros(len(every), np.int32), labels)


def spent(kind: str, tenants: int) -> dict[str, float]:
    """In this process: train, for processor seconds, peak memory and how many tenants gained on validation."""
    settings = AdaptSettings(max_steps=STEPS if kind == "heads" else STEPS * tenants, refresh_steps=STEPS * tenants)
    loop.LOOK = settings.max_steps
    told = lambda *_: None  # noqa: E731
    tasks = [task(range(n, n + 1)) for n in range(tenants)] if kind == "heads" else [task(range(tenants))]
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    courses = train_stacked([StackedTrial(one, RATE, 0, told) for one in tasks], settings)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gained = float(np.mean([one.eval_points[-1].validation - one.eval_points[0].validation for one in courses]))
    return {"seconds": seconds, "peak MB": peak / 1024, "before MB": before / 1024, "gained": gained}


def main() -> None:
    """Measure each in a process of its own, and write the page."""
    if len(sys.argv) > 1:
        print(json.dumps(spent(sys.argv[1], int(sys.argv[2]))))
        return
    found = {n: {kind: _alone(kind, n) for kind in ("one", "heads")} for n in TENANTS}
    rows = [_row(n, **of) for n, of in found.items()]
    head = [
        "tenants",
        "steps in all",
        "one head, s",
        "a head each, s",
        "ratio",
        "steps/s",
        "MB more at the peak: one",
        "a head each",
    ]
    write("tenants", "\n\n".join(["# Heads of many tenants in one run", machine(), markdown_table(head, rows)]), found)


def _alone(kind: str, tenants: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.tenants", kind, str(tenants)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _row(tenants: int, one: dict[str, float], heads: dict[str, float]) -> list[str]:
    steps = STEPS * tenants
    more = [f"{of['peak MB'] - of['before MB']:,.0f}" for of in (one, heads)]
    seconds = [f"{of['seconds']:.1f}" for of in (one, heads)]
    ratio = heads["seconds"] / one["seconds"]
    return [f"{tenants:,}", f"{steps:,}", *seconds, f"{ratio:.2f}", f"{steps / heads['seconds']:.0f}", *more]


if __name__ == "__main__":
    main()
