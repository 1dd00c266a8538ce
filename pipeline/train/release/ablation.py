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
from darklode.pipeline.train.fit.term_start import PREFIX
from darklode.pipeline.train.release.evaluation import DEPTH
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.comparison_tables import COMPARISON_LISTS

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import QuerySet, Task
    from darklode.pipeline.train.data.vectors import FrozenIndex
    from darklode.pipeline.train.fit.methods import Method
    from darklode.pipeline.train.fit.model_selection import ValidationScore
    from darklode.pipeline.train.release.baselines import Baseline
    from darklode.pipeline.train.types import Weights

PAIR_TABLES = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
ABLATION_STAGE = Stage("adapt_compare", 10, (*PAIR_TABLES, "term_queries"), (COMPARISON_LISTS.name,))


def compare(
    tables: Tables, output: Output, settings: AdaptSettings, base: BaseEncoder, *, methods: list[str], seeds: int
) -> None:
    """Train each baseline with each seed, select as `adapt` does, and write its rankings of the test queries.

    One resumable unit per baseline and seed; its facts record the selection and the cost. If the base is preferred, the
    rankings are those of the base.

    Args:
        tables: the tables of `adaptation_pairs`, and `term_queries`.
        output: receives `comparison_lists`; its fact `asked` counts how often the test queries were ranked.
        settings: settings that all methods share.
        base: the encoder to adapt.
        methods: names of the methods.
        seeds: number of seeds.

    Raises:
        ArtifactError: there is nothing to select on, or no test query.
    """
    from darklode.pipeline.train.data.dataset import QuerySet, Task
    from darklode.pipeline.train.fit.model_selection import selection_queries
    from darklode.pipeline.train.release.baselines import baselines, reference_systems
    from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings

    frozen = base.open(tables)
    task = Task.from_tables(tables, frozen, same_document=settings.allow_same_document_negatives)
    queries = QuerySet.from_tables(tables, frozen, "test")
    if not len(queries):
        raise ArtifactError("no test query has a positive, so methods cannot be compared")
    inputs_key = key_of(*(tables.content(name) for name in ABLATION_STAGE.reads), base.identity)
    bm25 = Bm25Rankings(base, frozen)
    tenant = tables.read("adaptation_queries", ["tenant"])["tenant"][0].as_py()
    with output.unit("bounds", inputs_key) as unit:
        if not unit.done:
            for name, lists in reference_systems(task, bm25, selection_queries(task), queries).items():
                _write(output, tenant, (name, 0), lists)
    for baseline in baselines(settings, methods, bm25, len(task.train)):
        for seed in range(seeds if baseline.is_random else 1):
            with output.unit(f"{baseline.name}, seed {seed}", key_of(inputs_key, seed)) as unit:
                if not unit.done:
                    lists, unit.facts = _SeededBaseline(baseline, seed, base, output).fit_and_rank(task, queries)
                    _write(output, tenant, (baseline.name, seed), lists)
    rows = output.rows(COMPARISON_LISTS.name)
    output.facts["asked"] = sum(bool(unit["facts"]) for unit in output.units.values())
    output.count(FunnelStep(ABLATION_STAGE.name, "test queries", len(queries), "places in lists", rows))


@dataclass(frozen=True)
class _SeededBaseline:
    """A baseline with one seed."""

    baseline: Baseline
    seed: int
    base: BaseEncoder
    output: Output

    def fit_and_rank(self, task: Task, queries: QuerySet) -> tuple[pa.Table, dict[str, Any]]:
        """Rankings of the test queries by the selected model, and the facts of the selection."""
        from darklode.pipeline.train.fit.model_selection import folds, without_shared_positives

        start_time, peak, parts = time.process_time(), PeakMemory(), folds(task, self.seed)
        method = self.method
        choice = (
            self._select_on_folds(task, parts) if parts else self._select_on_validation(without_shared_positives(task))
        )
        lists = self._lists(method, choice, task.frozen, queries)
        chosen = f"{method.setting_name} {choice.setting:g} × {choice.score.share:g}"
        return lists, {
            "system": self.baseline.name,
            "seed": self.seed,
            "chosen": chosen if choice.score.share else "base",
            "reached": choice.score.value,
            "on_queries": choice.score.queries,
            "folds": len(parts) or None,
            "seconds": round(time.process_time() - start_time, 1),
            "peak_mb": peak.megabytes(),
            "gpu_peak_mb": peak.gpu_megabytes(),
            "trained": sum(tensor.size for name, tensor in choice.weights.items() if not name.startswith(PREFIX)),
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
        return self.baseline.method(self.baseline.settings, self.base)

    def _fit(self, task: Task, method: Method, setting: float, where: str = "") -> Weights:
        name = f"{self.baseline.name}, seed {self.seed}, {where}{method.setting_name} {setting:g}"

        def on_step(step: int, message: str) -> None:
            self.output.progress(step, self.baseline.settings.n_steps, f"{name}: {message}")

        return method.fit(task, setting, self.seed, on_step).best_weights

    def _select_on_validation(self, task: Task) -> _SelectedModel:
        from darklode.pipeline.train.fit.model_selection import best_score, preference, score_shares

        labelled_task, method = self.baseline.labels(task, self.seed), self.method

        def train(setting: float) -> _SelectedModel:
            weights = self._fit(labelled_task, method, setting)
            return _SelectedModel(setting, best_score(score_shares(task, method, weights)), weights)

        return max(map(train, method.hyperparameters), key=lambda model: preference(model.score))

    def _select_on_folds(self, task: Task, folds: Sequence[Task]) -> _SelectedModel:
        from darklode.pipeline.train.fit.model_selection import (
            average_folds,
            best_score,
            best_setting,
            full_training,
            score_shares,
        )

        fold_scores: list[list[list[ValidationScore]]] = []
        for number, fold in enumerate(folds, 1):
            labelled_task, method = self.baseline.labels(fold, self.seed), self.method
            weights = (
                self._fit(labelled_task, method, setting, f"fold {number}, ") for setting in method.hyperparameters
            )
            fold_scores.append([score_shares(fold, method, setting_weights) for setting_weights in weights])
        method = self.method
        bests = [best_score(average_folds(scores_of_setting)) for scores_of_setting in zip(*fold_scores, strict=True)]
        number = best_setting(bests)
        labelled_task, setting = self.baseline.labels(full_training(task), self.seed), method.hyperparameters[number]
        return _SelectedModel(setting, bests[number], self._fit(labelled_task, method, setting))


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
