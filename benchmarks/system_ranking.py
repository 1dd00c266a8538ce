"""Whether a judge's labels rank systems as people's do: Kendall's tau of nDCG@10 over thirteen systems.

    python -m benchmarks.system_ranking [--preset local] [--set KEY=VALUE ...] [--only NAME ...] [--collections FOLDER]

The judge is that of the settings, by default the embedded one; its kind is part of the results' name. Systems are
the seven embedded retrievers, three fusions, and three that were made worse. A chunk is relevant to people if its
document is; what is not listed counts as not relevant. People are held against themselves, and the judge against them,
by halves: systems ranked by people on one half of the queries, and by either on the other, mean over random halves.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from benchmarks.adaptive import TENANT, pooled
from benchmarks.collections_io import COLLECTIONS, LABELLED, Collection, present, read_collection
from benchmarks.report import machine, markdown_table, write
from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.judge.pairs import pair_blocks
from darklode.schemas.settings import Settings

DEPTH, CUT, K, HALVES, SEED = 60, 10, 60, 200, 7
_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]
_Floats = NDArray[np.float64]
Lists = dict[str, _Ints]
"""Rows of the chunks that each system finds, best first, -1 where it found fewer, shape (n_queries, DEPTH)."""


def fused(lists: Lists, *names: str) -> _Ints:
    """Reciprocal-rank fusion (Cormack, Clarke & Büttcher 2009) of these lists, or of all, ties by row."""
    chosen = [lists[name] for name in names or lists]
    scores = np.zeros((len(chosen[0]), 1 + max(int(rows.max()) for rows in lists.values())))
    for rows in chosen:
        query, place = np.nonzero(rows >= 0)
        scores[query, rows[query, place]] += 1 / (K + 1 + place)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
    return np.where(np.take_along_axis(scores, order, axis=1) > 0, order, -1)


SYSTEMS: dict[str, Callable[[Lists], _Ints]] = {
    "all seven, fused": fused,
    "bm25 and lsa_feedback, fused": lambda lists: fused(lists, "bm25", "lsa_feedback"),
    "character and ppmi, fused": lambda lists: fused(lists, "character", "ppmi"),
    "bm25 without its first find": lambda lists: lists["bm25"][:, 1:],
    "lsa_feedback, every other find": lambda lists: lists["lsa_feedback"][:, ::2],
    "all seven, fused, first ten reversed": lambda lists: fused(lists)[:, CUT - 1 :: -1],
}
"""Made of the seven's lists, in the first three with care, in the last three to do worse."""


def thirteen(tables: Tables, n_queries: int) -> Lists:
    """The seven's lists and what is made of them."""
    found = tables.sql(f"SELECT retriever, query_id, rank, chunk_id FROM rankings WHERE rank <= {DEPTH}")
    names = found["retriever"].to_pylist()
    lists = {name: np.full((n_queries, DEPTH), -1) for name in sorted(set(names))}
    rows = zip(names, *(found[name].to_pylist() for name in ("query_id", "rank", "chunk_id")), strict=True)
    for name, query, rank, chunk in rows:
        lists[name][int(query), rank - 1] = int(chunk)
    return lists | {name: make(lists) for name, make in SYSTEMS.items()}


def by_people(collection: Collection) -> _Bools:
    """Which chunks people find relevant, shape (n_queries, n_chunks)."""
    return np.stack([np.isin(collection.owners, documents) for documents in collection.relevant])


def by_judge(tables: Tables, settings: Settings, shape: tuple[int, int]) -> _Bools:
    """Which chunks of the pool a judge finds relevant; unreadable replies count as not relevant."""
    chunks, labels = TenantChunks(tables, TENANT), np.zeros(shape, bool)
    judge = Judges.from_settings(settings)(chunks)
    for pairs in pair_blocks(tables, chunks):
        said = asyncio.run(judge.judge(pairs))["relevant"].fill_null(False).to_numpy()
        query, chunk = (np.array(pairs[name].to_pylist()).astype(np.int64) for name in ("query_id", "chunk_id"))
        labels[query, chunk] = said
    return labels


