"""Grid points: one encoder, label source, size and seed each; trained and evaluated in any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.models.local import inner_parameters, locate
from darklode.pipeline.base.sharding import Pieces
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.laws.entropy import SampledNegatives, sample_negatives
from darklode.pipeline.laws.points import ENTROPY_MEASURE
from darklode.pipeline.laws.trainer import UNTRAINED, GridData, GridTrainer, OnProgress, PointKey, TrainedModel
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.generated import GeneratedQueries, generated_in
from darklode.pipeline.train.data.inverse_cloze import inverse_cloze
from darklode.pipeline.train.data.labels import Labels
from darklode.pipeline.train.fit.model_selection import MIN_VALIDATION
from darklode.pipeline.train.release.ablation import PAIR_TABLES
from darklode.pipeline.train.release.baselines import shuffle_labels
from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings
from darklode.schemas.law_tables import LAW_POINTS
from darklode.schemas.laws import OWN_SOURCES, LawSettings

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Ints
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.vectors import FrozenIndex

LabelSource = Callable[[Task, int], Task]
"""Builds the training task of a source for a seed."""

MEASURES = ("nDCG@10", "R@1000")
"""Ranking measures of each grid point, besides contrastive entropy."""

DEPTH = 1000
"""Number of texts that a test query retrieves: the deepest cutoff of `MEASURES`."""

N_TIMED_TEXTS = 64
"""Number of texts encoded to measure speed."""


@dataclass(frozen=True)
class GridContext:
    """Everything the grid points of one encoder share.

    Attributes:
        tables: tables of the stage `adaptation_pairs`: training, validation and test queries with labels.
        base: the encoder that each grid point starts from.
        trainer: trains a grid point.
        settings: settings of the grid.
        seed: seed of the sampled negatives of contrastive entropy.
    """

    tables: Tables
    base: BaseEncoder
    trainer: GridTrainer
    settings: LawSettings
    seed: int

    @property
    def key(self) -> str:
        """Fingerprint of everything that can change a score, except the labels of generated queries."""
        contents = [self.tables.content(name) for name in (*PAIR_TABLES, *self.trainer.tables_read)]
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
class GridShard:
    """The grid points of one encoder, source and seed.

    They form one shard because they share the training task and the opened vectors of the encoder.

    Attributes:
        context: the encoder and everything its grid points share.
        source: name of the label source.
        seed: seed of the grid points.
        sizes: numbers of labelled queries, one per grid point.
        folder: where the results of the shard are saved, see `Shard`.
    """

    context: GridContext
    source: str
    seed: int
    sizes: tuple[int, ...]
    folder: str

    @property
    def name(self) -> str:
        return f"{self.source}, seed {self.seed}"

    @property
    def points(self) -> Iterator[PointKey]:
        return (PointKey(self.source, size, self.seed) for size in self.sizes)


class Evaluators:
    """Creates the evaluator of an encoder, and keeps only the last one, because it holds the encoder in memory."""

    def __init__(self) -> None:
        self._last: tuple[GridContext, GridEvaluator] | None = None

    def get(self, context: GridContext) -> GridEvaluator:
        if self._last is None or self._last[0] is not context:
            self._last = None  # frees the memory before the next encoder is opened
            self._last = context, GridEvaluator.from_context(context)
        return self._last[1]


def train_shard(
    shard: GridShard, *, evaluators: Evaluators | None = None, on_progress: OnProgress = lambda *_: None
) -> Pieces:
    """Train and evaluate the points of a shard; yields the rows of `law_points` and a row of costs of each.

    Args:
        shard: the points.
        evaluators: shared by the shards of this process; None: the shard opens its own.
        on_progress: progress callback.
    """
    evaluator = (evaluators or Evaluators()).get(shard.context)
    task = evaluator.training_task(shard.source, shard.seed)
    for point in shard.points:
        rows, seconds = evaluator.evaluate_point(task, point, on_progress)
        yield rows
        yield pa.Table.from_pylist([{"seconds": seconds, "texts_per_second": evaluator.texts_per_second}])


@dataclass(frozen=True)
class GridEvaluator:
    """Builds training tasks and measures scores for the grid points of one encoder.

    Attributes:
        context: the encoder and everything its grid points share.
        data: training, validation and test queries with the encoder's vectors.
        negatives: positives and sampled negatives of the test queries, for contrastive entropy.
    """

    context: GridContext
    data: GridData
    negatives: SampledNegatives

    @classmethod
    def from_context(cls, context: GridContext) -> GridEvaluator:
        """Open the vectors, encoding missing ones first.

        Raises:
            ArtifactError: there is no test query.
        """
        tables, trainer = context.tables, context.trainer
        frozen = context.base.open(tables)
        task = Task.from_tables(tables, frozen, same_document=trainer.same_document)
        queries = _test_queries(tables, frozen)
        query_index, text_row = queries.label_rows(frozen, queries.labels)
        n_positions = len(frozen)
        labelled = Labels.from_pairs(query_index, frozen.position_of[text_row], n_positions)
        positives = queries.positives(frozen)
        negatives = sample_negatives(queries.ids.to_pylist(), positives, labelled, n_positions, context.seed)
        can_select = trainer.n_evaluated(len(task.validation)) >= MIN_VALIDATION
        data = GridData(tables, context.base, context.seed, task, queries, can_select)
        return cls(context, data, negatives)

    def training_task(self, source: str, seed: int) -> Task:
        """The training task of a source for a seed, without queries whose positive is also that of a test query."""
        return _hold_out(self._label_sources[source](self.data.task, seed), self.negatives.position)

    @cached_property
    def _label_sources(self) -> dict[str, LabelSource]:
        return _label_sources(self.data.task.frozen, self.context.base, generated_in(self.context.settings))

    @cached_property
    def texts_per_second(self) -> float:
        """Encoding speed here, measured on some texts after a warm-up."""
        base, tenant = self.context.base, self.data.task.frozen.texts["tenant"][0].as_py()
        texts = next(iter(base.sources[0].iterate_hashes(tenant)))[1][:N_TIMED_TEXTS].to_pylist()
        base.model.encode_documents(texts[:1])
        start_time = time.perf_counter()
        base.model.encode_documents(texts)
        return len(texts) / (time.perf_counter() - start_time)

    def evaluate_point(self, task: Task, point: PointKey, on_progress: OnProgress) -> tuple[pa.Table, float]:
        """Train one grid point; returns its scores and the seconds of training.

        Args:
            task: the training task of the point's source and seed, with all queries.
            point: the grid point.
            on_progress: progress callback.
        """
        context, start_time = self.context, time.perf_counter()
        sized_task = task.with_queries(prefix(task.train, point.size, point.seed))
        model = context.trainer.train(self.data, sized_task, point, on_progress) if point.size else UNTRAINED
        seconds = time.perf_counter() - start_time
        scores = self._initial_scores if model.weights is None else self._score(model)
        columns = {
            "source": point.source,
            "size": point.size,
            "seed": point.seed,
            "chosen": model.chosen,
            "pairs": model.pairs,
            "encoder": context.name,
            "encoder_id": context.base.encoder.encoder_id(),
            "parameters": context.n_parameters,
            "trainer": context.settings.trainer,
            "stopped": "validation" if self.data.can_select else "fixed steps",
        }
        rows = [columns | {"measure": measure, "value": value} for measure, value in scores.items()]
        return pa.Table.from_pylist(rows, schema=LAW_POINTS.schema), seconds

    @cached_property
    def _initial_scores(self) -> dict[str, float]:
        """Scores of the untrained encoder, the same for every source and size."""
        return self._score(UNTRAINED)

    def _score(self, model: TrainedModel) -> dict[str, float]:
        """Mean of each measure over the test queries."""
        trainer, queries = self.context.trainer, self.data.queries
        with trainer.search_with(self.data, model) as (frozen, vectors):
            rankings = queries.ranking(frozen, vectors, DEPTH)
            entropy = self.negatives.entropy(frozen, vectors, trainer.temperature).mean()
        values = compute_measures([rankings], queries.labels, queries.ids.to_pylist(), MEASURES).mean(axis=0)
        return dict(zip((ENTROPY_MEASURE, *MEASURES), map(float, (entropy, *values)), strict=True))


def _label_sources(
    frozen: FrozenIndex, base: BaseEncoder, generated: Mapping[str, GeneratedQueries]
) -> dict[str, LabelSource]:
    """Label sources by name: the run's labels, first BM25 hits, inverse cloze, shuffled labels, generated queries."""
    bm25 = Bm25Rankings(base, frozen)
    own_sources: tuple[LabelSource, ...] = (
        lambda task, _: task,
        lambda task, _: bm25.training_pairs(task),
        inverse_cloze(base, frozen),
        shuffle_labels,
    )
    by_name = dict(zip(OWN_SOURCES, own_sources, strict=True))
    return by_name | {name: queries.training_task for name, queries in generated.items()}


