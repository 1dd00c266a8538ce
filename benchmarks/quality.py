"""How much of what humans found relevant the embedded retrievers find, on the four labelled collections.

    python -m benchmarks.quality [--collections FOLDER] [--only NAME ...]

Writes benchmarks/results/quality.md and quality.json. Recall is the mean over queries of the share of relevant
documents found; a chunk counts for its document; every judged query is kept.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.collections_io import COLLECTIONS, LABELLED, Collection, present, read_collection
from benchmarks.report import machine, write
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers

EMBEDDED = own_retrievers()

POOL_DEPTH = 60
AUDIT_DEPTH = 420
BUDGETS = (100, 150, 210)
BATCH = 2_000
Rankings = dict[str, NDArray[np.int64]]


def rank(collection: Collection) -> Rankings:
    """Each retriever's chunk rows, shape (n_queries, at most 420), -1 where it found fewer."""
    texts = collection.chunks
    with tempfile.TemporaryDirectory() as scratch:
        starts = range(0, len(texts), BATCH)
        corpus = Corpus(lambda: (texts[i : i + BATCH] for i in starts), len(texts), Path(scratch))
        return {name: build(corpus).search(collection.queries, AUDIT_DEPTH).rows for name, build in EMBEDDED.items()}


def recall(collection: Collection, found: list[NDArray[np.int64]]) -> float:
    """Mean over queries of the share of relevant documents with a chunk among `found`."""
    shares = [
        np.isin(relevant, collection.owners[rows]).mean()
        for relevant, rows in zip(collection.relevant, found, strict=True)
    ]
    return float(np.mean(shares))


def union(rankings: Rankings, depth: int) -> list[NDArray[np.int64]]:
    """Chunk rows any retriever holds in its first `depth`, for each query."""
    joined = np.hstack([rows[:, :depth] for rows in rankings.values()])
    return [np.unique(rows[rows >= 0]) for rows in joined]


def fused_order(rankings: Rankings, n_chunks: int) -> list[NDArray[np.int64]]:
    """Chunk rows of each query by reciprocal-rank fusion of the whole lists (k = 60), ties by row."""
    return [
        _fuse_one([rows[query] for rows in rankings.values()], n_chunks)
        for query in range(len(next(iter(rankings.values()))))
    ]


def _fuse_one(lists: list[NDArray[np.int64]], n_chunks: int) -> NDArray[np.int64]:
    scores = np.zeros(n_chunks)
    for rows in lists:
        found = rows[rows >= 0]
        scores[found] += 1 / (60 + np.arange(1, len(found) + 1))
    order = np.argsort(-scores, kind="stable")
    return order[: np.count_nonzero(scores)]


def measure(collection: Collection) -> dict[str, Any]:
    """Every figure of one collection."""
    started = time.perf_counter()
    rankings = rank(collection)
    seconds = time.perf_counter() - started
    pool = union(rankings, POOL_DEPTH)
    fused = fused_order(rankings, len(collection.chunks))
    same_size = [order[: len(rows)] for order, rows in zip(fused, pool, strict=True)]
    bm25 = [order[order >= 0][: len(rows)] for order, rows in zip(rankings["bm25"], pool, strict=True)]
    return {
        "chunks": len(collection.chunks),
        "queries": len(collection.queries),
        "seconds": round(seconds, 1),
        "union": recall(collection, pool),
        "pool_size": float(np.mean([len(rows) for rows in pool])),
        "bm25_equal_size": recall(collection, bm25),
        "fused_equal_size": recall(collection, same_size),
        "fused": {str(n): recall(collection, [order[:n] for order in fused]) for n in BUDGETS},
        "retrievers": {name: _one(collection, rankings, name) for name in rankings},
    }


def _one(collection: Collection, rankings: Rankings, name: str) -> dict[str, float]:
    alone = {name: rankings[name]}
    others = {other: rows for other, rows in rankings.items() if other != name}
    return {
        "recall_60": recall(collection, union(alone, POOL_DEPTH)),
        "recall_420": recall(collection, union(alone, AUDIT_DEPTH)),
        "union_without": recall(collection, union(others, POOL_DEPTH)),
    }


def to_markdown(results: dict[str, dict[str, Any]]) -> str:
    """The tables of a report."""
    head = [
        "| collection | chunks | queries | union of top 60 | mean pool | BM25, same size | fused, same size "
        "| fused 100 | fused 150 | fused 210 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows = [
        f"| {name} | {r['chunks']} | {r['queries']} | {r['union']:.3f} | {r['pool_size']:.0f} "
        f"| {r['bm25_equal_size']:.3f} | {r['fused_equal_size']:.3f} | "
        + " | ".join(f"{r['fused'][str(n)]:.3f}" for n in BUDGETS)
        + " |"
        for name, r in results.items()
    ]
    return "\n".join(["# Recall of the embedded retrievers", "", *head, *rows, "", *_per_retriever(results), ""])


def _per_retriever(results: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "Recall at 60 / recall at 420 / what the union of the other six at depth 60 misses without it.",
        "",
        f"| retriever | {' | '.join(results)} |",
        "|---" * (len(results) + 1) + "|",
    ]
    for name in EMBEDDED:
        cells = [(r["retrievers"][name], r["union"]) for r in results.values()]
        figures = [
            f"{c['recall_60']:.3f} / {c['recall_420']:.3f} / {full - c['union_without']:.3f}" for c, full in cells
        ]
        lines.append(f"| {name} | {' | '.join(figures)} |")
    return lines


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the collections")
    parser.add_argument("--only", nargs="+", choices=LABELLED, default=LABELLED, help="collections to measure")
    options = parser.parse_args()
    results = {
        name: measure(read_collection(name, options.collections)) for name in present(options.only, options.collections)
    }
    write("quality", f"{to_markdown(results)}\n{machine()}", results)


if __name__ == "__main__":
    main()
