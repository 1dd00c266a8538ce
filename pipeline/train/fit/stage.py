"""The stage `train`: one trial per setting, evaluated on validation queries or on cross-validation folds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.types import Row
from darklode.pipeline.train.fit.term_start import PREFIX
from darklode.pipeline.train.fit.weights import as_rows, load_weights
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTATION_TRIALS, ADAPTER_WEIGHTS, TRAINING_LOG

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.fit.hybrid_selection import HybridScorer
    from darklode.pipeline.train.fit.methods import Method
    from darklode.pipeline.train.fit.model_selection import ValidationScore
    from darklode.pipeline.train.types import OnStep, Weights

PARAMETER_COUNT_SQL = f"""
    SELECT CAST(coalesce(max(parameters), 0) AS BIGINT) AS parameters FROM (
        SELECT sum(len(weights)) AS parameters FROM adapter_weights
        WHERE NOT starts_with(tensor, '{PREFIX}') GROUP BY trial
    )
"""
"""Parameters of the largest trial; an untrained one may have fewer."""

PAIR_TABLES = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
TRAIN_STAGE = Stage(
    "adaptation_trials",
    13,
    (*PAIR_TABLES, "term_queries", "headroom", "lexical_rankings"),
    ("training_log", "adaptation_trials", "adapter_weights"),
)


def train(tables: Tables, output: Output, settings: AdaptSettings, base: BaseEncoder, *, seed: int) -> None:
    """Try each learning rate (or ridge) and write history, validation scores and weights.

    One resumable unit per trial. The base is a trial, too, with share 0. Validation queries that share a positive with
    training do not count. With fewer than `MIN_VALIDATION` others, each setting is trained on every fold, one unit
    each, and the setting with the best held-out score is trained on all train queries.

    Args:
        tables: the tables of `adaptation_pairs`, `term_vectors` and `headroom`.
        output: receives `training_log`, `adaptation_trials` and `adapter_weights`; its fact `parameters` is the number
            of trained parameters.
        settings: method, loss, negatives, steps, learning rates, and how the encoder will be served: for hybrid
            search, the fused ranking selects the setting.
        base: the encoder to adapt.
        seed: seed of all random draws, folds included.

    Raises:
        ArtifactError: there is nothing to select on.
    """
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.fit.hybrid_selection import HybridScorer
    from darklode.pipeline.train.fit.model_selection import folds, without_shared_positives

    task = Task.from_tables(tables, base.open(tables), same_document=settings.allow_same_document_negatives)
    hybrid, contents = None, [tables.content(name) for name in (*PAIR_TABLES, "term_queries")]
    if settings.serve_as == "hybrid":
        hybrid = HybridScorer.from_tables(tables)
        contents += [tables.content(name) for name in ("headroom", "lexical_rankings")]
    inputs_key = key_of(*contents, base.identity)
    if parts := folds(task, seed):
        _Trials(task, output, settings, base, inputs_key, seed, hybrid).run_on_folds(parts)
    else:
        _Trials(without_shared_positives(task), output, settings, base, inputs_key, seed, hybrid).run_on_validation()
    output.facts["pairs"] = len(task.pair_query)
    parameters = output.current_tables(ADAPTER_WEIGHTS.name).sql(PARAMETER_COUNT_SQL)["parameters"]
    output.facts["parameters"] = int(parameters[0].as_py())
    n_trials = output.rows(ADAPTATION_TRIALS.name)
    output.count(FunnelStep("adaptation_trials", "queries to learn from", len(task.train), "settings tried", n_trials))


@dataclass(frozen=True)
class _Trials:
    """What all trials share."""

    task: Task
    output: Output
    settings: AdaptSettings
    base: BaseEncoder
    basis: str
    seed: int
    hybrid: HybridScorer | None

    @property
    def method(self) -> Method:
        """A new instance each time, because a method caches what it computed of a task."""
        from darklode.pipeline.train.fit.method_registry import create_method

        return create_method(self.settings, self.base)

    def run_on_validation(self) -> None:
        method = self.method
        for number, setting in enumerate(method.hyperparameters):
            with self.output.unit(f"{number}: {setting}", key_of(self.basis, setting)) as unit:
                if not unit.done:
                    self._run_trial(method, number)

    def _run_trial(self, method: Method, number: int) -> None:
        from darklode.pipeline.train.fit.model_selection import score_shares

        setting = method.hyperparameters[number]
        on_step = self._progress(method, number, number, len(method.hyperparameters))
        history = method.fit(self.task, setting, self.seed, on_step)
        self.output.write(TRAINING_LOG.name, _log(number, [asdict(point) for point in history.eval_points]))
        row = {"trial": number, "setting": f"{setting:g}", "step": history.step, "stopped": history.stopped}
        scores = score_shares(self.task, method, history.best_weights, self.hybrid)
        self.output.write(ADAPTATION_TRIALS.name, _trials(row, scores))
        self.output.write(ADAPTER_WEIGHTS.name, as_rows(number, history.best_weights))

    def run_on_folds(self, parts: list[Task]) -> None:
        from darklode.pipeline.train.fit.model_selection import (
            ValidationScore,
            average_folds,
            best_score,
            best_setting,
            full_training,
        )

        facts = [self._fold(parts, number) for number in range(len(parts))]
        method, bests = self.method, list[ValidationScore]()
        for number, setting in enumerate(method.hyperparameters):
            fold_rows = [fold_facts[number] for fold_facts in facts]
            scores = average_folds(
                [[ValidationScore(*values) for values in fold_facts["reached"]] for fold_facts in fold_rows]
            )
            row = {"trial": number, "setting": f"{setting:g}", "step": self.settings.n_steps, "folds": len(parts)}
            self.output.write(TRAINING_LOG.name, _log(number, _mean([fold_facts["looks"] for fold_facts in fold_rows])))
            self.output.write(ADAPTATION_TRIALS.name, _trials(row, scores))
            bests.append(best_score(scores))
        number = best_setting(bests)
        with self.output.unit("all", key_of(self.basis, method.hyperparameters[number])) as unit:
            if not unit.done:
                trials = len(parts) * len(method.hyperparameters)
                on_step = self._progress(method, number, trials, trials + 1)
                history = method.fit(full_training(self.task), method.hyperparameters[number], self.seed, on_step)
                self.output.write(ADAPTER_WEIGHTS.name, as_rows(number, history.best_weights))

    def _fold(self, parts: list[Task], number: int) -> list[Row]:
        """Scores and histories of every setting on one fold."""
        from darklode.pipeline.train.fit.model_selection import score_shares

        method, rows = self.method, []
        for trial, setting in enumerate(method.hyperparameters):
            with self.output.unit(f"fold {number}, {trial}: {setting}", key_of(self.basis, setting, number)) as unit:
                if not unit.done:
                    n_settings = len(method.hyperparameters)
                    done, trials = number * n_settings + trial, len(parts) * n_settings + 1
                    on_step = self._progress(method, trial, done, trials, f"fold {number + 1}, ")
                    history = method.fit(parts[number], setting, self.seed, on_step)
                    scores = score_shares(parts[number], method, history.best_weights, self.hybrid)
                    unit.facts = {
                        "reached": [astuple(score) for score in scores],
                        "looks": [asdict(point) for point in history.eval_points],
                    }
            rows.append(unit.facts)
        return rows

    def _progress(self, method: Method, number: int, done: int, trials: int, where: str = "") -> OnStep:
        """Progress callback of a trial; `done` of `trials` trials came before it."""
        steps, setting = self.settings.n_steps, method.hyperparameters[number]

        def on_step(step: int, message: str) -> None:
            name = f"{where}{method.setting_name} {setting:g}"
            self.output.progress(done * steps + step, trials * steps, f"{name}: {message}")

        return on_step


def _log(number: int, points: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([{"trial": number, **point} for point in points], schema=TRAINING_LOG.schema)


def _mean(folds: Sequence[list[Row]]) -> list[Row]:
    """Mean over folds of the evaluations at each step."""
    return [
        {
            name: None if value is None else sum(point[name] for point in points) / len(points)
            for name, value in points[0].items()
        }
        for points in zip(*folds, strict=True)
    ]


def _trials(about: Row, scores: Iterable[ValidationScore]) -> pa.Table:
    rows = [about | {"share": score.share, "validation": score.value, "queries": score.queries} for score in scores]
    return pa.Table.from_pylist(rows, schema=ADAPTATION_TRIALS.schema)


def best_trial(tables: Tables) -> Row:
    """The trial with the best validation score; ties go to the one nearest to the base.

    Args:
        tables: `adaptation_trials`.
    """
    rows = tables.sql("FROM adaptation_trials ORDER BY validation DESC, share, trial LIMIT 1").to_pylist()
    return dict(rows[0])


def load_best_trial(tables: Tables) -> tuple[Row, Weights]:
    """The best trial and its weights.

    Args:
        tables: `adaptation_trials` and `adapter_weights`.
    """
    row = best_trial(tables)
    return row, load_weights(tables, row["trial"])
