"""How much of a pool adaptive judging asks for, and how much of what humans found relevant it finds.

    python -m benchmarks.adaptive [--collections FOLDER] [--seeds N]

Writes benchmarks/results/adaptive.md and adaptive.json. Human judgments stand in for a judge without fault: a pair is
positive if its chunk's document was judged relevant to its query. Shares are of the pool of the seven embedded
retrievers (top 60 of each); recall is the share of the pool's positives over all queries together.
"""

from __future__ import annotations

import argparse
import hashlib
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
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.judge.adaptive import rounds as rounds_module
from darklode.pipeline.judge.adaptive.learner import ActiveLearner, sigmoid
from darklode.pipeline.judge.adaptive.pool_features import Evidence, gather_evidence
from darklode.pipeline.judge.adaptive.rounds import JudgingRounds
from darklode.pipeline.judge.adaptive.selection import expected_gains, order_by_gain
from darklode.pipeline.judge.pairs import pool_pairs
from darklode.pipeline.retrieve.pool import POOL_STAGE, pool
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.retrieve.search import SEARCH, search
from darklode.schemas.pooling import PoolSettings
from darklode.schemas.tables import CHUNKS, QUERIES

EMBEDDED = own_retrievers()

NAMES = ("cranfield", "vaswani", "cisi")
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
SIZES = (0.03, 0.06, 0.12)
TARGET, RANDOM_SHARE = 0.9, 0.1
TENANT = "t"
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


def pooled(collection: Collection, folder: Path) -> Tables:
    """Queries, chunks, rankings and pool as the stages make them; ids are rows of the collection in six digits."""
    run = Run(str(folder / collection.name))
    ids = [f"{row:06}" for row in range(len(collection.chunks))]
    queries = [f"{row:06}" for row in range(len(collection.queries))]
    _put(run, "chunks", _chunks(collection, ids))
    _put(run, "queries", _queries(collection, queries))
    builders = dict(EMBEDDED)
    settings = PoolSettings()
    run.execute(run.plan(SEARCH, {}), lambda tables, output: search(tables, output, settings, retrievers=builders))
    run.execute(run.plan(POOL_STAGE, {}), lambda tables, output: pool(tables, output, settings))
    return run.tables("queries", "chunks", "pool", "rankings")


def prepare(collection: Collection, folder: Path) -> Pool:
    """The pool as the stages make it, and its evidence."""
    tables = pooled(collection, folder)
    chunks = TenantChunks(tables, TENANT)
    with pool_pairs(tables, chunks) as pairs:
        began = time.perf_counter()
        evidence = gather_evidence(tables, chunks, pairs)
        seconds = time.perf_counter() - began
        named = pairs.ids(np.arange(len(pairs.rows)))
    relevant = np.zeros((len(collection.queries), int(collection.owners.max()) + 1))
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
    own = {
        "tenant": [TENANT] * len(ids),
        "chunk_id": ids,
        "doc_id": ids,
        "position": zeros,
        "start": zeros,
        "end": zeros,
    }
    hashes = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in texts]
    return CHUNKS.rows({**own, "text": texts, "content_hash": hashes})


def _queries(collection: Collection, ids: list[str]) -> pa.Table:
    n = len(ids)
    ones = {name: [1] * n for name in ("n_words", "cluster_id", "n_represented", "language_score")}
    words = {"tenant": [TENANT] * n, "language": ["en"] * n, "split": ["train"] * n}
    return QUERIES.rows({"query_id": ids, "text": collection.queries, **ones, **words})


@contextmanager
def round_share(share: float) -> Iterator[None]:
    """Let a round be this share of the pool, however few calls that is."""
    before = rounds_module.ROUND_SHARE, rounds_module.MIN_ROUND
    rounds_module.ROUND_SHARE, rounds_module.MIN_ROUND = share, 1
    try:
        yield
    finally:
        rounds_module.ROUND_SHARE, rounds_module.MIN_ROUND = before


