"""Small tenants.

Simulation of 1,000 tenants from the MiniLM vectors of insuranceqa and homedepot. A tenant belongs to one of 20 topics
(k-means of the queries), searches that topic's texts, and has Zipf-distributed sizes; no two tenants share a test
query. 30 % of a topic's query clusters belong to no tenant: they measure the true lift of each head. "No lift": a
query's relevant text is drawn by its rank in the base, so that every change harms; "one in five harmed": that
holds for every fifth tenant, and the others have people's labels. The last rows flip the signs of real test
differences, by cluster (no tenant has a lift) or by tenant (half of them are harmed).

"Own head" is whitening and ridge regression on a tenant's own rows, selected on its own validation queries; "own test"
is the release test of a single tenant. "Shared head" is the same method over all tenants' rows; `--pool-tenants`
releases the head with offset by the pooled test, or the own head if it passes its own test. The oracle has for each
tenant the best of base, own head, shared head and shared head with offset: selected on one half of the truth queries
and measured on the other. A false release is one whose lift on the truth queries is not above 0. Intervals: bootstrap
over topics.

    python -m benchmarks.tenants [--quick] [--part gate|simulation|run] [--tenants N] [--seeds N] [--own-every N]
                                 [--no-offsets] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.stats import beta

from benchmarks.adapt import LEAST_GRADE, MINILM, make_run, people_labels
from benchmarks.collections_io import options, present
from benchmarks.measure import in_new_process
from benchmarks.report import ResultTable, publish
from benchmarks.tenant_gate import gate_table
from benchmarks.tenant_run import SPLITS, TEXTS
from benchmarks.tenant_run import adapt as adapt_all
from benchmarks.tenant_run import make_run as make_tenant_run
from benchmarks.tenant_simulation import TEMPERATURE, SyntheticTenant, Topic, draw_tenants, read_topics
from darklode.flows.jobs.adapt_encoder import pairs_step
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.types import Doubles, Floats, Ints
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired, is_gain
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.fit.moments import Moments
from darklode.pipeline.train.fit.pooled_head import (
    OFFSET_RIDGES,
    TrainingPairs,
    offset_map,
    shared_maps,
    whitening_maps,
)
from darklode.pipeline.train.release.pooled_evidence import PooledEvidence, decide_pooled_release
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

NAMES = ("insuranceqa", "homedepot")
CHANCE = ResamplingSettings(1000, 2000, 13)
HARMED_EVERY = 5
FLIPS = 200
"""Repetitions of each condition with flipped signs."""

POLICIES = (
    "always own head",
    "own head, own test",
    "always shared head",
    "always shared head with offset",
    "--pool-tenants",
)


def save_vectors(name: str, folder: Path, cache: str, path: Path) -> None:
    """Save a collection's vectors and positives as arrays."""
    with tempfile.TemporaryDirectory() as scratch:
        run = make_run(folder, Path(scratch) / "run", people_labels(folder, LEAST_GRADE[name]))
        out, source = Run(f"{scratch}/out"), TrainingSource(run, 0, False, 0)
        base = BaseEncoder(MINILM, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (source,))
        step = pairs_step(base, Settings())
        out.execute(step.plan(out), step.execute)
        tables = out.tables()
        frozen, queries, labels = base.open(tables), tables.read("adaptation_queries"), tables.read("adaptation_labels")
        labels = labels.filter(pc.greater(labels["relevance"], 0))
        np.savez(
            path,
            queries=frozen.encode(queries["text"].to_pylist()),
            texts=frozen.take(np.arange(len(frozen)))[frozen.position_of],
            query=pc.index_in(labels["query_id"], queries["query_id"].combine_chunks()).to_numpy(),
            text=pc.index_in(labels["text_id"], frozen.texts["text_id"].combine_chunks()).to_numpy(),
        )


@dataclass(frozen=True)
class Simulation:
    """Tenants with their heads, tested.

    Attributes:
        topic: topic of each tenant.
        truth: true lift of each head by name, two columns for the halves of the truth queries, shape (n_tenants, 2).
        own_released: whether the own head passes its own test, shape (n_tenants,).
        evidence: pooled test of the shared head with offset.
        values, owners: cluster differences of that test, and their tenants.
    """

    topic: Ints
    truth: Mapping[str, Doubles]
    own_released: NDArray[np.bool_]
    evidence: PooledEvidence
    values: Doubles
    owners: Ints

    def lift(self, head: str) -> Doubles:
        """Lift of a head over all truth queries."""
        return np.asarray(self.truth[head].mean(axis=1))

    @property
    def oracle(self) -> Doubles:
        """Lift of the head that is best on one half, measured on the other half; mean of both directions."""
        heads = np.stack([np.zeros_like(self.truth["own"]), *(np.nan_to_num(rows) for rows in self.truth.values())])
        chosen = heads.argmax(axis=0)[:, ::-1]  # selected on the other half
        return np.asarray(np.take_along_axis(heads, chosen[None], 0)[0].mean(axis=1))

    def policies(self) -> dict[str, tuple[NDArray[np.bool_], Doubles]]:
        """Which tenants each policy releases a head for, and the lifts of those heads."""
        everybody, own, offset = np.ones(len(self.topic), bool), self.lift("own"), self.lift("offset")
        pooled = np.where(self.own_released, own, offset), self.own_released | self.evidence.released
        released = (~np.isnan(own), self.own_released, everybody, everybody, pooled[1])
        return dict(
            zip(POLICIES, zip(released, (own, own, self.lift("shared"), offset, pooled[0]), strict=True), strict=True)
        )


