"""Weights of training labels.

Heads on all-MiniLM-L6-v2 are trained on a judge's labels, with and without their probabilities as weights. The training
queries of a collection are built as a raw log. A head learns from the judge's triplets, the judge's labels of
validation queries select how much of the change is applied, and people's labels of queries that it never saw test it.
Lift: nDCG@10 against the encoder as it is. Difference: against the same labels without weights. Both are means over
seeds (closed forms draw nothing and get one), with paired bootstrap intervals over queries. Controls, with one seed:
the same weights dealt to other pairs, shuffled labels, and BM25's first result of each query as its positive. `linear`
takes 400 steps at one learning rate. Takes 20 minutes; `--quick` measures stackfaq by a closed form with the embedded
judge's labels (2 min).

    python -m benchmarks.label_weights [--quick] [--only COLLECTION ...] [--judges PRESET ...] [--methods METHOD ...]
                                       [--seeds N] [--builds FOLDER] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from benchmarks.adapt import CLOSED_FORM, LEAST_GRADE, MINILM, TrainingLabels, make_run, people_labels
from benchmarks.collections_io import options, present, read_jsonl
from benchmarks.label_sets import PRESETS, build
from benchmarks.report import ResultTable, publish
from darklode.flows.jobs.adapt_encoder import pairs_step
from darklode.flows.runs import read_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.types import Doubles, Floats
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import MEASURE, QuerySet, Task
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.fit.method_registry import create_method
from darklode.pipeline.train.fit.model_selection import ValidationScore, best_score, preference, score_shares
from darklode.pipeline.train.release.baselines import shuffle_labels
from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

COLLECTIONS = ("insuranceqa", "stackfaq")
METHODS = ("closed_form", "linear")
UNWEIGHTED, WEIGHTED = "unweighted", "weighted"
STEPS, LEARNING_RATE = 400, 3e-4

UNSEEN_SQL = "SELECT query_id FROM adaptation_queries WHERE split = 'test' AND NOT shares_positive"

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


def judge_labels(run: Run) -> TrainingLabels:
    """The judge's labels of documents, with weights."""
    with all_tables(run).connect() as connection:
        splits = dict(connection.sql("SELECT query_id, split FROM queries WHERE split <> 'test'").fetchall())
        labels, positives = (connection.sql(query).fetchall() for query in (LABELS_SQL, POSITIVES_SQL))
    return TrainingLabels(splits, labels, positives)


class Trainer:
    """Trains heads on a collection's run.

    Args:
        run: the run, with the judge's labels of training queries and people's of test queries.
        out: receives the training pairs.
        cache: cache of vectors.
    """

    def __init__(self, run: Run, out: Run, cache: str) -> None:
        source = TrainingSource(run, 0, mined=False, text_characters=0)
        self.base = BaseEncoder(MINILM, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (source,))
        step = pairs_step(self.base, Settings(adapt=AdaptSettings(targets="weighted")))
        out.execute(step.plan(out), step.execute)
        frozen = self.base.open(out.tables())
        self.task = Task.from_tables(out.tables(), frozen, same_document=False)
        test = QuerySet.from_tables(out.tables(), frozen, "test")
        rows = out.tables("adaptation_queries").sql(UNSEEN_SQL)["query_id"].combine_chunks()
        self.test = test.take(np.sort(pc.index_in(rows, test.ids).to_numpy()))

    def variants(self, seed: int) -> dict[str, Task]:
        """The task with and without weights, and the controls."""
        task = self.task
        assert task.pair_weight is not None
        dealt = np.random.default_rng(seed).permutation(task.pair_weight)
        return {
            UNWEIGHTED: replace(task, pair_weight=None),
            WEIGHTED: task,
            "weights of other pairs": replace(task, pair_weight=dealt),
            "shuffled labels": shuffle_labels(task, seed),
            "BM25's first result": Bm25Rankings(self.base, task.frozen).training_pairs(task),
        }

    def score(self, vectors: Floats) -> Doubles:
        """nDCG@10 of each test query, shape (n_queries,)."""
        frozen = self.task.frozen
        lists = self.test.ranking(frozen, vectors, 10 + self.test.labels.num_rows // len(self.test))
        return compute_measures([lists], self.test.labels, self.test.ids.to_pylist(), [MEASURE])[:, 0]

    def train(self, task: Task, settings: AdaptSettings, seed: int) -> Doubles:
        """Scores of the setting and share that are best on validation; those of the base encoder if none helps."""
        method, best = (
            create_method(settings, self.base),
            (ValidationScore(0.0, -1.0, 0), self.score(self.test.vectors)),
        )
        for setting in method.hyperparameters:
            weights = method.fit(replace(task, keep_last=True), setting, seed, lambda *_: None).best_weights
            score = best_score(score_shares(task, method, weights))
            if preference(score) > preference(best[0]):
                vectors = method.vectors(weights, score.share, self.test) if score.share else self.test.vectors
                best = score, self.score(vectors)
        return best[1]


def measure(collection: Path, preset: str, trainer: Trainer, settings: AdaptSettings, seeds: int) -> list[list[object]]:
    """A row for each variant of the labels."""
    scores: dict[str, list[Doubles]] = {}
    for seed in range(1 if settings.method in CLOSED_FORM else seeds):
        for name, task in trainer.variants(seed).items():
            if not seed or name in (UNWEIGHTED, WEIGHTED):
                scores.setdefault(name, []).append(trainer.train(task, settings, seed))
    base = trainer.score(trainer.test.vectors)
    about = [collection.name, PRESETS[preset], settings.method]
    rows = [[*about, name, *_figures(of_variant, scores[UNWEIGHTED], base)] for name, of_variant in scores.items()]
    print(*rows, sep="\n", flush=True)
    return rows


def _figures(scores: Sequence[Doubles], unweighted: Sequence[Doubles], base: Doubles) -> list[object]:
    """Test queries, base, lift, and difference to the labels without weights with its interval."""
    same_seeds = unweighted[: len(scores)]
    mean, reference = (np.mean(of_seeds, axis=0)[:, None] for of_seeds in (scores, same_seeds))
    difference = compare_paired(mean, reference, np.arange(len(base)), ResamplingSettings())
    interval = [float(difference.mean[0]), float(difference.low[0]), float(difference.high[0])]
    return [len(base), float(base.mean()), float(mean.mean() - base.mean()), *interval]


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
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, preset in product(present(arguments.only, arguments.collections), arguments.judges):
            collection, folder = arguments.collections / name, Path(scratch) / f"{name}-{preset}-adapted"
            labels = judge_labels(build_labels(collection, preset, arguments.builds or Path(scratch)))
            run = make_run(collection, folder / "run", labels)
            trainer = Trainer(run, Run(str(folder / "out")), arguments.cache)
            for method in arguments.methods:
                settings = AdaptSettings(method=method)
                if method not in CLOSED_FORM:
                    settings = AdaptSettings(method=method, max_steps=STEPS, learning_rates=(LEARNING_RATE,))
                rows += measure(collection, preset, trainer, settings, arguments.seeds)
    columns = {"collection": "", "judge": "", "method": "", "labels": "", "test queries": ",d", "base nDCG@10": ".4f"}
    columns |= {"lift": "+.4f", "difference": "+.4f", "95 % from": "+.4f", "to": "+.4f"}
    table = ResultTable("Lift with a judge's labels", columns, rows, packages=["sentence-transformers", "torch"])
    publish("label_weights", [table], quick=arguments.quick)


if __name__ == "__main__":
    main()