def in_rounds(found: Pool, share: float) -> Iterator[tuple[NDArray[np.int64], _Floats]]:
    """Calls of each round, the first to be asked first, without a random slice, and what the learner says after it."""
    learner, n = ActiveLearner(found.evidence), found.evidence.n_pairs
    labels, gain, size = np.full(n, np.nan), -found.evidence.fused_rank.astype(np.float64), max(1, round(share * n))
    while np.isnan(labels).any():
        chosen = order_by_gain(found.evidence, gain, np.isfinite(labels), size)[:size]
        labels[chosen] = found.positive[chosen]
        log_odds = learner.fit(labels)
        gain = expected_gains(found.evidence, log_odds, labels)
        yield chosen, log_odds


def to_the_end(found: Pool, share: float) -> Trail:
    """Learn until all is judged."""
    trail, judged = Trail(found.evidence.n_pairs), np.zeros(found.evidence.n_pairs, bool)
    for chosen, log_odds in in_rounds(found, share):
        judged[chosen] = True
        trail.add(found.positive[chosen], sigmoid(log_odds), judged)
    return trail


def calls(found: Pool, share: float, until: float) -> NDArray[np.int64]:
    """Numbers of the pairs asked for until this share of the pool is judged, in order."""
    wanted, order = round(until * found.evidence.n_pairs), np.empty(0, np.int64)
    for chosen, _ in in_rounds(found, share):
        order = np.concatenate([order, chosen])
        if len(order) >= wanted:
            break
    return order[:wanted]


def curve(positive: _Floats) -> dict[str, float]:
    """Recall at `SHARES` of the calls, given each call's label in order."""
    recall = np.cumsum(positive) / positive.sum()
    return {f"{share:.0%}": round(float(recall[int(share * len(positive)) - 1]), 3) for share in SHARES}


def stops(found: Pool, seed: int) -> dict[str, Any]:
    """One run with the product's own rounds and stopping rule."""
    rounds = JudgingRounds(found.evidence, recall=TARGET, random_share=RANDOM_SHARE, seed=seed)
    judged = np.zeros(len(found.positive), bool)
    while len(numbers := rounds.next_pairs()):
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
        "query": _by_query(found, judged, said),
        "rounds": rounds.number - 1,
        "audit": _audit_shift(found, judged),
    }


def _by_query(found: Pool, judged: NDArray[np.bool_], said: dict[str, Any]) -> dict[str, float | bool]:
    """The mean over queries of what is missed: in truth, by the estimate, and whether its interval holds the truth."""
    query, n = found.evidence.query, found.evidence.n_queries
    total, kept = np.bincount(query, found.positive, n), np.bincount(query, found.positive * judged, n)
    truth = float(1 - np.mean(kept[total > 0] / total[total > 0]))
    covers = bool(said["query_missed_low"] <= truth <= said["query_missed_high"])
    return {"missed": truth, "estimate": said["query_missed_share"], "covers": covers}


def _audit_shift(found: Pool, judged: NDArray[np.bool_]) -> list[float]:
    """For each retriever, its share of the positives found less its share of all positives of the pool."""
    everything, some = found.positive > 0, (found.positive > 0) & judged
    return [float(shift) for shift in found.found_by[some].mean(axis=0) - found.found_by[everything].mean(axis=0)]


def _fixed(found: Pool, calls: int) -> float:
    """Recall of as many calls in fused-rank order."""
    order = np.argsort(found.evidence.fused_rank, kind="stable")[:calls]
    return float(found.positive[order].sum() / found.positive.sum())


def measure(found: Pool, seeds: int) -> dict[str, Any]:
    """Every figure of one collection."""
    trails = {}
    for share in SIZES:
        began = time.perf_counter()
        trails[share] = to_the_end(found, share), time.perf_counter() - began
    order = np.argsort(found.evidence.fused_rank, kind="stable")
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
            "the positives found, from that against all; `missed by query`: share of a query's positives, mean over "
            "queries, in truth and as estimated.",
            markdown_table(
                "collection,runs,judged,of it random,recall,least recall,reached,covers,interval width,"
                "same calls fused,rounds,audit shift,missed by query,estimate,covers".split(","),
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
        *(f"{np.mean([run['query'][name] for run in runs]):.3f}" for name in ("missed", "estimate")),
        f"{sum(run['query']['covers'] for run in runs)}/{len(runs)}",
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