def ndcg(rows: _Ints, relevant: _Bools) -> _Floats:
    """nDCG@10 of each query, 0 where nothing is relevant, shape (n_queries,)."""
    first = rows[:, :CUT]
    hits = np.take_along_axis(relevant, np.maximum(first, 0), axis=1) & (first >= 0)
    discount = 1 / np.log2(np.arange(2, CUT + 2))
    ideal = np.concatenate([[1], np.cumsum(discount)])[np.minimum(relevant.sum(axis=1), CUT)]
    return np.asarray(hits @ discount[: first.shape[1]] / ideal * relevant.any(axis=1))


def halves(left: _Floats, right: _Floats) -> tuple[float, float]:
    """Mean tau of the systems' means on one half of the queries with those on the other, and its standard deviation.

    Args:
        left: nDCG@10 by whoever ranks the first half, shape (n_systems, n_queries).
        right: by whoever ranks the other half.
    """
    dice, n = np.random.default_rng(SEED), left.shape[1]
    taus = []
    for _ in range(HALVES):
        order = dice.permutation(n)
        one, other = order[: n // 2], order[n // 2 :]
        taus.append(tau(left[:, one], right[:, other]))
    return float(np.mean(taus)), float(np.std(taus))


def tau(left: _Floats, right: _Floats) -> float:
    """Kendall's tau-b of the systems' means."""
    return float(kendalltau(left.mean(axis=1), right.mean(axis=1)).statistic)


def measure(collection: Collection, settings: Settings) -> dict[str, Any]:
    """Every figure of one collection."""
    with tempfile.TemporaryDirectory() as folder:
        tables = pooled(collection, Path(folder))
        lists, people = thirteen(tables, len(collection.queries)), by_people(collection)
        judged = by_judge(tables, settings, people.shape)
    theirs, its = (np.stack([ndcg(rows, labels) for rows in lists.values()]) for labels in (people, judged))
    return {
        "queries": len(collection.queries),
        "people on themselves": halves(theirs, theirs),
        "judge on people": halves(its, theirs),
        "tau": tau(its, theirs),
        "systems": {
            name: (float(own.mean()), float(said.mean())) for name, own, said in zip(lists, theirs, its, strict=True)
        },
    }


def to_markdown(results: dict[str, dict[str, Any]], kind: str) -> str:
    """The tables of a report."""
    head = ["collection", "queries", "people, half on half", "judge, half on people's half", "judge, all queries"]
    rows = [
        [
            name,
            found["queries"],
            *(_spread(found[of]) for of in ("people on themselves", "judge on people")),
            f"{found['tau']:.2f}",
        ]
        for name, found in results.items()
    ]
    systems = [
        [system, *(f"{people:.3f} / {judge:.3f}" for people, judge in (r["systems"][system] for r in results.values()))]
        for system in next(iter(results.values()))["systems"]
    ]
    return "\n\n".join(
        [
            f"# Ranking systems: {kind}",
            "Kendall's tau of nDCG@10 over thirteen systems (standard deviation over 200 halves). Closed world: what "
            "is not listed counts as not relevant to people.",
            markdown_table(head, rows),
            "nDCG@10 by people / by the judge:",
            markdown_table(["system", *results], systems),
        ]
    )


def _spread(found: tuple[float, float]) -> str:
    return f"{found[0]:.2f} ({found[1]:.2f})"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="embedded", help="whose judge")
    parser.add_argument("--set", action="append", default=[], help="a setting, as of darklode build")
    parser.add_argument("--only", nargs="+", choices=LABELLED, default=LABELLED, help="collections to measure")
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the collections")
    options = parser.parse_args()
    settings = load_settings(options.preset, assignments=options.set)
    results = {
        name: measure(read_collection(name, options.collections), settings)
        for name in present(options.only, options.collections)
    }
    kind = settings.judge.kind
    write(f"system_ranking_{kind}", f"{to_markdown(results, kind)}\n\n{machine()}", results)


if __name__ == "__main__":
    main()
