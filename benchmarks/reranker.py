"""Training a reranker from MiniLM.

`train-reranker` with people's training labels: a cross-encoder initialized from all-MiniLM-L6-v2, a bi-encoder, because
no cross-encoder's weights are at hand. It orders the first candidates of BM25 and the encoder, fused by rank or by
score, whichever is better on validation. nDCG@10 on test queries whose positives training never saw; "difference" is
the reranked list minus the system, with the interval and the p-value of the release test. Then the same model, with
the same weight, on a collection that it was not trained on. On two shared cores training is short and the test small;
both sizes are in the table.

    python -m benchmarks.reranker [--quick] [--only COLLECTION ...] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.adapt import LEAST_GRADE, MINILM, make_run, people_labels
from benchmarks.collections_io import options, present
from benchmarks.report import ResultTable, publish
from benchmarks.run_tables import write_columns
from darklode.flows.jobs.train_reranker import initial_reranker, steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.reranker.candidates import CANDIDATES_STAGE, load_lists
from darklode.pipeline.reranker.evaluation import CANDIDATES, RERANKED, RERANKER_TEST_STAGE
from darklode.pipeline.reranker.stage import RERANKER_STAGE, best_trial, load_best_reranker
from darklode.pipeline.reranker.verdict import SCORES_SQL, read_reranker_verdict
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.pairs import PAIRS_STAGE
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.reranker import RerankerSettings
from darklode.schemas.run_inputs import RerankerInputs
from darklode.schemas.settings import CacheSettings, Settings

TRAINED, UNSEEN = ("homedepot", "insuranceqa"), {"homedepot": ("cranfield",), "insuranceqa": ("stackfaq",)}
SEED = 13


@dataclass(frozen=True)
class RerankerSize:
    """Size of a training and of its test.

    Attributes:
        steps: training steps of 16 pairs.
        eval_queries: validation queries.
        tests: test queries.
        candidates: candidates per query.
        tokens: maximum tokens of a pair.
    """

    steps: int
    eval_queries: int
    tests: int
    candidates: int
    tokens: int

    @property
    def model(self) -> SentenceTransformersSettings:
        """The initial model."""
        return MINILM.model_copy(update={"max_seq_length": self.tokens})

    @property
    def settings(self) -> Settings:
        """Settings of the training."""
        training = RerankerSettings(max_steps=self.steps, batch_size=16, eval_queries=self.eval_queries)
        return Settings(seed=SEED, reranker=training)

    @property
    def inputs(self) -> RerankerInputs:
        """The job's inputs."""
        return RerankerInputs(runs=[], base="", encoder="", candidates=self.candidates)


SIZES = {"homedepot": RerankerSize(160, 60, 200, 20, 48), "insuranceqa": RerankerSize(100, 50, 100, 10, 64)}
QUICK = RerankerSize(20, 60, 30, 20, 48)

N_UNSEEN = 50
"""Test queries of a collection that training did not see."""
UNSEEN_QUERIES_SQL = """
    SELECT query_id, text FROM adaptation_queries WHERE split = 'test' ORDER BY md5(query_id) LIMIT $1
"""

Rows = list[list[object]]


def limited(run: Run, n_tests: int) -> Run:
    """The run with some of its test queries, drawn by a hash of their ids."""
    queries = run.tables("queries").read("queries")
    keys = [hashlib.sha256(query.encode()).hexdigest() for query in queries["query_id"].to_pylist()]
    is_test = pc.equal(queries["split"], "test").to_numpy(zero_copy_only=False)
    tests = sorted(key for key, test in zip(keys, is_test, strict=True) if test)[:n_tests]
    kept = ~is_test | np.isin(keys, tests)
    rows = queries.filter(pa.array(kept))
    write_columns(run, "queries", {name: rows[name].to_pylist() for name in rows.column_names if name != "tenant"})
    return run


def finder_of(run: Run, cache: str) -> BaseEncoder:
    """The encoder that finds the candidates."""
    source = TrainingSource(run, 0, False, 0)
    return BaseEncoder(MINILM, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (source,))


def train(run: Run, out: Run, cache: str, size: RerankerSize) -> float:
    """Train and test; returns processor seconds of training."""
    seconds = 0.0
    for step in steps(finder_of(run, cache), size.model, size.inputs, size.settings):
        began = time.process_time()
        out.execute(step.plan(out), step.execute)
        seconds = time.process_time() - began if step.stage is RERANKER_STAGE else seconds
    return seconds


def test_rows(name: str, out: Run) -> Rows:
    """Each system on the test queries, best first."""
    columns = ("system", "nDCG@10", "R@10", "reranked − it", "low", "high", "p")
    return [[name, *(row[column] for column in columns)] for row in out.tables().sql(SCORES_SQL).to_pylist()]


