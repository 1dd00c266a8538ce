"""A grid point: one encoder, label source, size and seed; trained and evaluated in any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.models.local import inner_parameters, locate
from darklode.pipeline.base.sharding import Pieces
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.laws.entropy import SampledNegatives, sample_negatives
from darklode.pipeline.laws.points import ENTROPY
from darklode.pipeline.laws.trainer import UNTRAINED, GridTrainer, Tell, TrainedModel
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.dataset import Labels, QuerySet, Task
from darklode.pipeline.train.data.generated import GeneratedQueries, generated_in
from darklode.pipeline.train.data.inverse_cloze import inverse_cloze
from darklode.pipeline.train.fit.ablation import READS
from darklode.pipeline.train.fit.baselines import Bm25Baseline, shuffle_labels
from darklode.pipeline.train.fit.model_selection import ENOUGH
from darklode.schemas.law_tables import LAW_POINTS
from darklode.schemas.laws import OWN_SOURCES, LawSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Ints
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.vectors import FrozenIndex

Teacher = Callable[[Task, int], Task]
"""Builds the training task of a source for a seed."""

MEASURES = ("nDCG@10", "R@1000")
DEPTH = 1000

SAMPLE = 64
"""Number of texts encoded to measure speed."""


@dataclass(frozen=True)
class GridContext:
    """Everything the grid points of one encoder share.

    Attributes:
        tables: of `adaptation_pairs`.
        base: the encoder.
        trainer: of the grid points.
        cells: settings of the grid.
        seed: for the negatives of entropy.
    """

    tables: Tables
    base: BaseEncoder
    trainer: GridTrainer
    cells: LawSettings
    seed: int

    @property
    def key(self) -> str:
        """Fingerprint of everything that can change a score, except the labels of generated queries."""
        contents = [self.tables.content(name) for name in (*READS, *self.trainer.tables_read)]
        return key_of(*contents, self.base.identity, self.seed)

    @property
    def name(self) -> str:
        """Name of the encoder."""
        return str(self.base.encoder.model)

    @cached_property
    def n_parameters(self) -> float | None:
        """Number of parameters without embeddings; None if the model files do not tell."""
        location = locate(self.base.encoder) if isinstance(self.base.encoder, SentenceTransformersSettings) else None
        count = inner_parameters(location) if location else None
        return None if count is None else float(count)


@dataclass(frozen=True)
class GridPoint:
    """One shard of work: a single grid point."""

    desk: GridContext
    source: str
    size: int
    number: int
    folder: str

    @property
    def name(self) -> str:
        return f"{self.source}, {self.size}, seed {self.number}"


_benches: list[tuple[str, GridEvaluator]] = []


def evaluator_of(desk: GridContext) -> GridEvaluator:
    """The evaluator of a context; each process caches one, because it holds the encoder in memory."""
    labels = {name: queries.content() for name, queries in generated_in(desk.cells).items()}
    key = key_of(desk.key, desk.tables.url, desk.trainer.identity, desk.cells.model_dump(mode="json"), labels)
    if not _benches or _benches[0][0] != key:
        release()
        _benches.append((key, GridEvaluator.from_context(desk)))
    return _benches[0][1]


def release() -> None:
    """Free the cached evaluator and its memory."""
    _benches.clear()


def train(cell: GridPoint, tell: Tell | None = None) -> Pieces:
    """Train and evaluate one grid point: its points and a row of costs."""
    bench = evaluator_of(cell.desk)
    points, seconds = bench.evaluate_point(cell, tell or (lambda *_: None))
    yield points
    yield pa.Table.from_pylist([{"seconds": seconds, "texts_per_second": bench.texts_per_second}])


@dataclass(frozen=True)
class GridEvaluator:
    """Builds training tasks and measures scores for the grid points of one encoder."""

    desk: GridContext
    task: Task
    queries: QuerySet
    pairs: SampledNegatives
    chooses: bool

    @classmethod
    def from_context(cls, desk: GridContext) -> GridEvaluator:
        """Open the vectors, encoding missing ones first.

        Raises:
            ArtifactError: there is no test query.
        """
        frozen = desk.base.open(desk.tables)
        task = Task.from_tables(desk.tables, frozen, same_document=desk.trainer.same_document)
        queries = _test_queries(desk.tables, frozen)
        query, row = queries.places(frozen, queries.labels)
        n = len(frozen)
        labelled = Labels.from_pairs(query, frozen.position_of[row], n)
        pairs = sample_negatives(queries.ids.to_pylist(), queries.positives(frozen), labelled, n, desk.seed)
        return cls(desk, task, queries, pairs, desk.trainer.looked_at(len(task.validation)) >= ENOUGH)

    def training_task(self, source: str, number: int) -> Task:
        """The task of a source for a seed; only the last one is cached."""
        if self._taught.get("for") != (source, number):
            self._taught["task"] = _hold_out(self._teachers[source](self.task, number), self.pairs.position)
            self._taught["for"] = (source, number)
        task: Task = self._taught["task"]
        return task

    @cached_property
    def _taught(self) -> dict[str, Any]:
        return {}

    @cached_property
    def _teachers(self) -> dict[str, Teacher]:
        return _teachers(self.task.frozen, self.desk, generated_in(self.desk.cells))

    @cached_property
    def texts_per_second(self) -> float:
        """Encoding speed here, measured on some texts after a warm-up."""
        base, tenant = self.desk.base, self.task.frozen.texts["tenant"][0].as_py()
        texts = next(iter(base.sources[0].iterate_hashes(tenant)))[1][:SAMPLE].to_pylist()
        base.model.encode_documents(texts[:1])
        began = time.perf_counter()
        base.model.encode_documents(texts)
        return len(texts) / (time.perf_counter() - began)

    def evaluate_point(self, cell: GridPoint, tell: Tell) -> tuple[pa.Table, float]:
        """Train one grid point; returns its scores and the seconds of training."""
        taught, trainer, began = self.training_task(cell.source, cell.number), self.desk.trainer, time.perf_counter()
        task = taught.with_queries(prefix(taught.train, cell.size, cell.number))
        trained_model = trainer.train(self, task, cell, tell) if cell.size else UNTRAINED
        seconds = time.perf_counter() - began
        scores = self._initial_scores if trained_model.weights is None else self._score(trained_model)
        about = {"source": cell.source, "size": cell.size, "seed": cell.number}
        about |= {"chosen": trained_model.chosen, "pairs": trained_model.pairs}
        about |= {"encoder": self.desk.name, "encoder_id": self.desk.base.encoder.encoder_id()}
        about |= {"parameters": self.desk.n_parameters}
        about |= {"trainer": self.desk.cells.trainer}
        about |= {"stopped": "validation" if self.chooses else "fixed steps"}
        rows = [about | {"measure": measure, "value": value} for measure, value in scores.items()]
        return pa.Table.from_pylist(rows, schema=LAW_POINTS.schema), seconds

    @cached_property
    def _initial_scores(self) -> dict[str, float]:
        """Scores of the untrained encoder, the same for every source and size."""
        return self._score(UNTRAINED)

    def _score(self, trained_model: TrainedModel) -> dict[str, float]:
        """Mean of each measure over the test queries."""
        trainer = self.desk.trainer
        with trainer.search_with(self, trained_model) as (frozen, vectors):
            lists = self.queries.ranking(frozen, vectors, DEPTH)
            entropy = self.pairs.entropy(frozen, vectors, trainer.temperature).mean()
        values = compute_measures([lists], self.queries.labels, self.queries.ids.to_pylist(), MEASURES).mean(axis=0)
        return dict(zip((ENTROPY, *MEASURES), map(float, (entropy, *values)), strict=True))


def _teachers(frozen: FrozenIndex, desk: GridContext, generated: Mapping[str, GeneratedQueries]) -> dict[str, Teacher]:
    """Label sources: the run's labels, the first BM25 hit, inverse cloze, shuffled labels, and generated queries."""
    words = Bm25Baseline(desk.base, frozen)
    of_bm25, of_texts = (lambda task, _: words.training_pairs(task)), inverse_cloze(desk.base, frozen)
    own = dict(zip(OWN_SOURCES, (lambda task, _: task, of_bm25, of_texts, shuffle_labels), strict=True))
    return own | {name: queries.training_task for name, queries in generated.items()}


