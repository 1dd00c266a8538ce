"""Weights of training labels: `adapt` with a judge's labels, with and without their probabilities as weights.

The training queries of a collection are built as a raw log; `adapt` learns from the judge's triplets and is tested on
people's labels of queries that it never saw. Lift: nDCG@10 of the adapted all-MiniLM-L6-v2 against the encoder as it
is. Difference: against the same labels without weights. Both are means over seeds, with paired bootstrap intervals over
queries. Controls are the same weights dealt to other pairs, and BM25's first result of each query as its positive.
Takes 40 minutes; `--quick` measures stackfaq by a closed form with the embedded judge's labels (2 min).

    python -m benchmarks.label_weights [--quick] [--only COLLECTION ...] [--judges PRESET ...] [--methods METHOD ...]
                                       [--seeds N] [--builds FOLDER] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.adapt import CLOSED_FORM, LEAST_GRADE, TrainingLabels, Trial, adapt, make_run, people_labels
from benchmarks.collections_io import options, present, read_jsonl
from benchmarks.label_sets import PRESETS, build
from benchmarks.report import ResultTable, publish
from darklode.flows.runs import read_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired

COLLECTIONS = ("insuranceqa", "stackfaq")
METHODS = ("linear", "closed_form")
UNWEIGHTED, WEIGHTED = "unweighted", "weighted"
CONTROLS = DEALT, BM25 = "weights of other pairs", "BM25's first result"  # with one seed

# A document is as relevant as its most relevant chunk; it is uncertain if no chunk is relevant and one is uncertain.
LABELS_SQL = """
    SELECT query_id, doc_id, CASE WHEN max(relevance) > 0 THEN 1 WHEN bool_or(relevance IS NULL) THEN NULL ELSE 0 END,
           max(weight)
    FROM training_labels JOIN (SELECT chunk_id, doc_id FROM chunks) USING (chunk_id)
    GROUP BY query_id, doc_id ORDER BY query_id, doc_id
"""
POSITIVES_SQL = """
    SELECT DISTINCT query_id, doc_id FROM triplets JOIN (SELECT chunk_id AS positive_id, doc_id FROM chunks)
    USING (positive_id) ORDER BY query_id, doc_id
"""
FIRST_RESULTS_SQL = """
    SELECT query_id, doc_id FROM rankings JOIN (SELECT chunk_id, doc_id FROM chunks) USING (chunk_id)
    WHERE retriever = 'bm25' AND rank = 1 ORDER BY query_id
"""


def build_labels(collection: Path, preset: str, folder: Path) -> Run:
    """Build the collection's training queries as a raw log, unless the folder has that run."""
    out = folder / f"{collection.name}-{preset}"
    if not (out / "inputs.json").exists():
        log = folder / f"{collection.name}.csv"
        training = people_labels(collection, LEAST_GRADE[collection.name]).splits
        rows = [(row["_id"], row["text"]) for row in read_jsonl(collection / "queries.jsonl") if row["_id"] in training]
        with log.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("query_id", "query"), *rows])
        build(collection / "corpus.jsonl", log, out, preset, "split.test_share=0.05")
    return read_run(Run(str(out))).run


def label_variants(run: Run, seed: int) -> dict[str, TrainingLabels]:
    """The judge's labels of documents with and without weights, and the controls."""
    with all_tables(run).connect() as connection:
        splits = dict(connection.sql("SELECT query_id, split FROM queries WHERE split <> 'test'").fetchall())
        labels = connection.sql(LABELS_SQL).fetchall()
        positives = connection.sql(POSITIVES_SQL).fetchall()
        first_results = [row for row in connection.sql(FIRST_RESULTS_SQL).fetchall() if row[0] in splits]
    weighted = TrainingLabels(splits, labels, positives)
    learned = set(positives)
    rows = [number for number, label in enumerate(labels) if label[:2] in learned]
    dealt = list(labels)
    for row, other in zip(rows, np.random.default_rng(seed).permutation(rows).tolist(), strict=True):
        dealt[row] = (*labels[row][:3], labels[other][3])
    return {
        UNWEIGHTED: replace(weighted, labels=[(*label[:3], None) for label in labels]),
        WEIGHTED: weighted,
        DEALT: replace(weighted, labels=dealt),
        BM25: TrainingLabels(splits, [(*pair, 1, None) for pair in first_results], first_results),
    }


def measure(
    collection: Path, preset: str, methods: Sequence[str], seeds: int, folders: tuple[str, Path]
) -> list[list[object]]:
    """A row for each method and variant of the labels.

    Args:
        collection: folder of the collection.
        preset: preset of the build, which has the judge.
        methods: methods of `adapt`.
        seeds: seeds of each; closed forms, which draw nothing, and controls get one.
        folders: cache of vectors, and folder of the builds.
    """
    cache, builds = folders
    rows = []
    for method in methods:
        trials: dict[str, list[Trial]] = {}
        for seed in range(1 if method in CLOSED_FORM else seeds):
            for name, labels in label_variants(build_labels(collection, preset, builds), seed).items():
                if seed and name in CONTROLS:
                    continue
                with tempfile.TemporaryDirectory() as scratch:
                    run = make_run(collection, Path(scratch) / "run", labels)
                    trials.setdefault(name, []).append(adapt(run, Run(f"{scratch}/adapted"), cache, method, seed))
        rows += [
            [collection.name, PRESETS[preset], method, name, *_figures(of_variant, trials[UNWEIGHTED])]
            for name, of_variant in trials.items()
        ]
        for row in rows[-len(trials) :]:
            print(row, flush=True)
    return rows


def _figures(trials: Sequence[Trial], unweighted: Sequence[Trial]) -> list[object]:
    """Test queries, lift, and difference to the labels without weights with its interval."""
    same_seeds = unweighted[: len(trials)]
    adapted, reference = (np.mean([trial.adapted for trial in side], axis=0)[:, None] for side in (trials, same_seeds))
    base = trials[0].base[:, None]
    difference = compare_paired(adapted, reference, np.arange(len(base)), ResamplingSettings())
    interval = [float(difference.mean[0]), float(difference.low[0]), float(difference.high[0])]
    return [len(base), float((adapted - base).mean()), *interval]


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__, COLLECTIONS)
    parser.add_argument("--judges", nargs="+", default=list(PRESETS), help="presets of the builds")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--builds", type=Path, help="builds are kept here; default: none is kept")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.only, arguments.judges, arguments.methods = ["stackfaq"], ["embedded"], ["closed_form"]
    with tempfile.TemporaryDirectory() as scratch:
        folders = arguments.cache, arguments.builds or Path(scratch)
        rows = [
            row
            for name in present(arguments.only, arguments.collections)
            for preset in arguments.judges
            for row in measure(arguments.collections / name, preset, arguments.methods, arguments.seeds, folders)
        ]
    columns = {"collection": "", "judge": "", "method": "", "labels": "", "test queries": ",d", "lift": "+.4f"}
    columns |= {"difference": "+.4f", "95 % from": "+.4f", "to": "+.4f"}
    table = ResultTable("Lift with a judge's labels", columns, rows, packages=["sentence-transformers", "torch"])
    publish("label_weights", [table], quick=arguments.quick)


if __name__ == "__main__":
    main()
