"""The stage `grid`: train at growing sizes for each encoder, source and seed, all measured on the same test queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from darklode.pipeline.base.artifacts import FunnelStep, Output, Tables, key_of
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.sharding import Spread, here
from darklode.pipeline.laws.grid_point import GridContext, GridPoint, evaluator_of, release, train
from darklode.pipeline.laws.points import POINTS
from darklode.pipeline.laws.trainer import GridTrainer
from darklode.pipeline.train.data.generated import generated_in
from darklode.pipeline.train.fit.ablation import READS
from darklode.pipeline.train.fit.model_selection import ENOUGH
from darklode.schemas.law_tables import LAW_POINTS
from darklode.schemas.laws import LawSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.data.vectors import BaseEncoder

GRID = replace(POINTS, version=5, reads=READS)
"""The stage `points`, with trained instead of imported points."""

HALVINGS = 6
LEAST = 16
"""Labelled queries of the smallest size."""


def default_sizes(queries: int) -> list[int]:
    """All queries and up to six successive halves, ascending."""
    sizes = [queries >> halving for halving in range(HALVINGS + 1)]
    return sorted(size for size in sizes if size >= LEAST)


def grid(  # noqa: PLR0913 (what a stage receives is its fingerprint)
    tables: Tables,
    output: Output,
    trainer: GridTrainer,
    bases: Mapping[str, BaseEncoder],
    cells: LawSettings,
    *,
    seed: int,
    spread: Spread = here,
) -> None:
    """Train each grid point and write its scores; each is a resumable unit.

    A size is a number of training queries, taken in an order of whole clusters drawn by the seed, so larger sizes
    contain
    the smaller ones of the same seed. Training stops early by validation; with fewer than 100 validation queries it
    runs to
    the last step with the only configured learning rate. The best weights are kept, step 0 included. No source trains
    on a
    text that answers a test query.

    Args:
        tables: of `adaptation_pairs`.
        output: `law_points`; the fact `models` holds each encoder's costs.
        trainer: of each grid point.
        bases: the encoders, in order.
        cells: sizes, sources and seeds.
        seed: for the negatives of entropy.
        spread: where grid points are trained.

    Raises:
        ArtifactError: there is no test query.
        SettingsError: a size exceeds the queries, several learning rates without enough validation queries, or size
            0 with
            several encoders (their law is undefined at 0).
    """
    desks = [GridContext(tables, base, trainer, cells, seed) for base in bases.values()]
    if len(desks) > 1 and 0 in cells.train_sizes:
        raise SettingsError("size 0 has no place in a law of several encoders: leave it out, or name one encoder")
    every = list(_cells(desks, output))
    missing = [cell for cell, basis in every if not output.is_done(_name(cell), basis)]
    results = spread(partial(train, tell=output.progress) if spread is here else train, missing)
    took: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for cell, basis in every:
        with output.unit(_name(cell), basis) as unit:
            if not unit.done:
                with closing(next(results)) as pieces:
                    output.write(LAW_POINTS.name, next(pieces))
                    unit.facts = next(pieces).to_pylist()[0]
        took.setdefault(cell.desk.key, []).append((cell.size, unit.facts))
    release()
    output.facts["models"] = [_timings(desk, tables, took[desk.key]) for desk in desks if desk.n_parameters]
    output.count(FunnelStep(POINTS.name, "cells", len(every), "points", output.rows(POINTS.name)))


def _cells(desks: Sequence[GridContext], output: Output) -> Iterator[tuple[GridPoint, str]]:
    """Every grid point with its unit's fingerprint, in table order; sizes are those of the first encoder's task."""
    first = desks[0]
    bench, cells, generated = evaluator_of(first), first.cells, generated_in(first.cells)
    max_size = max(cells.train_sizes, default=0)
    if max_size > len(bench.task.train):
        raise SettingsError(f"size {max_size}: there are {len(bench.task.train)} queries to learn from")
    if not bench.chooses and first.trainer.settings(bench) > 1:
        n_validation = first.trainer.looked_at(len(bench.task.validation))
        raise SettingsError(
            f"{n_validation} validation queries choose no setting ({ENOUGH} do): {first.trainer.advice}"
        )
    of_source = {
        (source, number): _sizes(cells, source, len(bench.training_task(source, number).train))
        for source, number in product(cells.label_sources, range(cells.n_seeds))
    }
    for desk in desks:
        for (source, number), sizes in of_source.items():
            basis = key_of(desk.key, generated[source].content()) if source in generated else desk.key
            for size in sizes:
                cell = GridPoint(desk, source, size, number, "")
                folder = f"progress/{POINTS.name}/{output.unit_key(_name(cell), basis)}"
                yield replace(cell, folder=folder), basis


def _name(cell: GridPoint) -> str:
    return f"{cell.desk.name}: {cell.name}"


def _sizes(cells: LawSettings, source: str, queries: int) -> list[int]:
    """Sizes for a source.

    Raises:
        SettingsError: a configured size exceeds the source's queries.
    """
    if max(cells.train_sizes, default=0) > queries:
        raise SettingsError(f"size {max(cells.train_sizes)}: there are {queries} queries to learn from by {source}")
    return list(cells.train_sizes) or default_sizes(queries)


def _timings(desk: GridContext, tables: Tables, facts: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """Median costs of an encoder's grid points; training time at the largest size."""
    max_size = max(size for size, _ in facts)
    return {
        "name": desk.name,
        "parameters": desk.n_parameters,
        "texts": tables.rows("adaptation_texts"),
        "texts_per_second": float(np.median([timing["texts_per_second"] for _, timing in facts])),
        "seconds": float(np.median([timing["seconds"] for size, timing in facts if size == max_size])),
    }