def _hold_out(task: Task, held_out_rows: Ints) -> Task:
    """The task without queries that are trained on one of these positions."""
    teaches = np.zeros(len(task.train), bool)
    teaches[task.pair_query[np.isin(task.pair_position, held_out_rows)]] = True
    return task.with_queries(np.flatnonzero(~teaches))


def prefix(train: QuerySet, size: int, seed: int) -> Ints:
    """The first `size` queries, by whole clusters in an order drawn by the seed: larger sizes contain smaller ones."""
    n = len(train)
    group = np.arange(n) if train.groups is None else train.groups.dictionary_encode().indices.to_numpy()
    turn = np.random.default_rng([seed, n]).permutation(int(group.max(initial=0)) + 1)
    return np.sort(np.lexsort((np.arange(n), turn[group]))[:size])


def _test_queries(tables: Tables, frozen: FrozenIndex) -> QuerySet:
    """Test queries with no positive in training; all test queries if every one shares a positive."""
    queries = QuerySet.from_tables(tables, frozen, "test")
    rows = tables.read("adaptation_queries", ["query_id", "shares_positive"])
    shares = rows.filter(rows["shares_positive"])["query_id"].combine_chunks()
    own = ~np.asarray(pc.is_in(queries.ids, shares).to_numpy(zero_copy_only=False), bool)
    if not len(queries):
        raise ArtifactError("no test query has a positive: nothing can be measured")
    return queries.take(np.flatnonzero(own)) if own.any() else queries
