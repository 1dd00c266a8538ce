"""Precision and recall of positives by click model, on simulated repeated searches."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.collections_io import Collection
from benchmarks.mined_log import SimulatedRun
from benchmarks.report import ResultTable
from benchmarks.session_log import CLEAN_NOISE, EXAMINATION_POWER, FIRST, TREC_NOISE, ClickNoise, SessionLog, bm25_lists
from darklode.pipeline.mine.multi_hop import LendingRules
from darklode.schemas.mined_tables import IMPRESSIONS
from darklode.schemas.mining import ClickSettings
from darklode.schemas.tables import TABLES

GOAL = 0.85
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9)
SEARCHES = (5, 20)
"""Median searches of a query; the number of searches is log-normally distributed."""
JITTER = 1.5
"""Standard deviation, in ranks, by which rankings differ from search to search."""
ATTRACTION_SPREAD = 8
"""Concentration (alpha + beta) of the beta distribution of attraction among documents of the same relevance."""

Quality = tuple[float, float]
"""Precision, and recall of the relevant documents shown."""
Qualities = dict[tuple[str, float], Quality]
"""Quality by model and confidence."""


def simulate_repeats(collection: Collection, noise: ClickNoise, searches: int, seed: int) -> SessionLog:
    """Simulate repeated searches for the collection's own queries, each in a session of its own."""
    generator = np.random.default_rng(seed)
    columns: dict[str, list[object]] = {name: [] for name in ("search", "query", "doc_id", "position", "clicked")}
    relevant: dict[str, set[int]] = {}
    for number, shown in enumerate(bm25_lists(collection, collection.queries)):
        relevant[f"q{number}"] = set(collection.relevant[number].tolist())
        n_searches = int(np.exp(generator.normal(np.log(searches), 1))) + 1
        means = np.array([noise.relevant if row in relevant[f"q{number}"] else noise.other for row in shown])
        attraction = generator.beta(means * ATTRACTION_SPREAD, (1 - means) * ATTRACTION_SPREAD)
        order = np.argsort(np.arange(len(shown)) + generator.normal(0, JITTER, (n_searches, len(shown))), axis=1)
        positions = np.argsort(order, axis=1) + 1
        chance = positions**-EXAMINATION_POWER * attraction
        columns["search"] += [f"{number}-{search}" for search in range(n_searches) for _ in shown]
        columns["query"] += [f"q{number}"] * positions.size
        columns["doc_id"] += [str(row) for _ in range(n_searches) for row in shown]
        columns["position"] += positions.ravel().tolist()
        columns["clicked"] += (generator.random(chance.shape) < chance).ravel().tolist()
    return SessionLog(_impressions(columns), TABLES["documents"].empty(), relevant, {})


def _impressions(columns: dict[str, list[object]]) -> pa.Table:
    n_rows = len(columns["search"])
    start = datetime.combine(FIRST, datetime.min.time(), UTC)
    rows = {
        "tenant": ["default"] * n_rows,
        "event_id": [str(number) for number in range(n_rows)],
        "search_id": columns["search"],
        "session_id": columns["search"],
        "timestamp": [start + timedelta(seconds=number // 20 % 86_000) for number in range(n_rows)],
        "query_id": columns["query"],
        "query": columns["query"],
        "doc_id": columns["doc_id"],
        "position": columns["position"],
        "clicked": columns["clicked"],
    }
    return (
        pa.table(rows | {name: [None] * n_rows for name in IMPRESSIONS.schema.names if name not in rows})
        .select(IMPRESSIONS.schema.names)
        .cast(IMPRESSIONS.schema)
    )


def positives_quality(log: SessionLog) -> Qualities:
    """Precision and recall of the one-hop positives by click model and confidence."""
    shown = set(zip(log.impressions["query"].to_pylist(), log.impressions["doc_id"].to_pylist(), strict=True))
    n_relevant = sum(int(doc) in log.relevant[query] for query, doc in shown)
    qualities: Qualities = {}
    for model in ("paper", "coec", "pbm"):
        with tempfile.TemporaryDirectory() as folder:
            run = SimulatedRun(folder, log, ClickSettings(model=model))
            for confidence in CONFIDENCES if model != "paper" else CONFIDENCES[:1]:
                click = ClickSettings(model=model, confidence=confidence)
                no_associations = TABLES["associations"].empty()
                pairs = run.pairs(no_associations, LendingRules(0, "strongest", guarded=False), click)
                own = pairs.filter(pc.equal(pairs["source"], "click_one_hop")).select(["query_id", "positive_id"])
                found = [int(row["positive_id"]) in log.relevant[run.texts[row["query_id"]]] for row in own.to_pylist()]
                qualities[model, confidence] = (sum(found) / max(1, len(found)), sum(found) / max(1, n_relevant))
    return qualities


def choose_confidence(results: Mapping[str, Sequence[Qualities]], model: str, without: str) -> float:
    """The lowest confidence whose mean precision on the other collections reaches the goal, else the highest."""
    logs = [qualities for name, of_name in results.items() if name != without for qualities in of_name]
    reached = [
        confidence
        for confidence in CONFIDENCES
        if np.mean([qualities[model, confidence][0] for qualities in logs]) >= GOAL
    ]
    return min(reached, default=CONFIDENCES[-1])


def confidence_table(results: Mapping[str, Sequence[Qualities]]) -> ResultTable:
    """Positives at the confidence that was chosen on the other collections.

    Args:
        results: qualities of each collection's logs with clean clicks.
    """
    columns = {"collection": ""} | {
        f"{model}: {name}": ".2f" for model in ("coec", "pbm") for name in ("confidence", "precision", "recall")
    }
    rows = []
    for name, logs in results.items():
        row: list[object] = [name]
        for model in ("coec", "pbm"):
            confidence = choose_confidence(results, model, name)
            of_confidence = [qualities[model, confidence] for qualities in logs]
            row += [confidence, *np.mean(of_confidence, axis=0).tolist()]
        rows.append(row)
    note = (
        f"click.confidence: the lowest one with a mean precision of {GOAL} on the other collections, clean clicks; "
        "precision and recall are means over the numbers of searches."
    )
    return ResultTable("Confidence chosen on the other collections", columns, rows, note)


def measure_click_models(collections: Mapping[str, Collection], *, quick: bool) -> list[ResultTable]:
    """Tables of the click models' positives."""
    columns = {"collection": "", "clicks": "", "searches": ",d", "paper": ""}
    columns |= {f"{model} {confidence}": "" for model in ("coec", "pbm") for confidence in CONFIDENCES}
    rows = []
    clean: dict[str, list[Qualities]] = {name: [] for name in collections}
    for name, collection in collections.items():
        for clicks, noise in (("clean", CLEAN_NOISE), ("as TREC", TREC_NOISE)):
            for searches in SEARCHES[:1] if quick else SEARCHES:
                qualities = positives_quality(simulate_repeats(collection, noise, searches, 0))
                figures = [f"{precision:.2f} / {recall:.2f}" for precision, recall in qualities.values()]
                rows.append([name, clicks, searches, *figures])
                if noise is CLEAN_NOISE:
                    clean[name].append(qualities)
    note = (
        f"Precision / recall of the relevant documents shown, by model and click.confidence; the goal is {GOAL} / .40. "
        "`clean`: a user clicks an examined document with probability .5 if relevant, else .05; `as TREC`: .5 and .2. "
        "Attraction varies between documents of the same relevance."
    )
    by_model = ResultTable("Positives by click model", columns, rows, note)
    return [by_model, *([confidence_table(clean)] if len(clean) > 1 else [])]
