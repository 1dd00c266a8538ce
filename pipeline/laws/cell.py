"""A cell of the grid: an encoder, a source of labels, a size and a seed; trained and measured wherever that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
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
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.choice import ENOUGH, Reached, most, preference, reach
from darklode.pipeline.train.contest import READS
from darklode.pipeline.train.generated import Generated, generated_in
from darklode.pipeline.train.methods import method_of
from darklode.pipeline.train.rivals import BM25, CLOZE, SHUFFLED, Words, rivals
from darklode.pipeline.train.task import Labels, Questions, Task
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.law_tables import LAW_POINTS
from darklode.schemas.laws import OWN_SOURCES, LawSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.vectors import Base, Floats, Frozen, Ints

SOURCES = dict(zip(OWN_SOURCES, ("", BM25, CLOZE, SHUFFLED), strict=True))
"""Where labels come from: the run's own, BM25's first text, a text's own sentence, and nobody (the control)."""

MEASURES = ("nDCG@10", "R@1000")
DEPTH = 1000

SAMPLE = 64
"""Texts that are encoded to see how long that takes."""

Tell = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Desk:
    """All that cells of one encoder share.

    Attributes:
        tables: those of `adaptation_pairs`.
        base: the encoder.
        settings: of training.
        cells: of the grid.
        seed: of the texts that entropy draws.
    """

    tables: Tables
    base: Base
    settings: AdaptSettings
    cells: LawSettings
    seed: int

    @property
    def key(self) -> str:
        """Of all that can change what a cell reaches, besides the labels of folders."""
        contents = [self.tables.content(name) for name in READS]
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
    given = [section.model_dump(mode="json") for section in (desk.settings, desk.cells)]
    labels = {name: one.content() for name, one in generated_in(desk.cells).items()}
    key = key_of(desk.key, desk.tables.url, given, labels)
    if not _benches or _benches[0][0] != key:
        release()
        _benches.append((key, Bench.of(desk)))
    return _benches[0][1]


def release() -> None:
    """Let go of what this process holds, and of its memory."""
    _benches.clear()


def train(cell: Cell, tell: Tell | None = None) -> Pieces:
    """Train a cell: its points, and a row of what that took."""
    bench, began = bench_of(cell.desk), time.perf_counter()
    yield bench.cell(cell, tell or (lambda *_: None))
    seconds = time.perf_counter() - began
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
        task = Task.of(desk.tables, frozen, same_document=desk.settings.same_document)
        asked = _test(desk.tables, frozen)
        query, row = asked.places(frozen, asked.labels)
        n = len(frozen)
        labelled = Labels.of(query, frozen.position_of[row], n)
        pairs = drawn(asked.ids.to_pylist(), asked.positives(frozen), labelled, n, desk.seed)
        return cls(desk, task, asked, pairs, len(task.validation) >= ENOUGH)

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
    def _teachers(self) -> dict[str, Callable[[Task, int], Task]]:
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

    def cell(self, cell: Cell, tell: Tell) -> pa.Table:
        """Train one cell; its points."""
        taught, settings = self.taught(cell.source, cell.number), self.desk.settings
        if cell.size:
            task = taught.learning_from(prefix(taught.train, cell.size, cell.number))
            chosen, vectors, trained = self._trained(task, cell.number, partial(_said, tell, settings.steps, cell.name))
        else:
            chosen, vectors, trained = "base", self.asked.vectors, 0
        lists = self.asked.ranking(self.task.frozen, vectors, DEPTH)
        values = measured([lists], self.asked.labels, self.asked.ids.to_pylist(), MEASURES).mean(axis=0)
        entropy = self.pairs.entropy(self.task.frozen, vectors, settings.temperature).mean()
        about = {"source": cell.source, "size": cell.size, "seed": cell.number, "chosen": chosen, "pairs": trained}
        about |= {"encoder": self.desk.name, "parameters": self.desk.parameters}
        about |= {"stopped": "validation" if self.chooses else "fixed steps"}
        found = zip((ENTROPY, *MEASURES), (entropy, *values), strict=True)
        rows = [about | {"measure": measure, "value": float(value)} for measure, value in found]
        return pa.Table.from_pylist(rows, schema=LAW_POINTS.schema)

    def _trained(self, task: Task, seed: int, hear: Callable[[str, int, str], None]) -> tuple[str, Floats, int]:
        """What is chosen, the test queries' vectors by it, and how many pairs were learned from."""
        method = method_of(self.desk.settings, self.desk.base)
        best: tuple[Reached, float, Any] | None = None
        for setting in method.tried:
            hearing = partial(hear, f"{method.about} {setting:g}")
            course = method.trained(replace(task, whole=not self.chooses), setting, seed, hearing)
            found = self._reached(task, method, course.best)
            if best is None or preference(found) > preference(best[0]):
                best = found, setting, course.best
        assert best is not None
        one, setting, weights = best
        vectors = method.vectors(weights, one.share, self.asked) if one.share else self.asked.vectors
        return (f"{method.about} {setting:g} × {one.share:g}" if one.share else "base"), vectors, len(task.pair_query)

    def _reached(self, task: Task, method: Any, weights: Any) -> Reached:
        """The best share on validation; the whole way, where that cannot choose."""
        return most(reach(task, method, weights)) if self.chooses else Reached(1.0, 0.0, 0)


def _said(tell: Tell, steps: int, where: str, trial: str, step: int, seen: str) -> None:
    """Say how far a trial of a cell is."""
    tell(step, steps, f"{where}, {trial}: {seen}")


def _teachers(frozen: Frozen, desk: Desk, generated: Mapping[str, Generated]) -> dict[str, Callable[[Task, int], Task]]:
    """What teaches the labels of each source, for a seed."""
    method = desk.settings.method
    every = {one.name: one.labels for one in rivals(desk.settings, [method], Words(desk.base, frozen))}
    own = {source: every[method + name] for source, name in SOURCES.items()}
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
