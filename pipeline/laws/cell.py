"""A cell of the grid: an encoder, a source of labels, a size and a seed; trained and measured wherever that is."""

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
from darklode.pipeline.base.spread import Pieces
from darklode.pipeline.evaluate.measures import measured
from darklode.pipeline.laws.entropy import Drawn, drawn
from darklode.pipeline.laws.points import ENTROPY
from darklode.pipeline.laws.trainer import UNTRAINED, Tell, Trained, Trainer
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.choice import ENOUGH
from darklode.pipeline.train.cloze import inverse_cloze
from darklode.pipeline.train.contest import READS
from darklode.pipeline.train.generated import Generated, generated_in
from darklode.pipeline.train.rivals import Words, shuffled
from darklode.pipeline.train.task import Labels, Questions, Task
from darklode.schemas.law_tables import LAW_POINTS
from darklode.schemas.laws import OWN_SOURCES, LawSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.vectors import Base, Frozen, Ints

Teacher = Callable[[Task, int], Task]
"""The task as a source teaches it, for a seed."""

MEASURES = ("nDCG@10", "R@1000")
DEPTH = 1000

SAMPLE = 64
"""Texts that are encoded to see how long that takes."""


@dataclass(frozen=True)
class Desk:
    """All that cells of one encoder share.

    Attributes:
        tables: those of `adaptation_pairs`.
        base: the encoder.
        trainer: of the cells.
        cells: of the grid.
        seed: of the texts that entropy draws.
    """

    tables: Tables
    base: Base
    trainer: Trainer
    cells: LawSettings
    seed: int

    @property
    def key(self) -> str:
        """Of all that can change what a cell reaches, besides the labels of folders."""
        contents = [self.tables.content(name) for name in (*READS, *self.trainer.reads)]
        return key_of(*contents, self.base.identity, self.seed)

    @property
    def name(self) -> str:
        """The encoder's."""
        return str(self.base.encoder.model)

    @cached_property
    def parameters(self) -> float | None:
        """The encoder's, without those of embeddings; None where its files do not tell."""
        found = locate(self.base.encoder) if isinstance(self.base.encoder, SentenceTransformersSettings) else None
        count = inner_parameters(found) if found else None
        return None if count is None else float(count)


@dataclass(frozen=True)
class Cell:
    """A shard."""

    desk: Desk
    source: str
    size: int
    number: int
    place: str

    @property
    def name(self) -> str:
        """See `Shard`."""
        return f"{self.source}, {self.size}, seed {self.number}"


_benches: list[tuple[str, Bench]] = []


def bench_of(desk: Desk) -> Bench:
    """What cells of a desk are measured with; a process holds one."""
    labels = {name: one.content() for name, one in generated_in(desk.cells).items()}
    key = key_of(desk.key, desk.tables.url, desk.trainer.identity, desk.cells.model_dump(mode="json"), labels)
    if not _benches or _benches[0][0] != key:
        release()
        _benches.append((key, Bench.of(desk)))
    return _benches[0][1]


def release() -> None:
    """Let go of what this process holds, and of its memory."""
    _benches.clear()


def train(cell: Cell, tell: Tell | None = None) -> Pieces:
    """Train a cell: its points, and a row of what that took."""
    bench = bench_of(cell.desk)
    points, seconds = bench.cell(cell, tell or (lambda *_: None))
    yield points
    yield pa.Table.from_pylist([{"seconds": seconds, "texts_per_second": bench.texts_per_second}])