def simulate(
    topics: Sequence[Topic], tenants: Sequence[SyntheticTenant], own_every: int = 1, *, offsets: bool = True
) -> Simulation:
    """Train and test all heads.

    Args:
        topics: the topics.
        tenants: the tenants.
        own_every: own heads are trained for one in so many tenants; the others have none (NaN).
        offsets: whether tenants have an offset from the shared head.
    """
    pairs = [topics[tenant.topic].pairs(tenant.train) for tenant in tenants]
    texts = [_moments([topic.texts]) for topic in topics]
    shared, ridge = _pooled_head(topics, tenants, pairs, OFFSET_RIDGES if offsets else OFFSET_RIDGES[:1])
    halves = [_halves(topic) for topic in topics]
    base_truth = [[topic.ndcg(rows, None) for rows in half] for topic, half in zip(topics, halves, strict=True)]
    shared_truth = [
        _lifts(topic, half, base, shared) for topic, half, base in zip(topics, halves, base_truth, strict=True)
    ]
    truth: dict[str, list[list[float]]] = {"own": [], "shared": [], "offset": []}
    own_released, values, owners = list[bool](), list[Doubles](), list[Ints]()
    for number, (tenant, own_pairs) in enumerate(zip(tenants, pairs, strict=True)):
        topic = topics[tenant.topic]
        own = None if number % own_every else _own_head(topic, tenant, own_pairs, texts[tenant.topic])
        offset = offset_map(own_pairs, shared, ridge, TEMPERATURE)
        truth["shared"].append(shared_truth[tenant.topic])
        for name, weight in (("own", own), ("offset", offset)):
            lifts = [np.nan, np.nan] if weight is None else shared_truth[tenant.topic]
            if weight is not None and weight is not shared:
                lifts = _lifts(topic, halves[tenant.topic], base_truth[tenant.topic], weight)
            truth[name].append(lifts)
        base, clusters = topic.ndcg(tenant.test, None), np.unique(topic.cluster[tenant.test], return_inverse=True)[1]
        own_released.append(own is not None and _passes(topic.ndcg(tenant.test, own), base, clusters))
        lift = topic.ndcg(tenant.test, offset) - base
        values.append(np.bincount(clusters, lift) / np.bincount(clusters))
        owners.append(np.full(len(values[-1]), number))
    all_values, all_owners = np.concatenate(values), np.concatenate(owners)
    return Simulation(
        np.array([tenant.topic for tenant in tenants]),
        {name: np.array(rows) for name, rows in truth.items()},
        np.array(own_released),
        decide_pooled_release(all_values, all_owners, len(tenants), CHANCE),
        all_values,
        all_owners,
    )


def _pooled_head(
    topics: Sequence[Topic],
    tenants: Sequence[SyntheticTenant],
    pairs: Sequence[TrainingPairs],
    offset_ridges: Sequence[float],
) -> tuple[Floats, float]:
    """Map of the shared head and penalty of the offsets, selected on all validation queries."""
    used = sorted({tenant.topic for tenant in tenants})
    all_texts = _moments([topics[number].texts for number in used])
    queries = _moments([part.queries for part in pairs])
    together = TrainingPairs.concat(pairs)

    def validation(weights: Sequence[Floats]) -> float:
        scores = [
            topics[tenant.topic].ndcg(tenant.validation, weight)
            for tenant, weight in zip(tenants, weights, strict=True)
        ]
        return float(np.concatenate(scores).mean())

    by_topic = {
        number: np.concatenate([tenant.validation for tenant in tenants if tenant.topic == number]) for number in used
    }

    def shared_validation(weight: Floats) -> float:
        return float(np.concatenate([topics[number].ndcg(rows, weight) for number, rows in by_topic.items()]).mean())

    candidates = [
        weight
        for start in whitening_maps(queries, all_texts).values()
        for _, _, weight in shared_maps(together, start, TEMPERATURE)
    ]
    shared = max(candidates, key=shared_validation)
    if len(offset_ridges) == 1:
        return shared, offset_ridges[0]
    scores = {
        ridge: validation([offset_map(part, shared, ridge, TEMPERATURE) for part in pairs]) for ridge in offset_ridges
    }
    return shared, max(scores, key=lambda ridge: scores[ridge])