def training_row(name: str, out: Run, seconds: float, size: RerankerSize) -> list[object]:
    """Size of the training, its cost, and the decision."""
    tables = out.tables()
    trial, verdict = best_trial(tables), read_reranker_verdict(tables)
    manifest = out.manifest(RERANKER_TEST_STAGE)
    assert manifest is not None
    row = [name, size.steps, trial["step"], size.tokens, trial["queries"], verdict["queries"]]
    row += [trial["candidates"], trial["validation"]]
    return [*row, trial["weight"], seconds, manifest.facts["pairs"], manifest.facts["milliseconds"], verdict["shipped"]]


def unseen_row(trained_on: str, out: Run, name: str, folder: Path, cache: str) -> list[object]:
    """The reranker on another collection's test queries, with its weight, against the candidates' order there."""
    size = SIZES[trained_on]
    with tempfile.TemporaryDirectory() as scratch:
        run = make_run(folder, Path(scratch) / "run", people_labels(folder, LEAST_GRADE[name]))
        other, finder = Run(f"{scratch}/out"), finder_of(run, cache)
        for step in steps(finder, size.model, size.inputs, size.settings):
            if step.stage in {PAIRS_STAGE, CANDIDATES_STAGE}:
                other.execute(step.plan(other), step.execute)
        tables = other.tables()
        queries = tables.sql(UNSEEN_QUERIES_SQL, [N_UNSEEN])
        lists = load_lists(tables, finder.sources, queries, tables.read("adaptation_labels"))
        reranker = load_best_reranker(out.tables(), initial_reranker(size.model, size.settings))
        rankings = lists.own_order(), lists.rerank(reranker.scores(*lists.pairs()), best_trial(out.tables())["weight"])
        ids = lists.ids.to_pylist()
        before, after = (compute_measures([each], lists.labels, ids, ["nDCG@10"]) for each in rankings)
    gain = compare_paired(after, before, np.arange(len(ids)), ResamplingSettings())
    row = [trained_on, name, len(ids), float(before.mean()), float(after.mean())]
    return [*row, float(gain.mean[0]), float(gain.low[0]), float(gain.high[0]), float(gain.p[0])]


def tables_of(tests: Rows, training: Rows, unseen: Rows) -> list[ResultTable]:
    """The published tables."""
    interval = {"difference": "+.4f", "95 % from": "+.3f", "to": "+.3f", "p": ".4f"}
    packages = ["sentence-transformers", "torch"]
    columns = {"collection": "", "system": "", "nDCG@10": ".4f", "R@10": ".4f", **interval}
    about = {
        "collection": "",
        "steps": ",d",
        "best at": ",d",
        "tokens": ",d",
        "validation queries": ",d",
        "test queries": ",d",
    }
    about |= {
        "validation, candidates": ".4f",
        "validation, reranked": ".4f",
        "weight": "",
        "training, processor s": ".0f",
    }
    about |= {"candidates": ".0f", "ms per query, one core": ".0f", "released": ""}
    moved = {"trained on": "", "collection": "", "queries": ",d", CANDIDATES: ".4f", RERANKED: ".4f", **interval}
    return [
        ResultTable("Reranked candidates", columns, tests, packages=packages),
        ResultTable("Size and cost of the training", about, training, packages=packages),
        ResultTable("On collections that training did not see", moved, unseen, packages=packages),
    ]


def measure(name: str, root: Path, cache: str, size: RerankerSize) -> tuple[Rows, Rows, Rows]:
    """Rows of the three tables."""
    with tempfile.TemporaryDirectory() as scratch:
        run = make_run(root / name, Path(scratch) / "run", people_labels(root / name, LEAST_GRADE[name]))
        out = Run(f"{scratch}/out")
        seconds = train(limited(run, size.tests), out, cache, size)
        tests, training = test_rows(name, out), [training_row(name, out, seconds, size)]
        others = present(UNSEEN.get(name, ()), root)
        unseen = [unseen_row(name, out, other, root / other, cache) for other in others]
    return tests, training, unseen


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__, TRAINED)
    arguments = parser.parse_args()
    names: Sequence[str] = ["homedepot"] if arguments.quick else present(arguments.only, arguments.collections)
    sizes = {name: QUICK if arguments.quick else SIZES[name] for name in names}
    parts = [measure(name, arguments.collections, arguments.cache, sizes[name]) for name in names]
    tests, training, unseen = ([row for part in parts for row in part[number]] for number in range(3))
    publish("reranker", tables_of(tests, training, unseen), quick=arguments.quick)


if __name__ == "__main__":
    main()
