"""The pooled test on 1,000 tenants whose shared head is the whitening alone: takes a minute; used by `tenants`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.report import ResultTable
from benchmarks.tenant_simulation import Topic, draw_tenants
from darklode.pipeline.base.types import Doubles, Ints
from darklode.pipeline.evaluate.paired import ResamplingSettings
from darklode.pipeline.train.fit.moments import Moments
from darklode.pipeline.train.fit.pooled_head import whitening_maps
from darklode.pipeline.train.release.pooled_evidence import decide_pooled_release

CHANCE = ResamplingSettings(400, 1000, 13)
POWER = 0.5
CONDITIONS = {"people's labels": 0, "one in five harmed": 5, "no lift": 1}
"""The base is optimal for one tenant in so many; 0: for none."""
DRAWS, FLIPS = 3, 60


def gate_table(topics: Sequence[Topic], count: int) -> ResultTable:
    """Releases of one shared head, by condition."""
    queries, texts = Moments(topics[0].queries.shape[1]), Moments(topics[0].queries.shape[1])
    for topic in topics:
        queries.add(topic.queries[topic.part == 0])
        texts.add(topic.texts)
    weight, random = whitening_maps(queries, texts)[POWER], np.random.default_rng(0)
    both = [*topics, *(topic.with_optimal_base(random) for topic in topics)]
    rows = [np.arange(len(topic.queries)) for topic in both]
    lifts = [topic.ndcg(row, weight) - topic.ndcg(row, None) for topic, row in zip(both, rows, strict=True)]
    truth = np.array([lift[topic.part == 2].mean() for topic, lift in zip(both, lifts, strict=True)])
    table: list[list[object]] = []
    for condition, every in CONDITIONS.items():
        draws = [_draw(topics, lifts, every, count, seed) for seed in range(DRAWS)]
        released = np.array([decide_pooled_release(*draw[:2], count, CHANCE).released for draw in draws])
        true = truth[np.array([draw[2] for draw in draws])]
        oracle = np.maximum(true, 0).sum()
        kept = float((true * released).sum() / oracle) if oracle else None
        means = (released.mean(), (released & (true <= 0)).mean(), (true * released).mean(), true.mean())
        table.append([condition, DRAWS, *map(float, means), kept])
    values, owners, _ = _draw(topics, lifts, 0, count, 0)
    for unit in ("cluster", "tenant"):
        shares = []
        for _ in range(FLIPS):
            signs = random.choice([-1.0, 1.0], len(values) if unit == "cluster" else count)
            flipped = values * (signs if unit == "cluster" else signs[owners])
            shares.append(decide_pooled_release(flipped, owners, count, CHANCE).released.mean())
        table.append(
            [f"signs flipped by {unit}", FLIPS, float(np.mean(shares)), float(np.mean(shares)), None, 0.0, None]
        )
    columns = {"condition": "", "draws": ",d", "released": ".1%", "false releases": ".1%", "mean lift": "+.4f"}
    columns |= {"always released": "+.4f", "share of the oracle's lift": ".2f"}
    note = f"{count:,} tenants, on average 2 test clusters; whitening with power {POWER}. The oracle has base or head."
    return ResultTable("The pooled test of one shared head", columns, table, note)


def _draw(
    topics: Sequence[Topic], lifts: Sequence[Doubles], every: int, count: int, seed: int
) -> tuple[Doubles, Ints, Ints]:
    """Cluster differences, their tenants, and the row of each tenant's true lift."""
    values, owners, population = list[Doubles](), list[Ints](), list[int]()
    for number, tenant in enumerate(draw_tenants(topics, count, np.random.default_rng(seed))):
        population.append(tenant.topic + len(topics) * bool(every and number % every == 0))
        if len(tenant.test):
            cluster = np.unique(topics[tenant.topic].cluster[tenant.test], return_inverse=True)[1]
            values.append(np.bincount(cluster, lifts[population[-1]][tenant.test]) / np.bincount(cluster))
            owners.append(np.full(len(values[-1]), number))
    return np.concatenate(values), np.concatenate(owners), np.array(population)
