"""Ablation: train several methods with several seeds on the same queries, and rank the test queries once per selected
model.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.fit.peak_memory import PeakMemory
from darklode.pipeline.train.release.evaluation import DEPTH
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import COMPARISON_LISTS

if TYPE_CHECKING:
    from darklode.pipeline.train.data.dataset import QuerySet, Task
    from darklode.pipeline.train.data.vectors import BaseEncoder, FrozenIndex
    from darklode.pipeline.train.fit.baselines import Baseline
    from darklode.pipeline.train.fit.loop import Tell
    from darklode.pipeline.train.fit.methods import Method
    from darklode.pipeline.train.fit.model_selection import ValidationScore
    from darklode.pipeline.train.fit.weights import Weights

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
COMPARED = Stage("adapt_compare", 4, READS, (COMPARISON_LISTS.name,))


def compare(
    tables: Tables, output: Output, settings: AdaptSettings, base: BaseEncoder, *, methods: list[str], seeds: int
) -> None:
    """Train each baseline with each seed, select as `adapt` does, and write its rankings of the test queries.

    One resumable unit per baseline and seed; its facts record the selection and the cost. If the base is preferred, the
    rankings are those of the base.

    Args:
        tables: of `adaptation_pairs`.
        output: `comparison_lists`; the fact `queries` counts how often the test queries were ranked.
        settings: shared by all methods.
        base: the encoder to adapt.
        methods: their names.
        seeds: number of seeds.

    Raises:
        ArtifactError: there is nothing to select on, or no test query.
    """
    from darklode.pipeline.train.data.dataset import QuerySet, Task
    from darklode.pipeline.train.fit.baselines import Bm25Baseline, baselines, reference_systems

    frozen = base.open(tables)
    task = Task.from_tables(tables, frozen, same_document=settings.allow_same_document_negatives)
    queries = QuerySet.from_tables(tables, frozen, "test")
    if not len(queries):
        raise ArtifactError("no test query has a positive: nothing can be compared")
    basis, words = key_of(*(tables.content(name) for name in READS), base.identity), Bm25Baseline(base, frozen)
    tenant = tables.read("adaptation_queries", ["tenant"])["tenant"][0].as_py()
    with output.unit("bounds", basis) as unit:
        if not unit.done:
            for name, lists in reference_systems(queries, frozen, words).items():
                _write(output, tenant, (name, 0), lists)
    for rival in baselines(settings, methods, words):
        for seed in range(seeds if rival.drawn else 1):
            with output.unit(f"{rival.name}, seed {seed}", key_of(basis, seed)) as unit:
                if not unit.done:
                    lists, unit.facts = _Baseline(rival, seed, base, output).fit_and_rank(task, queries)
                    _write(output, tenant, (rival.name, seed), lists)
    rows = output.rows(COMPARISON_LISTS.name)
    output.facts["asked"] = sum(bool(unit["facts"]) for unit in output.units.values())
    output.count(FunnelStep(COMPARED.name, "test queries", len(queries), "places in lists", rows))


@dataclass(frozen=True)
class _Baseline:
    """A baseline with one seed."""

    rival: Baseline
    seed: int
    base: BaseEncoder
    output: Output

    def fit_and_rank(self, task: Task, queries: QuerySet) -> tuple[pa.Table, dict[str, Any]]:
        """Rankings of the test queries by the selected model, and the facts of the selection."""
        from darklode.pipeline.train.fit.model_selection import folds

        began, peak, parts = time.process_time(), PeakMemory(), folds(task, self.seed)
        method = self.method
        choice = self._by_folds(task, parts) if parts else self._by_validation(task)
        lists = self._lists(method, choice, task.frozen, queries)
        return lists, {
            "system": self.rival.name,
            "seed": self.seed,
            "chosen": f"{method.about} {choice.setting:g} × {choice.score.share:g}" if choice.score.share else "base",
            "reached": choice.score.value,
            "on_queries": choice.score.queries,
            "folds": len(parts) or None,
            "seconds": round(time.process_time() - began, 1),
            "peak_mb": peak.megabytes(),
            "trained": sum(tensor.size for tensor in choice.weights.values()),
        }

    def _lists(self, method: Method, choice: _SelectedModel, frozen: FrozenIndex, queries: QuerySet) -> pa.Table:
        share = choice.score.share
        if not share:
            return queries.ranking(frozen, queries.vectors, DEPTH)
        searched = method.transform_index(frozen, choice.weights, share)
        return queries.ranking(searched, method.vectors(choice.weights, share, queries), DEPTH)

    @property
    def method(self) -> Method:
        """A new instance each time, because a method caches what it computed of a task."""
        return self.rival.method(self.rival.settings, self.base)

    def _by_validation(self, task: Task) -> _SelectedModel:
        from darklode.pipeline.train.fit.model_selection import best_score, preference, score_shares

        taught, method = self.rival.labels(task, self.seed), self.method
        choice: _SelectedModel | None = None
        for setting in method.hyperparameters:
            weights = method.fit(taught, setting, self.seed, self._tell(method, setting)).best_weights
            candidate = _SelectedModel(setting, best_score(score_shares(task, method, weights)), weights)
            if choice is None or preference(candidate.score) > preference(choice.score):
                choice = candidate
        assert choice is not None
        return choice

    def _by_folds(self, task: Task, parts: Sequence[Task]) -> _SelectedModel:
        from darklode.pipeline.train.fit.model_selection import (
            average_folds,
            best_score,
            best_setting,
            full_training,
            score_shares,
        )

        fold_scores: list[list[list[ValidationScore]]] = []
        for number, part in enumerate(parts):
            taught, method = self.rival.labels(part, self.seed), self.method
            tells = [self._tell(method, setting, f"fold {number + 1}, ") for setting in method.hyperparameters]
            each = zip(method.hyperparameters, tells, strict=True)
            fold_scores.append(
                [
                    score_shares(part, method, method.fit(taught, candidate, self.seed, tell).best_weights)
                    for candidate, tell in each
                ]
            )
        method = self.method
        bests = [best_score(average_folds(scores)) for scores in zip(*fold_scores, strict=True)]
        number = best_setting(bests)
        taught, setting = self.rival.labels(full_training(task), self.seed), method.hyperparameters[number]
        return _SelectedModel(
            setting, bests[number], method.fit(taught, setting, self.seed, self._tell(method, setting)).best_weights
        )

    def _tell(self, method: Method, setting: float, where: str = "") -> Tell:
        about = f"{self.rival.name}, seed {self.seed}, {where}{method.about} {setting:g}"
        return lambda step, message: self.output.progress(step, self.rival.settings.max_steps, f"{about}: {message}")


@dataclass(frozen=True)
class _SelectedModel:
    """A setting, its best score, and its weights."""

    setting: float
    score: ValidationScore
    weights: Weights


def _write(output: Output, tenant: str, name_and_seed: tuple[str, int], lists: pa.Table) -> None:
    rows = lists.filter(pc.less_equal(lists["rank"], DEPTH))
    about = {
        name: pa.repeat(value, rows.num_rows) for name, value in zip(("system", "seed"), name_and_seed, strict=True)
    }
    columns = {name: rows[name] for name in ("query_id", "rank", "text_id")}
    tenants = {"tenant": pa.repeat(tenant, rows.num_rows)}
    output.write(COMPARISON_LISTS.name, COMPARISON_LISTS.rows(tenants | about | columns))
