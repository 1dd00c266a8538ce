"""How much of a pool adaptive judging asks for, and how much of what humans found relevant it finds.

    python -m benchmarks.adaptive [--collections FOLDER] [--seeds N]

Writes benchmarks/results/adaptive.md and adaptive.json. Human judgments stand in for a judge without fault: a pair is
positive if its chunk's document was judged relevant to its query. Shares are of the pool of the seven embedded
retrievers (top 60 of each); recall is the share of the pool's positives over all queries together.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.collections_io import COLLECTIONS, Collection, read_collection
from benchmarks.report import machine, markdown_table, write
from benchmarks.stopping_rules import RULES, Trail
from darklode.pipeline.base.artifacts import Run, Stage, Tables
from darklode.pipeline.base.corpora import TenantChunks
from darklode.pipeline.judge.adaptive import rounds as rounds_module
from darklode.pipeline.judge.adaptive.evidence import Evidence, gather
from darklode.pipeline.judge.adaptive.learner import Learner
from darklode.pipeline.judge.adaptive.rounds import Rounds
from darklode.pipeline.judge.pairs import pool_pairs
from darklode.pipeline.retrieve.pool import POOL_STAGE, pool
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.retrieve.search import SEARCH, search
from darklode.schemas.settings import PoolSettings
from darklode.schemas.tables import CHUNKS, QUERIES

EMBEDDED = own_retrievers()

NAMES = ("cranfield", "vaswani", "cisi")
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
SIZES = (0.01, 0.03, 0.06, 0.12)
TARGET, RANDOM_SHARE = 0.9, 0.1
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pool:
    """A collection's pool; `positive` holds 1 or 0 for each pair, `found_by` whether each retriever has it in its
    first 60, shape (n_pairs, 7), and `seconds` those that its evidence took.
    """

    name: str
    evidence: Evidence
    positive: _Floats
    found_by: NDArray[np.bool_]
    seconds: float


def prepare(collection: Collection, folder: Path) -> Pool:
    """The pool as the stages make it, and its evidence."""
    run = Run(str(folder / collection.name))
    ids = [f"{row:06}" for row in range(len(collection.chunks))]
    queries = [f"{row:06}" for row in range(len(collection.queries))]
    _put(run, "chunks", _chunks(collection, ids))
    _put(run, "queries", _queries(collection, queries))
    builders = dict(EMBEDDED)
    settings = PoolSettings()
    run.execute(run.plan(SEARCH, {}), lambda tables, output: search(tables, output, settings, retrievers=builders))
    run.execute(run.plan(POOL_STAGE, {}), lambda tables, output: pool(tables, output, settings))
    tables = run.tables("queries", "chunks", "pool", "rankings")
    chunks = TenantChunks(tables, "t")
    with pool_pairs(tables, chunks) as pairs:
        began = time.perf_counter()
        evidence = gather(tables, chunks, pairs)
        seconds = time.perf_counter() - began
        named = pairs.ids(np.arange(len(pairs.rows)))
    relevant = np.zeros((len(queries), int(collection.owners.max()) + 1))
    for row, documents in enumerate(collection.relevant):
        relevant[row, documents] = 1
    asked = np.array([int(name) for name in named["query_id"].to_pylist()])
    positive = relevant[asked, collection.owners[pairs.rows]]
    return Pool(collection.name, evidence, positive, _found_by(tables), seconds)


def _found_by(tables: Tables) -> NDArray[np.bool_]:
    columns = ", ".join(f"list_contains(retrievers, '{name}') AS {name}" for name in EMBEDDED)
    found = tables.sql(f"SELECT {columns} FROM pool ORDER BY query_id, chunk_id")
    return np.stack([column.to_numpy() for column in found.columns], axis=1)


def _put(run: Run, table: str, rows: pa.Table) -> None:
    run.execute(run.plan(Stage(f"given_{table}", 1, (), (table,)), {}), lambda _, output: output.write(table, rows))


def _chunks(collection: Collection, ids: list[str]) -> pa.Table:
    texts = collection.chunks
    zeros = [0] * len(ids)
    own = {"tenant": ["t"] * len(ids), "chunk_id": ids, "doc_id": ids, "position": zeros, "start": zeros, "end": zeros}
    return CHUNKS.rows({**own, "text": texts, "content_hash": ids})


def _queries(collection: Collection, ids: list[str]) -> pa.Table:
    n = len(ids)
    ones = {name: [1] * n for name in ("n_words", "cluster_id", "n_represented", "language_score")}
    words = {"tenant": ["t"] * n, "language": ["en"] * n, "split": ["train"] * n}
    return QUERIES.rows({"query_id": ids, "text": collection.queries, **ones, **words})


@contextmanager
def round_share(share: float) -> Iterator[None]:
    """Let a round be this share of the pool, however few calls that is."""
    before = rounds_module.SHARE, rounds_module.LEAST
    rounds_module.SHARE, rounds_module.LEAST = share, 1
    try:
        yield
    finally:
        rounds_module.SHARE, rounds_module.LEAST = before


def to_the_end(found: Pool, share: float) -> Trail:
    """Learn without a random slice until all is judged."""
    learner, n = Learner(found.evidence), found.evidence.n_pairs
    labels, log_odds = np.full(n, np.nan), -found.evidence.place.astype(np.float64)
    trail = Trail(n)
    while np.isnan(labels).any():
        left = np.flatnonzero(np.isnan(labels))
        chosen = left[np.argsort(-log_odds[left], kind="stable")][: max(1, round(share * n))]
        labels[chosen] = found.positive[chosen]
        log_odds = learner.fit(labels)
        trail.add(found.positive[chosen], 1 / (1 + np.exp(-log_odds)), np.isfinite(labels))
    return trail


def curve(positive: _Floats) -> dict[str, float]:
    """Recall at `SHARES` of the calls, given each call's label in order."""
    recall = np.cumsum(positive) / positive.sum()
    return {f"{share:.0%}": round(float(recall[int(share * len(positive)) - 1]), 3) for share in SHARES}


