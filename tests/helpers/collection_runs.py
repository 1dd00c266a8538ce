"""Runs over a labelled collection, evaluated by Darklode and by ir_measures."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ir_measures
import pyarrow.compute as pc

from benchmarks.collections_io import Qrels, read_jsonl, read_qrels
from darklode.pipeline.base.artifacts import Run, Stage, call
from darklode.pipeline.base.artifacts.step import Step
from darklode.pipeline.evaluate.measures import depth_of
from darklode.pipeline.evaluate.rankings import CHUNK_RANKINGS_STAGE, rank_all
from darklode.pipeline.evaluate.stage import EVALUATION_STAGE, evaluate
from darklode.pipeline.evaluate.test_queries import BUILD_STAGE, of_a_build
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import TABLES

TENANT = "default"


def collection_run(folder: Path, root: Path) -> Run:
    """A run whose chunks are the collection's documents, and whose test queries are its judged ones."""
    run, qrels = Run(str(root)), read_qrels(folder / "qrels" / "test.tsv")
    query_ids = sorted({query for query, _, grade in qrels if grade > 0})
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    documents = [(row["_id"], row.get("title", ""), row["text"]) for row in read_jsonl(folder / "corpus.jsonl")]
    hashes = [hashlib.sha256("\0".join([title, "", text]).encode()).hexdigest()[:32] for _, title, text in documents]
    n, ids = len(documents), [name for name, _, _ in documents]
    chunk = {"chunk_id": ids, "doc_id": ids, "title": [title for _, title, _ in documents], "content_hash": hashes}
    places = {"position": [0] * n, "start": [0] * n, "end": [len(text) for *_, text in documents]}
    query: dict[str, list[Any]] = {
        "query_id": query_ids,
        "text": [texts[query_id] for query_id in query_ids],
        "split": ["test"] * len(query_ids),
    }
    about: dict[str, list[Any]] = {"n_words": [1], "language": ["en"], "language_score": [1.0], "n_represented": [1]}
    query |= {name: values * len(query_ids) for name, values in about.items()} | {
        "cluster_id": list(range(len(query_ids)))
    }
    columns = zip(*[row for row in qrels if row[0] in set(query_ids)], strict=True)
    _write(run, "chunks", chunk | places | {"text": [text for *_, text in documents]})
    _write(run, "queries", query)
    _write(
        run, "qrels", dict(zip(("query_id", "chunk_id", "relevance"), map(list, columns), strict=True)), source="judge"
    )
    _write(
        run, "held_out", {"query_id": query_ids, "split": query["split"], "shares_positive": [False] * len(query_ids)}
    )
    return run


def _write(run: Run, table: str, columns: Mapping[str, list[Any]], **same: str) -> None:
    n = len(next(iter(columns.values())))
    rows = {"tenant": [TENANT] * n, **columns, **{name: [value] * n for name, value in same.items()}}
    stage = Stage(f"given_{table}", 1, (), (table,))
    run.execute(run.plan(stage, {}), lambda _, output: output.write(table, TABLES[table].rows(rows)))


def evaluate_run(run: Run, systems: Mapping[str, Any], settings: EvaluateSettings) -> None:
    """Measure systems on the run's test queries."""
    identities = {name: system.identity for name, system in systems.items()}
    depth = depth_of(settings.measures)
    ranking = call(rank_all, depth=depth, systems=systems, identities=identities, run_files=())
    steps = [
        Step(BUILD_STAGE, call(of_a_build)),
        Step(CHUNK_RANKINGS_STAGE, ranking, untracked=("systems", "identities")),
        Step(
            EVALUATION_STAGE,
            call(evaluate, settings.only("measures", "n_resamples", "permutations"), systems=list(systems), seed=13),
        ),
    ]
    for step in steps:
        run.execute(step.plan(run), step.execute)


def ir_measures_values(run: Run, qrels: Qrels, system: str, measures: Sequence[str]) -> dict[str, float]:
    """Values by ir_measures from the collection's own judgments and a system's ranking."""
    rankings = run.tables("test_rankings").read("test_rankings")
    rows = rankings.filter(pc.equal(rankings["system"], system)).to_pylist()
    scored = [ir_measures.ScoredDoc(row["query_id"], row["text_id"], -row["rank"]) for row in rows]
    answerable = {query for query, _, grade in qrels if grade > 0}
    judgments = [ir_measures.Qrel(*row) for row in qrels if row[0] in answerable]
    parsed = {name: ir_measures.parse_measure(name) for name in measures}
    values = ir_measures.calc_aggregate(list(parsed.values()), judgments, scored)
    return {name: float(values[measure]) for name, measure in parsed.items()}
