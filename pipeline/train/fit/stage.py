"""The stage `train`: one trial per setting, evaluated on validation queries or on cross-validation folds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.train.fit.weights import as_rows, from_rows
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTATION_TRIALS, ADAPTER_WEIGHTS, TRAINING_LOG

if TYPE_CHECKING:
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.data.vectors import BaseEncoder
    from darklode.pipeline.train.fit.loop import Tell
    from darklode.pipeline.train.fit.methods import Method
    from darklode.pipeline.train.fit.model_selection import ValidationScore
    from darklode.pipeline.train.fit.weights import Weights

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
TRAIN = Stage("adaptation_trials", 6, READS, ("training_log", "adaptation_trials", "adapter_weights"))

Row = dict[str, Any]


def train(tables: Tables, output: Output, settings: AdaptSettings, base: BaseEncoder, *, seed: int) -> None:
    """Try each learning rate (or ridge) and write history, validation scores and weights.

    One resumable unit per trial. The base is a trial, too, with share 0. With fewer validation queries than `ENOUGH`,
    each
    setting is trained on every fold, one unit each, and the setting with the best held-out score is trained on all
    train
    queries.

    Args:
        tables: of `adaptation_pairs`.
        output: `training_log`, `adaptation_trials` and `adapter_weights`.
        settings: method, loss, negatives, steps and learning rates.
        base: the encoder to adapt.
        seed: of all random draws, folds included.

    Raises:
        ArtifactError: there is nothing to select on.
    """
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.fit.model_selection import folds

    task = Task.from_tables(tables, base.open(tables), same_document=settings.allow_same_document_negatives)
    basis = key_of(*(tables.content(name) for name in READS), base.identity)
    trials, parts = _Trials(task, output, settings, base, basis, seed), folds(task, seed)
    if parts:
        trials.on_folds(parts)
    else:
        trials.on_validation()
    output.facts["pairs"] = len(task.pair_query)
    tried = output.rows(ADAPTATION_TRIALS.name)
    output.count(FunnelStep("adaptation_trials", "queries to learn from", len(task.train), "settings tried", tried))


@dataclass(frozen=True)
class _Trials:
    """What all trials share."""

    task: Task
    output: Output
    settings: AdaptSettings
    base: BaseEncoder
    basis: str
    seed: int

    @property
    def method(self) -> Method:
        """A new instance each time, because a method caches what it computed of a task."""
        from darklode.pipeline.train.fit.methods import method_of

        return method_of(self.settings, self.base)

    def on_validation(self) -> None:
        method = self.method
        for number, setting in enumerate(method.hyperparameters):
            with self.output.unit(f"{number}: {setting}", key_of(self.basis, setting)) as unit:
                if not unit.done:
                    self._try(method, number)

    def _try(self, method: Method, number: int) -> None:
        from darklode.pipeline.train.fit.model_selection import score_shares

        tell = self._tell(method, number, number, len(method.hyperparameters))
        course = method.fit(self.task, method.hyperparameters[number], self.seed, tell)
        self.output.write(TRAINING_LOG.name, _log(number, [asdict(look) for look in course.eval_points]))
        row = {
            "trial": number,
            "setting": f"{method.hyperparameters[number]:g}",
            "step": course.step,
            "stopped": course.stopped,
        }
        self.output.write(ADAPTATION_TRIALS.name, _trials(row, score_shares(self.task, method, course.best_weights)))
        self.output.write(ADAPTER_WEIGHTS.name, as_rows(number, course.best_weights))

    def on_folds(self, parts: list[Task]) -> None:
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
            row = {"trial": number, "setting": f"{setting:g}", "step": self.settings.max_steps, "folds": len(parts)}
            self.output.write(TRAINING_LOG.name, _log(number, _mean([fold_facts["looks"] for fold_facts in fold_rows])))
            self.output.write(ADAPTATION_TRIALS.name, _trials(row, scores))
            bests.append(best_score(scores))
        number = best_setting(bests)
        with self.output.unit("all", key_of(self.basis, method.hyperparameters[number])) as unit:
            if not unit.done:
                trials = len(parts) * len(method.hyperparameters)
                tell = self._tell(method, number, trials, trials + 1)
                weights = method.fit(
                    full_training(self.task), method.hyperparameters[number], self.seed, tell
                ).best_weights
                self.output.write(ADAPTER_WEIGHTS.name, as_rows(number, weights))

    def _fold(self, parts: list[Task], number: int) -> list[Row]:
        """Scores and histories of every setting on one fold."""
        from darklode.pipeline.train.fit.model_selection import score_shares

        method, rows = self.method, []
        for trial, setting in enumerate(method.hyperparameters):
            with self.output.unit(f"fold {number}, {trial}: {setting}", key_of(self.basis, setting, number)) as unit:
                if not unit.done:
                    done, trials = (
                        number * len(method.hyperparameters) + trial,
                        len(parts) * len(method.hyperparameters),
                    )
                    tell = self._tell(method, trial, done, trials + 1, f"fold {number + 1}, ")
                    course = method.fit(parts[number], setting, self.seed, tell)
                    score_rows = [astuple(score) for score in score_shares(parts[number], method, course.best_weights)]
                    unit.facts = {"reached": score_rows, "looks": [asdict(look) for look in course.eval_points]}
            rows.append(unit.facts)
        return rows

    def _tell(self, method: Method, number: int, done: int, trials: int, where: str = "") -> Tell:
        """Progress callback of a trial; `done` of `trials` trials came before it."""
        steps, setting = self.settings.max_steps, method.hyperparameters[number]

        def tell(step: int, message: str) -> None:
            self.output.progress(done * steps + step, trials * steps, f"{where}{method.about} {setting:g}: {message}")

        return tell


def _log(number: int, looks: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([{"trial": number, **look} for look in looks], schema=TRAINING_LOG.schema)


def _mean(folds: Sequence[list[Row]]) -> list[Row]:
    """Mean over folds of the evaluations at each step."""
    return [
        {name: None if look[0][name] is None else sum(point[name] for point in look) / len(look) for name in look[0]}
        for look in zip(*folds, strict=True)
    ]


def _trials(about: Row, scores: Iterable[ValidationScore]) -> pa.Table:
    rows = [about | {"share": score.share, "validation": score.value, "queries": score.queries} for score in scores]
    return pa.Table.from_pylist(rows, schema=ADAPTATION_TRIALS.schema)


def best(tables: Tables) -> Row:
    """The trial with the best validation score; ties go to the one nearest to the base.

    Args:
        tables: `adaptation_trials`.
    """
    rows = tables.sql("FROM adaptation_trials ORDER BY validation DESC, share, trial LIMIT 1").to_pylist()
    return dict(rows[0])


def chosen(tables: Tables) -> tuple[Row, Weights]:
    """The best trial and its weights.

    Args:
        tables: `adaptation_trials` and `adapter_weights`.
    """
    row = best(tables)
    return row, from_rows(tables.sql("FROM adapter_weights WHERE trial = $1 ORDER BY tensor, row", [row["trial"]]))