def stops(found: Pool, seed: int) -> dict[str, Any]:
    """One run with the product's own rounds and stopping rule."""
    rounds = Rounds(found.evidence, recall=TARGET, random_share=RANDOM_SHARE, seed=seed)
    judged = np.zeros(len(found.positive), bool)
    while len(numbers := rounds.next()):
        rounds.learn(numbers, found.positive[numbers])
        judged[numbers] = True
    said = {name: value[0] for name, value in rounds.summary().items()}
    truth = 1 - said["positives"] / float(found.positive.sum())
    return {
        "judged": said["judged"] / said["pairs"],
        "random": said["random"] / said["pairs"],
        "recall": 1 - truth,
        "fixed": _fixed(found, int(said["judged"])),
        "missed_share": said["missed_share"],
        "interval": (said["missed_low"], said["missed_high"]),
        "covers": bool(said["missed_low"] <= truth <= said["missed_high"]),
        "rounds": rounds.number - 1,
        "audit": _audit_shift(found, judged),
    }


def _audit_shift(found: Pool, judged: NDArray[np.bool_]) -> list[float]:
    """For each retriever, its share of the positives found less its share of all positives of the pool."""
    everything, some = found.positive > 0, (found.positive > 0) & judged
    return [float(shift) for shift in found.found_by[some].mean(axis=0) - found.found_by[everything].mean(axis=0)]


def _fixed(found: Pool, calls: int) -> float:
    """Recall of as many calls in fused-rank order."""
    order = np.argsort(found.evidence.place, kind="stable")[:calls]
    return float(found.positive[order].sum() / found.positive.sum())


def measure(found: Pool, seeds: int) -> dict[str, Any]:
    """Every figure of one collection."""
    trails = {}
    for share in SIZES:
        began = time.perf_counter()
        trails[share] = to_the_end(found, share), time.perf_counter() - began
    order = np.argsort(found.evidence.place, kind="stable")
    chosen = trails[0.03][0]
    return {
        "pairs": found.evidence.n_pairs,
        "positive": round(float(found.positive.mean()), 3),
        "seconds": round(found.seconds, 1),
        "fused": curve(found.positive[order]),
        "rounds": {
            f"{share:.0%}": curve(trail.labels) | {"seconds": round(s, 1)} for share, (trail, s) in trails.items()
        },
        "rules": {name: chosen.at(rule(chosen, TARGET)) for name, rule in RULES.items()},
        "stops": [stops(found, seed) for seed in range(seeds)],
    }


def to_markdown(results: dict[str, dict[str, Any]]) -> str:
    """The tables of a report."""
    shares = [f"{share:.0%}" for share in SHARES]
    orders = [[name, "fused rank", "", *[r["fused"][at] for at in shares], ""] for name, r in results.items()]
    orders += [
        [name, "adaptive", size, *[c[at] for at in shares], c["seconds"]]
        for name, r in results.items()
        for size, c in r["rounds"].items()
    ]
    rules = [
        [name, rule, f"{judged:.3f}", f"{recall:.3f}", "yes" if recall >= TARGET else "no"]
        for name, r in results.items()
        for rule, (judged, recall) in r["rules"].items()
    ]
    ours = [[name, *_summary(r["stops"])] for name, r in results.items()]
    return "\n\n".join(
        [
            "# Adaptive judging",
            "Share of the pool's positives found after a share of the calls, without a random slice; `round` is the "
            "share of the pool in a round, `seconds` those of all fits until everything is judged.",
            markdown_table(["collection", "order", "round", *shares, "seconds"], orders),
            f"The stopping rule in use, set to {TARGET}, random slices counted as calls. `same calls fused` is what "
            "as many calls find in fused-rank order; `covers`: runs in which the 95 % interval of the missed share "
            "holds the truth; `audit shift`: least and greatest mean shift, by retriever, of recall at 60 against "
            "the positives found, from that against all.",
            markdown_table(
                "collection,runs,judged,of it random,recall,least recall,reached,covers,interval width,"
                "same calls fused,rounds,audit shift".split(","),
                ours,
            ),
            f"Other rules, target {TARGET}, on the run in rounds of 3 % without a slice.",
            markdown_table(["collection", "rule", "judged", "recall", "reached"], rules),
        ]
    )


def _summary(runs: list[dict[str, Any]]) -> list[object]:
    def mean(name: str) -> str:
        return f"{np.mean([run[name] for run in runs]):.3f}"

    recalls = [run["recall"] for run in runs]
    width = np.mean([run["interval"][1] - run["interval"][0] for run in runs])
    reached = sum(recall >= TARGET for recall in recalls)
    shifts = np.mean([run["audit"] for run in runs], axis=0)
    covered = sum(run["covers"] for run in runs)
    return [
        len(runs),
        mean("judged"),
        mean("random"),
        mean("recall"),
        f"{min(recalls):.3f}",
        f"{reached}/{len(runs)}",
        f"{covered}/{len(runs)}",
        f"{width:.3f}",
        mean("fixed"),
        mean("rounds"),
        f"{shifts.min():+.3f} to {shifts.max():+.3f}",
    ]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the collections")
    parser.add_argument("--seeds", type=int, default=20, help="random slices tried on each collection")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        pools = [prepare(read_collection(name, options.collections), Path(scratch)) for name in NAMES]
        results = {found.name: measure(found, options.seeds) for found in pools}
    write("adaptive", f"{to_markdown(results)}\n\n{machine()}", results)


if __name__ == "__main__":
    main()
