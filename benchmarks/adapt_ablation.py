"""What each part of `adapt` brings.

nDCG@10 of a linear head on all-MiniLM-L6-v2, on test queries whose positives training never saw: where training starts
and which positives it learns from. Each row is trained with the same steps and one learning rate, 1e-4; validation
selects the step and the share of the way from the base, as in `adapt`, which also tries two other rates and twice the
steps. "none" rows use no label of a train query; "fused list" is the weighted fusion of BM25 and the whitened base.
homedepot has 1,200 of its 3,802 train queries for heads. Mean over seeds; paired bootstrap intervals over queries.
Takes 10 minutes once vectors are cached; `--quick` measures stackfaq with one seed. `--full` trains the whole encoder
from these positives instead, on all train queries with one seed: 15 processor minutes for each collection.

    python -m benchmarks.adapt_ablation [--quick] [--full] [--only COLLECTION ...] [--seeds N]
                                        [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from benchmarks.adapt import LEAST_GRADE, MINILM, make_run, people_labels
from benchmarks.collections_io import options, present
from benchmarks.report import ResultTable, publish
from darklode.flows.jobs.adapt_encoder import pairs_step
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.types import Doubles, Floats, Ints
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import MEASURE, QuerySet, Task
from darklode.pipeline.train.data.fusion import fuse_by_score, normalize
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.system_names import WHITENED, by_scores
from darklode.pipeline.train.fit.batched_heads import StackedTrial, train_stacked
from darklode.pipeline.train.fit.encoder_methods import EncoderMethod
from darklode.pipeline.train.fit.head_methods import HeadMethod
from darklode.pipeline.train.fit.model_selection import best_score, score_shares, without_shared_positives
from darklode.pipeline.train.fit.whitening import Whitening, best_uncentered, best_whitening, whitenings
from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings
from darklode.pipeline.train.release.label_free import DEPTH, LabelFree
from darklode.pipeline.train.types import Layers
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

COLLECTIONS = ("insuranceqa", "homedepot", "stackfaq")
"""Collections with enough validation queries to select without cross-validation."""
MAX_TRAIN_QUERIES = {"homedepot": 1200}
RATE = 1e-4
SETTINGS = AdaptSettings(method="linear", max_steps=500, refresh_steps=125)
FUSED_POSITIVES = 3
REFERENCE = "people's, from the centered whitening"
PEOPLE = "people's"


@dataclass(frozen=True)
class Problem:
    """A collection with what its rows share."""

    base: BaseEncoder
    task: Task
    test: QuerySet
    bm25: Bm25Rankings

    def score(self, vectors: Floats) -> Doubles:
        """nDCG@10 of each test query, shape (n_queries,)."""
        lists = self.test.ranking(self.task.frozen, vectors, 10 + self.test.max_uncertain)
        return np.asarray(compute_measures([lists], self.test.labels, self.test.ids.to_pylist(), [MEASURE])[:, 0])

    def train(self, task: Task, start: Layers | None, seeds: int) -> Doubles:
        """Mean scores over seeds of heads trained on a task; the base's where validation prefers it."""
        trials = [
            StackedTrial(task, RATE, seed, lambda *_: None, start, anchored=start is not None) for seed in range(seeds)
        ]
        method, scores = HeadMethod(SETTINGS, self.base), []
        for history in train_stacked(trials, SETTINGS):
            share = best_score(score_shares(self.task, method, history.best_weights)).share
            scores.append(self.score(method.vectors(history.best_weights, share, self.test)))
        return np.asarray(np.mean(scores, axis=0))

    def train_encoder(self, task: Task) -> Doubles:
        """Scores of the whole encoder trained on a task as by `adapt`; the whitening's where validation prefers it."""
        settings = AdaptSettings().with_method("full", len(task.train))
        method = EncoderMethod(settings, self.base)
        _, rate = method.hyperparameters  # the first is the untrained whitening
        history = method.fit(task, rate, 0, lambda *_: None)
        share = best_score(score_shares(self.task, method, history.best_weights)).share
        return self.score(method.vectors(history.best_weights, share, self.test))

    def fused_pairs(self) -> tuple[Ints, Ints]:
        """First texts of the fused list of each train query: query and position."""
        queries, frozen = self.task.train, self.task.frozen
        label_free = LabelFree.select(self.task, self.bm25, self.task.validation)
        dense = normalize(queries.ranking(frozen, label_free.whiten(queries.vectors), DEPTH))
        lexical = normalize(self.bm25.rankings(queries, DEPTH))
        fused = fuse_by_score(lexical, dense, label_free.settings[by_scores(WHITENED)])
        query, text_row = queries.label_rows(frozen, fused.filter(pc.less_equal(fused["rank"], FUSED_POSITIVES)))
        keys = np.unique(query * len(frozen) + frozen.position_of[text_row])
        return keys // len(frozen), keys % len(frozen)


