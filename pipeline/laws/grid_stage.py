"""The stage `grid`: train at growing sizes for each encoder, source and seed, all measured on the same test queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from darklode.pipeline.base.artifacts import FunnelStep, Output, Tables, key_of
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.sharding import Pieces, Spread, here
from darklode.pipeline.laws.grid_point import Evaluators, GridContext, GridEvaluator, GridShard, train_shard
from darklode.pipeline.laws.points import POINTS_STAGE
from darklode.pipeline.laws.trainer import GridTrainer, PointKey
from darklode.pipeline.train.data.generated import generated_in
from darklode.pipeline.train.fit.model_selection import MIN_VALIDATION
from darklode.pipeline.train.release.ablation import PAIR_TABLES
from darklode.schemas.law_tables import LAW_POINTS
from darklode.schemas.laws import LawSettings

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder

GRID_STAGE = replace(POINTS_STAGE, version=6, reads=PAIR_TABLES)
"""The stage `points`, with trained instead of imported points."""

N_HALVINGS = 6
"""Number of halvings, so seven sizes by default: one is held out, and a law of labels needs more fitted sizes than its
constants, of which it has up to four.
"""

MIN_SIZE = 16
"""Minimum labelled queries of a default size."""


def default_sizes(queries: int) -> list[int]:
    """All queries and up to six successive halves, ascending."""
    sizes = [queries >> halving for halving in range(N_HALVINGS + 1)]
    return sorted(size for size in sizes if size >= MIN_SIZE)


def grid(  # noqa: PLR0913 (what a stage receives is its fingerprint)
    tables: Tables,
    output: Output,
    trainer: GridTrainer,
    bases: Mapping[str, BaseEncoder],
    settings: LawSettings,
    *,
    seed: int,
    spread: Spread = here,
) -> None:
    """Train each grid point and write its scores; each is a resumable unit.

    A size is a number of training queries, taken in an order of whole clusters drawn by the seed, so larger sizes
    contain the smaller ones of the same seed. Training stops early by validation; with fewer than `MIN_VALIDATION`
    validation queries it runs to the last step with the only configured learning rate. The best weights are kept, step
    0 included. No source trains on a text that answers a test query.

    Args:
        tables: tables of the stage `adaptation_pairs`: training, validation and test queries with labels.
        output: receives `law_points`; the fact `models` holds each encoder's costs.
        trainer: trains each grid point.
        bases: the encoders by name; the first one determines the sizes.
        settings: sizes, label sources and seeds of the grid.
        seed: seed of the sampled negatives of contrastive entropy.
        spread: runs the shards, in this process or on other machines.

    Raises:
        ArtifactError: there is no test query.
        SettingsError: a size exceeds the queries, several learning rates without enough validation queries, or size
            0 with several encoders (their law is undefined at 0).
    """
    contexts = [GridContext(tables, base, trainer, settings, seed) for base in bases.values()]
    if len(contexts) > 1 and 0 in settings.train_sizes:
        raise SettingsError("size 0 is not allowed with several encoders: remove it, or name one encoder")
    evaluators = Evaluators()
    groups = list(_groups(contexts, evaluators.get(contexts[0])))
    shards = [shard for group in groups if (shard := group.missing(output)).sizes]
    # In this process, shards share the open encoder and report progress; neither can be sent to another one.
    train = partial(train_shard, evaluators=evaluators, on_progress=output.progress) if spread is here else train_shard
    results = spread(train, shards)
    timings: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for group in groups:
        pieces = next(results) if group.missing(output).sizes else None
        with closing(pieces) if pieces else nullcontext():
            for point in group.points:
                facts = _write_point(output, group, point, pieces)
                timings.setdefault(group.context.key, []).append((point.size, facts))
    n_points = sum(len(group.sizes) for group in groups)
    output.facts["models"] = [_costs(context, timings[context.key]) for context in contexts if context.n_parameters]
    output.count(FunnelStep(POINTS_STAGE.name, "cells", n_points, "points", output.rows(POINTS_STAGE.name)))


@dataclass(frozen=True)
class _PointGroup:
    """The grid points of one encoder, source and seed.

    Attributes:
        context: the encoder and everything its grid points share.
        source: name of the label source.
        seed: seed of the grid points.
        sizes: numbers of labelled queries, as configured or ascending by default.
        basis: fingerprint of the units; a point is trained again if it changes.
    """

    context: GridContext
    source: str
    seed: int
    sizes: tuple[int, ...]
    basis: str

    @property
    def points(self) -> list[PointKey]:
        return [PointKey(self.source, size, self.seed) for size in self.sizes]

    def unit_name(self, point: PointKey) -> str:
        return f"{self.context.name}: {point.name}"

    def missing(self, output: Output) -> GridShard:
        """The shard of the points that are not trained yet."""
        points = [point for point in self.points if not output.is_done(self.unit_name(point), self.basis)]
        sizes = tuple(point.size for point in points)
        names = ", ".join(self.unit_name(point) for point in points)
        folder = f"progress/{POINTS_STAGE.name}/{output.unit_key(names, self.basis)}"
        return GridShard(self.context, self.source, self.seed, sizes, folder)


def _write_point(output: Output, group: _PointGroup, point: PointKey, pieces: Pieces | None) -> dict[str, Any]:
    """Write the next result of a shard as the point's unit, unless it is complete; returns the unit's facts."""
    with output.unit(group.unit_name(point), group.basis) as unit:
        if not unit.done:
            assert pieces is not None
            output.write(LAW_POINTS.name, next(pieces))
            unit.facts = next(pieces).to_pylist()[0]
    return unit.facts


def _groups(contexts: Sequence[GridContext], evaluator: GridEvaluator) -> Iterator[_PointGroup]:
    """All grid points in table order; sizes are those of the first encoder's tasks.

    Args:
        contexts: the encoders with what their grid points share.
        evaluator: the evaluator of the first encoder.

    Raises:
        SettingsError: a size exceeds the queries, or there are several settings but too few validation queries.
    """
    first_context = contexts[0]
    data = evaluator.data
    settings = first_context.settings
    generated = generated_in(settings)
    max_size = max(settings.train_sizes, default=0)
    if max_size > len(data.task.train):
        raise SettingsError(f"size {max_size}: there are only {len(data.task.train)} training queries")
    if not data.can_select and first_context.trainer.n_settings(first_context.base) > 1:
        n_validation = first_context.trainer.n_evaluated(len(data.task.validation))
        raise SettingsError(
            f"only {n_validation} validation queries; at least {MIN_VALIDATION} are needed to select a setting: "
            f"{first_context.trainer.advice}"
        )
    sizes = {
        (source, seed): _sizes(settings, source, len(evaluator.training_task(source, seed).train))
        for source, seed in product(settings.label_sources, range(settings.n_seeds))
    }
    for context in contexts:
        for (source, seed), source_sizes in sizes.items():
            basis = key_of(context.key, generated[source].content()) if source in generated else context.key
            yield _PointGroup(context, source, seed, tuple(source_sizes), basis)


def _sizes(settings: LawSettings, source: str, queries: int) -> list[int]:
    """Sizes of a source with this number of training queries: the configured ones, otherwise the default ones.

    Raises:
        SettingsError: a configured size exceeds the source's queries.
    """
    if max(settings.train_sizes, default=0) > queries:
        raise SettingsError(f"size {max(settings.train_sizes)}: there are only {queries} training queries of {source}")
    return list(settings.train_sizes) or default_sizes(queries)


def _costs(context: GridContext, timings: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """The fields of `ModelCost` for an encoder: medians over its grid points, the training time at the largest size.

    Args:
        context: the encoder.
        timings: size and unit facts of each of its grid points.
    """
    max_size = max(size for size, _ in timings)
    return {
        "name": context.name,
        "parameters": context.n_parameters,
        "texts": context.tables.rows("adaptation_texts"),
        "texts_per_second": float(np.median([facts["texts_per_second"] for _, facts in timings])),
        "seconds": float(np.median([facts["seconds"] for size, facts in timings if size == max_size])),
    }