def _own_head(topic: Topic, tenant: SyntheticTenant, pairs: TrainingPairs, texts: Moments) -> Floats:
    """Map of the tenant's own head, selected on its own validation queries."""
    starts = whitening_maps(_moments([pairs.queries]), texts).values()
    candidates = [offset_map(pairs, start, ridge, TEMPERATURE) for start in starts for ridge in OFFSET_RIDGES]
    return max(candidates, key=lambda weight: float(topic.ndcg(tenant.validation, weight).mean()))


def _moments(parts: Sequence[Floats]) -> Moments:
    moments = Moments(parts[0].shape[1])
    for part in parts:
        moments.add(part)
    return moments


def _halves(topic: Topic) -> list[Ints]:
    """The truth queries in two halves, by cluster."""
    rows = np.flatnonzero(topic.part == 2)
    return [rows[topic.cluster[rows] % 2 == half] for half in range(2)]


def _lifts(topic: Topic, halves: Sequence[Ints], base: Sequence[Doubles], weight: Floats) -> list[float]:
    return [float((topic.ndcg(rows, weight) - values).mean()) for rows, values in zip(halves, base, strict=True)]


def _passes(values: Doubles, base: Doubles, clusters: Ints) -> bool:
    return is_gain(compare_paired(values[:, None], base[:, None], clusters, CHANCE).row(0))


def with_harmed(
    topics: Sequence[Topic], tenants: Sequence[SyntheticTenant], random: np.random.Generator, every: int
) -> tuple[list[Topic], list[SyntheticTenant]]:
    """The base is optimal for one in `every` tenants: they move to a copy of their topic with such labels."""
    copies = [*topics, *(topic.with_optimal_base(random) for topic in topics)]
    moved = [
        SyntheticTenant(
            tenant.topic + len(topics) * (number % every == 0), tenant.train, tenant.validation, tenant.test
        )
        for number, tenant in enumerate(tenants)
    ]
    return copies, moved


def policy_rows(condition: str, simulations: Sequence[Simulation]) -> list[list[object]]:
    """A row for each policy, over all draws."""
    topic = np.concatenate([part.topic for part in simulations])
    oracle = np.concatenate([part.oracle for part in simulations])
    has_own = np.concatenate([~np.isnan(part.lift("own")) for part in simulations])
    rows: list[list[object]] = [[condition, "oracle", None, None, None, float(oracle.mean()), 1.0, None, None]]
    for policy in POLICIES:
        parts = [part.policies()[policy] for part in simulations]
        released = np.concatenate([part[0] for part in parts])
        lift = np.where(released, np.concatenate([part[1] for part in parts]), 0.0)
        false = released & (lift <= 0)
        counted = has_own if "own head" in policy else np.ones(len(topic), bool)

        def share(rows: Ints, lift: Doubles = lift, counted: NDArray[np.bool_] = counted) -> float:
            return float(lift[rows][counted[rows]].sum() / max(oracle[rows][counted[rows]].sum(), 1e-9))

        low, high = _interval(topic, share)
        kept = share(np.arange(len(topic))) if oracle.mean() > 1e-3 else None
        row: list[object] = [condition, policy, float(released[counted].mean()), float(false[counted].mean())]
        row += [_upper(int(false[counted].sum()), int(counted.sum())), float(lift[counted].mean())]
        rows.append([*row, kept, *((low, high) if kept is not None else (None, None))])
    return rows


def _upper(count: int, total: int) -> float:
    """Upper end of the 95 % Clopper-Pearson interval of a share."""
    return 1.0 if count == total else float(beta.ppf(0.975, count + 1, total - count))


def _interval(topic: Ints, statistic: Callable[[Ints], float]) -> tuple[float, float]:
    """95 % bootstrap interval over topics."""
    random, topics = np.random.default_rng(13), np.unique(topic)
    rows = {number: np.flatnonzero(topic == number) for number in topics}
    draws = [
        statistic(np.concatenate([rows[number] for number in random.choice(topics, len(topics))])) for _ in range(1000)
    ]
    return float(np.percentile(draws, 2.5)), float(np.percentile(draws, 97.5))


