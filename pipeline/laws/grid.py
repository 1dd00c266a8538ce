"""The stage that trains on ever more labels: sizes by sources by seeds, each cell measured on the same test queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Tables, key_of
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.pipeline.evaluate.measures import measured
from darklode.pipeline.laws.entropy import Drawn, drawn
from darklode.pipeline.laws.points import ENTROPY, POINTS
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

GRID = replace(POINTS, version=2, reads=READS)
"""Points, trained instead of read."""

SOURCES = dict(zip(OWN_SOURCES, ("", BM25, CLOZE, SHUFFLED), strict=True))
"""Where labels come from: the run's own, BM25's first text, a text's own sentence, and nobody (the control)."""

MEASURES = ("nDCG@10", "R@1000")
DEPTH = 1000
HALVINGS = 6
LEAST = 16
"""Labelled queries of the smallest size."""


def default_sizes(queries: int) -> list[int]:
    """All queries and up to six halves of them, ascending."""
    found = [queries >> halving for halving in range(HALVINGS + 1)]
    return sorted(one for one in found if one >= LEAST)


def grid(
    tables: Tables, output: Output, settings: AdaptSettings, base: Base, cells: LawSettings, *, seed: int
) -> None:  # fmt: skip
    """Train each cell and write what it reaches; one unit a cell.

    A size is so many of the queries to learn from, in an order of whole clusters that the cell's seed draws: a larger
    size holds the smaller ones of its seed. Training is stopped on validation, or with fewer than 100 validation
    queries goes to its last step at the only learning rate named. The best is kept, step 0 included. No source teaches
    a text that answers a query that is measured.

    Args:
        tables: those of `adaptation_pairs`.
        output: takes `law_points`.
        settings: method, loss, negatives, steps and learning rates.
        base: the encoder.
        cells: sizes, sources of labels and seeds.
        seed: of the texts that entropy draws.

    Raises:
        ArtifactError: there is no test query.
        SettingsError: a size is more than there is, or nothing could choose a learning rate.
    """
    frozen = base.open(tables)
    task = Task.of(tables, frozen, same_document=settings.same_document)
    asked = _test(tables, frozen)
    if max(cells.sizes, default=0) > len(task.train):
        raise SettingsError(f"size {max(cells.sizes)}: there are {len(task.train)} queries to learn from")
    if len(task.validation) < ENOUGH and len(method_of(settings, base).tried) > 1:
        said = f"{len(task.validation)} validation queries choose no setting ({ENOUGH} do)"
        raise SettingsError(f"{said}: --set adapt.learning_rates=[0.0001]")
    basis = key_of(*(tables.content(name) for name in READS), base.identity, seed)
    bench = _Bench.of(task, asked, settings, base, seed)
    generated = generated_in(cells)
    teachers, count = _teachers(frozen, settings, base, generated), 0
    for source, number in product(cells.sources, range(cells.seeds)):
        taught = _apart(teachers[source](task, number), bench.pairs.position)
        wanted = _sizes(cells, source, len(taught.train))
        count += len(wanted)
        own = key_of(basis, generated[source].content()) if source in generated else basis
        for size in wanted:
            with output.unit(f"{source}, {size}, seed {number}", own) as unit:
                if not unit.done:
                    bench.cell(output, taught, (source, size, number))
    output.count(FunnelStep(POINTS.name, "cells", count, "points", output.rows(POINTS.name)))


def _teachers(
    frozen: Frozen, settings: AdaptSettings, base: Base, generated: Mapping[str, Generated]
) -> dict[str, Callable[[Task, int], Task]]:
    """What teaches the labels of each source, for a seed."""
    every = {one.name: one.labels for one in rivals(settings, [settings.method], Words(base, frozen))}
    own = {source: every[settings.method + name] for source, name in SOURCES.items()}
    return own | {name: one.taught for name, one in generated.items()}


def _apart(task: Task, held: Ints) -> Task:
    """The task without the queries that teach one of these positions."""
    teaches = np.zeros(len(task.train), bool)
    teaches[task.pair_query[np.isin(task.pair_position, held)]] = True
    return task.learning_from(np.flatnonzero(~teaches))


def _sizes(cells: LawSettings, source: str, queries: int) -> list[int]:
    """Of a source.

    Raises:
        SettingsError: it has fewer queries.
    """
    if max(cells.sizes, default=0) > queries:
        raise SettingsError(f"size {max(cells.sizes)}: there are {queries} queries to learn from by {source}")
    return list(cells.sizes) or default_sizes(queries)


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


@dataclass(frozen=True)
class _Bench:
    """What all cells are measured with."""

    task: Task
    asked: Questions
    pairs: Drawn
    settings: AdaptSettings
    base: Base
    chooses: bool

    @classmethod
    def of(cls, task: Task, asked: Questions, settings: AdaptSettings, base: Base, seed: int) -> _Bench:
        frozen = task.frozen
        query, row = asked.places(frozen, asked.labels)
        n = len(frozen)
        labelled = Labels.of(query, frozen.position_of[row], n)
        pairs = drawn(asked.ids.to_pylist(), asked.positives(frozen), labelled, n, seed)
        return cls(task, asked, pairs, settings, base, len(task.validation) >= ENOUGH)

    def cell(self, output: Output, taught: Task, named: tuple[str, int, int]) -> None:
        """Train one cell and write its points."""
        source, size, seed = named
        task = taught.learning_from(prefix(taught.train, size, seed)) if size else taught
        chosen, vectors, trained = self._trained(task, seed, output, f"{source}, {size}, seed {seed}") if size else (
            "base", self.asked.vectors, 0
        )  # fmt: skip
        lists = self.asked.ranking(self.task.frozen, vectors, DEPTH)
        values = measured([lists], self.asked.labels, self.asked.ids.to_pylist(), MEASURES).mean(axis=0)
        entropy = self.pairs.entropy(self.task.frozen, vectors, self.settings.temperature).mean()
        about = {"source": source, "size": size, "seed": seed, "chosen": chosen, "pairs": trained}
        about |= {"parameters": None, "stopped": "validation" if self.chooses else "fixed steps"}
        found = zip((ENTROPY, *MEASURES), (entropy, *values), strict=True)
        rows = [about | {"measure": measure, "value": float(value)} for measure, value in found]
        output.write(LAW_POINTS.name, pa.Table.from_pylist(rows, schema=LAW_POINTS.schema))

    def _trained(self, task: Task, seed: int, output: Output, where: str) -> tuple[str, Floats, int]:
        """What is chosen, the test queries' vectors by it, and how many pairs were learned from."""
        method = method_of(self.settings, self.base)
        best: tuple[Reached, float, Any] | None = None
        for setting in method.tried:

            def tell(step: int, seen: str, at: float = setting) -> None:
                output.progress(step, self.settings.steps, f"{where}, {method.about} {at:g}: {seen}")

            course = method.trained(replace(task, whole=not self.chooses), setting, seed, tell)
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