def _hold_out(task: Task, positions: Ints) -> Task:
    """The task without queries that are trained on one of these positions."""
    is_held_out = np.zeros(len(task.train), bool)
    is_held_out[task.pair_query[np.isin(task.pair_position, positions)]] = True
    return task.with_queries(np.flatnonzero(~is_held_out))


def prefix(train: QuerySet, size: int, seed: int) -> Ints:
    """The first `size` queries, by whole clusters in an order drawn by the seed: larger sizes contain smaller ones."""
    n = len(train)
    cluster = np.arange(n) if train.groups is None else train.groups.dictionary_encode().indices.to_numpy()
    cluster_rank = np.random.default_rng([seed, n]).permutation(int(cluster.max(initial=0)) + 1)
    order = np.lexsort((np.arange(n), cluster_rank[cluster]))
    return np.sort(order[:size])


def _test_queries(tables: Tables, frozen: FrozenIndex) -> QuerySet:
    """Test queries that share no positive with a training query; all test queries if each shares one.

    Raises:
        ArtifactError: there is no test query.
    """
    queries = QuerySet.from_tables(tables, frozen, "test")
    rows = tables.read("adaptation_queries", ["query_id", "shares_positive"])
    sharing_ids = rows.filter(rows["shares_positive"])["query_id"].combine_chunks()
    shares_no_positive = ~np.asarray(pc.is_in(queries.ids, sharing_ids).to_numpy(zero_copy_only=False), bool)
    if not len(queries):
        raise ArtifactError("no test query has a positive, so nothing can be measured")
    return queries.take(np.flatnonzero(shares_no_positive)) if shares_no_positive.any() else queries