def flip_rows(simulations: Sequence[Simulation], flips: int) -> list[list[object]]:
    """Conditions without a lift, from real test differences: share of tenants with a release."""
    random, rows = np.random.default_rng(13), list[list[object]]()
    for condition in ("signs flipped by cluster", "signs flipped by tenant"):
        shares = []
        for number in range(flips):
            part = simulations[number % len(simulations)]
            n = len(part.topic)
            signs = random.choice([-1.0, 1.0], len(part.values) if condition.endswith("cluster") else n)
            values = part.values * (signs if condition.endswith("cluster") else signs[part.owners])
            shares.append(decide_pooled_release(values, part.owners, n, CHANCE).released.mean())
        spread = np.std(shares) / np.sqrt(flips) * 1.96
        rows.append([condition, flips, float(np.mean(np.array(shares) > 0)), float(np.mean(shares)), float(spread)])
    return rows


def simulation_tables(
    paths: Sequence[Path], count: int, seeds: int, flips: int, own_every: int, *, offsets: bool
) -> list[ResultTable]:
    """Simulate, and make the tables."""
    runs: dict[str, list[Simulation]] = {"people's labels": [], "one in five harmed": [], "no lift": []}
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        topics = [topic for path in paths for topic in read_topics(path, seed)]
        tenants = draw_tenants(topics, count, random)
        for condition, every in zip(runs, (0, HARMED_EVERY, 1), strict=True):
            data = with_harmed(topics, tenants, random, every) if every else (topics, tenants)
            runs[condition].append(simulate(*data, own_every, offsets=offsets))
            last = runs[condition][-1].evidence
            print(condition, seed, f"mean {last.mean:+.4f} spread {last.spread:.3f} passed {last.passed}", flush=True)
    return result_tables(runs, flips, own_every, offsets=offsets)


def result_tables(
    runs: Mapping[str, Sequence[Simulation]], flips: int, own_every: int, *, offsets: bool
) -> list[ResultTable]:
    """The tables of simulations by condition."""
    rows = [row for condition, simulations in runs.items() for row in policy_rows(condition, simulations)]
    columns = {"condition": "", "policy": "", "released": ".1%", "false releases": ".1%", "at most": ".1%"}
    columns |= {"mean lift": "+.4f", "share of the oracle's lift": ".2f", "95 % from": ".2f", "to": ".2f"}
    first = next(iter(runs.values()))
    clusters = first[0].evidence.clusters
    sizes = f"{np.mean(clusters < 10):.0%} have fewer than 10 test clusters, the median is {np.median(clusters):.0f}"
    note = f"{len(clusters):,} tenants, {len(first)} draws; {sizes}. Shares are of all tenants."
    note += f" Own heads are trained for one in {own_every} tenants." if own_every > 1 else ""
    note += "" if offsets else " Heads have no offset."
    flipped = {"condition": "", "repetitions": ",d", "any release": ".1%", "false releases": ".2%", "±": ".2%"}
    return [
        ResultTable("Releases for small tenants", columns, rows, note),
        ResultTable("The pooled test without a lift", flipped, flip_rows(first, flips)),
    ]


def run_table(count: int) -> ResultTable:
    """Time and memory of one run over all tenants, each method in its own process."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="darklode-tenants-") as scratch:
        make_tenant_run(Path(scratch), count)
        for method in ("closed_form", "linear"):
            rows.append(in_new_process(adapt_all, Path(scratch), count, method))
            print(rows[-1], flush=True)
    columns = {"tenants": ",d", "method": "", "processor s": ",.0f", "per tenant": ".1f", "seconds": ",.0f"}
    columns |= {"of these pooled": ",.0f", "MB before": ",.0f", "peak MB": ",.0f"}
    note = f"{TEXTS} texts and {sum(SPLITS.values())} queries per tenant, 384 dimensions; 200 steps, one learning rate."
    return ResultTable("One run over many tenants", columns, rows, note)


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__, list(NAMES))
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--part", choices=["gate", "simulation", "run"])
    parser.add_argument("--own-every", type=int, default=1, help="train own heads for one in so many tenants")
    parser.add_argument("--no-offsets", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    names = present(list(arguments.only), arguments.collections)
    count, seeds, flips = (100, 1, 20) if arguments.quick else (arguments.tenants, arguments.seeds, FLIPS)
    if arguments.part in {None, "run"}:
        publish("tenants", [run_table(8 if arguments.quick else arguments.tenants)], quick=arguments.quick)
    if arguments.part == "run":
        return
    with tempfile.TemporaryDirectory(prefix="darklode-tenants-") as scratch:
        paths = [Path(scratch, f"{name}.npz") for name in names]
        for name, path in zip(names, paths, strict=True):
            save_vectors(name, arguments.collections / name, arguments.cache, path)
        topics = [topic for path in paths for topic in read_topics(path, 0)]
        publish("tenants", [gate_table(topics, arguments.tenants)], quick=arguments.quick)
        if arguments.part == "gate":
            return
        publish(
            "tenants",
            simulation_tables(paths, count, seeds, flips, arguments.own_every, offsets=not arguments.no_offsets),
            quick=arguments.quick,
        )


if __name__ == "__main__":
    main()