def open_problem(name: str, folder: Path, scratch: Path, cache: str, max_queries: int | None) -> Problem:
    """Load a collection with people's labels, and at most so many train queries."""
    source = TrainingSource(make_run(folder, scratch / "run", people_labels(folder, LEAST_GRADE[name])), 0, False, 0)
    base = BaseEncoder(MINILM, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (source,))
    out = Run(str(scratch / "out"))
    step = pairs_step(base, Settings(adapt=SETTINGS))
    out.execute(step.plan(out), step.execute)
    tables = out.tables()
    frozen = base.open(tables)
    task = without_shared_positives(Task.from_tables(tables, frozen, same_document=False))
    rows = np.sort(np.random.default_rng(0).permutation(len(task.train))[:max_queries])
    test, shares = QuerySet.from_tables(tables, frozen, "test"), tables.read("adaptation_queries")
    own = shares.filter(pc.invert(shares["shares_positive"]))["query_id"]
    own_rows = np.flatnonzero(pc.is_in(test.ids, own.combine_chunks()).to_numpy(zero_copy_only=False))
    return Problem(base, task.with_queries(rows), test.take(own_rows), Bm25Rankings(base, frozen))


def with_pairs(task: Task, query: Ints, position: Ints) -> Task:
    """The task with more training pairs, without those that people labelled as not relevant.

    Known positives that are not trained on, such as grade 1 of homedepot, count as unlabelled.
    """
    is_wrong = task.non_relevant.contains(query, position)
    keys = [task.pair_query * len(task.frozen) + task.pair_position, (query * len(task.frozen) + position)[~is_wrong]]
    all_query, all_position = np.divmod(np.unique(np.concatenate(keys)), len(task.frozen))
    return task.from_training_pairs(all_query, all_position)


def variants(problem: Problem, seeds: int) -> dict[str, Callable[[], Doubles]]:
    """Scores by row."""
    task = problem.task
    maps = list(whitenings(task))
    plain, centered = best_uncentered(task, maps), best_whitening(task, maps)
    pairs = problem.fused_pairs()
    retrieved, start = task.from_training_pairs(*pairs), layers(centered)

    def apply(whitening: Whitening | None) -> Doubles:
        vectors = problem.test.vectors
        return problem.score(vectors if whitening is None else whitening.apply(vectors))

    return {
        "none: whitening": lambda: apply(plain),
        "none: centered whitening": lambda: apply(centered),
        "fused list's first 3, from the centered whitening": lambda: problem.train(retrieved, start, seeds),
        "BM25's first, from the centered whitening": lambda: problem.train(
            problem.bm25.training_pairs(task), start, seeds
        ),
        "people's, from the base": lambda: problem.train(task, None, seeds),
        "people's, from the whitening (default)": lambda: problem.train(task, layers(plain), seeds),
        REFERENCE: lambda: problem.train(task, start, seeds),
        "people's and fused list's first 3": lambda: problem.train(with_pairs(task, *pairs), start, seeds),
    }


def encoder_variants(problem: Problem) -> dict[str, Callable[[], Doubles]]:
    """Scores by row, with the whole encoder trained from the whitening."""
    task, whitening = problem.task, best_uncentered(problem.task, whitenings(problem.task))
    vectors = problem.test.vectors if whitening is None else whitening.apply(problem.test.vectors)
    fused = task.from_training_pairs(*problem.fused_pairs())
    return {
        "none: whitening": lambda: problem.score(vectors),
        "BM25's first": lambda: problem.train_encoder(problem.bm25.training_pairs(task)),
        "fused list's first 3": lambda: problem.train_encoder(fused),
        PEOPLE: lambda: problem.train_encoder(task),
    }


def layers(whitening: Whitening | None) -> Layers | None:
    """A head's first layers; None: the base."""
    return None if whitening is None else whitening.layers


def measure(name: str, folder: Path, cache: str, seeds: int, *, full: bool) -> list[list[object]]:
    """A row for each variant: its lift over the base, and its difference to the reference."""
    with tempfile.TemporaryDirectory() as scratch:
        problem = open_problem(name, folder, Path(scratch), cache, None if full else MAX_TRAIN_QUERIES.get(name))
        scores = {}
        for row, score in (encoder_variants(problem) if full else variants(problem, seeds)).items():
            scores[row] = score()[:, None]
            print(name, row, f"{scores[row].mean():.4f}", flush=True)
        base, groups = problem.score(problem.test.vectors)[:, None], np.arange(len(problem.test))
    rows: list[list[object]] = []
    for row, values in scores.items():
        lift, over = (
            compare_paired(values, other, groups, ResamplingSettings())
            for other in (base, scores[PEOPLE if full else REFERENCE])
        )
        intervals = [float(end[0]) for each in (lift, over) for end in (each.mean, each.low, each.high)]
        rows.append([row, len(problem.test), *intervals])
    return rows


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__, COLLECTIONS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--full", action="store_true", help="train the whole encoder instead of a head")
    arguments = parser.parse_args()
    names = present(["stackfaq"] if arguments.quick else arguments.only, arguments.collections)
    seeds = 1 if arguments.quick else arguments.seeds
    columns = {"training positives, and start": "", "test queries": ",d", "lift": "+.4f", "95 % from": "+.3f"}
    reference = "people's" if arguments.full else "people's, centered"
    columns |= {"to": "+.3f", f"over {reference}": "+.4f", "from ": "+.3f", "to ": "+.3f"}
    for name in names:
        rows = measure(name, arguments.collections / name, arguments.cache, seeds, full=arguments.full)
        title = f"{name}, whole encoder" if arguments.full else name
        publish("adapt_ablation", [ResultTable(title, columns, rows)], quick=arguments.quick)


if __name__ == "__main__":
    main()