@dataclass(frozen=True)
class Bench:
    """What the cells of an encoder are taught by and measured with."""

    desk: Desk
    task: Task
    asked: Questions
    pairs: Drawn
    chooses: bool

    @classmethod
    def of(cls, desk: Desk) -> Bench:
        """Open the vectors, which are encoded where they lack.

        Raises:
            ArtifactError: there is no test query.
        """
        frozen = desk.base.open(desk.tables)
        task = Task.of(desk.tables, frozen, same_document=desk.trainer.same_document)
        asked = _test(desk.tables, frozen)
        query, row = asked.places(frozen, asked.labels)
        n = len(frozen)
        labelled = Labels.of(query, frozen.position_of[row], n)
        pairs = drawn(asked.ids.to_pylist(), asked.positives(frozen), labelled, n, desk.seed)
        return cls(desk, task, asked, pairs, desk.trainer.looked_at(len(task.validation)) >= ENOUGH)

    def taught(self, source: str, number: int) -> Task:
        """The task as a source teaches it, for a seed; the last one is kept."""
        if self._taught.get("for") != (source, number):
            self._taught["task"] = _apart(self._teachers[source](self.task, number), self.pairs.position)
            self._taught["for"] = (source, number)
        found: Task = self._taught["task"]
        return found

    @cached_property
    def _taught(self) -> dict[str, Any]:
        return {}

    @cached_property
    def _teachers(self) -> dict[str, Teacher]:
        return _teachers(self.task.frozen, self.desk, generated_in(self.desk.cells))

    @cached_property
    def texts_per_second(self) -> float:
        """How fast the encoder is here, by some texts; the first of them warms it up."""
        base, tenant = self.desk.base, self.task.frozen.texts["tenant"][0].as_py()
        texts = next(iter(base.sources[0].hashed(tenant)))[1][:SAMPLE].to_pylist()
        base.model.encode_documents(texts[:1])
        began = time.perf_counter()
        base.model.encode_documents(texts)
        return len(texts) / (time.perf_counter() - began)

    def cell(self, cell: Cell, tell: Tell) -> tuple[pa.Table, float]:
        """Train one cell; its points, and the seconds of training."""
        taught, trainer, began = self.taught(cell.source, cell.number), self.desk.trainer, time.perf_counter()
        task = taught.learning_from(prefix(taught.train, cell.size, cell.number))
        found = trainer.trained(self, task, cell, tell) if cell.size else UNTRAINED
        seconds = time.perf_counter() - began
        reached = self._begun if found.weights is None else self._reached(found)
        about = {"source": cell.source, "size": cell.size, "seed": cell.number}
        about |= {"chosen": found.chosen, "pairs": found.pairs}
        about |= {"encoder": self.desk.name, "encoder_id": self.desk.base.encoder.encoder_id()}
        about |= {"parameters": self.desk.parameters}
        about |= {"trainer": self.desk.cells.trainer}
        about |= {"stopped": "validation" if self.chooses else "fixed steps"}
        rows = [about | {"measure": measure, "value": value} for measure, value in reached.items()]
        return pa.Table.from_pylist(rows, schema=LAW_POINTS.schema), seconds

    @cached_property
    def _begun(self) -> dict[str, float]:
        """What step 0 reaches, whatever a cell would have learned from."""
        return self._reached(UNTRAINED)

    def _reached(self, found: Trained) -> dict[str, float]:
        """Each measure's mean over the test queries."""
        trainer = self.desk.trainer
        with trainer.searching(self, found) as (frozen, vectors):
            lists = self.asked.ranking(frozen, vectors, DEPTH)
            entropy = self.pairs.entropy(frozen, vectors, trainer.temperature).mean()
        values = measured([lists], self.asked.labels, self.asked.ids.to_pylist(), MEASURES).mean(axis=0)
        return dict(zip((ENTROPY, *MEASURES), map(float, (entropy, *values)), strict=True))


def _teachers(frozen: Frozen, desk: Desk, generated: Mapping[str, Generated]) -> dict[str, Teacher]:
    """What teaches by each source: the run's own labels, BM25's first text, a text's own sentence, and nobody."""
    words = Words(desk.base, frozen)
    of_bm25, of_texts = (lambda task, _: words.taught(task)), inverse_cloze(desk.base, frozen)
    own = dict(zip(OWN_SOURCES, (lambda task, _: task, of_bm25, of_texts, shuffled), strict=True))
    return own | {name: one.taught for name, one in generated.items()}


def _apart(task: Task, held: Ints) -> Task:
    """The task without the queries that teach one of these positions."""
    teaches = np.zeros(len(task.train), bool)
    teaches[task.pair_query[np.isin(task.pair_position, held)]] = True
    return task.learning_from(np.flatnonzero(~teaches))


def prefix(train: Questions, size: int, seed: int) -> Ints:
    """The numbers of so many queries, cluster by cluster in an order of the seed's: larger sizes hold smaller ones."""
    n = len(train)
    group = np.arange(n) if train.groups is None else train.groups.dictionary_encode().indices.to_numpy()
    turn = np.random.default_rng([seed, n]).permutation(int(group.max(initial=0)) + 1)
    return np.sort(np.lexsort((np.arange(n), turn[group]))[:size])


def _test(tables: Tables, frozen: Frozen) -> Questions:
    """The test queries of whose positives none is learned from; all of them, where each shares one."""
    asked = Questions.of(tables, frozen, "test")
    rows = tables.read("adaptation_queries", ["query_id", "shares_positive"])
    shares = rows.filter(rows["shares_positive"])["query_id"].combine_chunks()
    own = ~np.asarray(pc.is_in(asked.ids, shares).to_numpy(zero_copy_only=False), bool)
    if not len(asked):
        raise ArtifactError("no test query has a positive: nothing can be measured")
    return asked.take(np.flatnonzero(own)) if own.any() else asked
