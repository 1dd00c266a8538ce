"""The trials: each setting trained or solved for, and looked at on the validation queries alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.weights import as_rows, from_rows
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTATION_TRIALS, ADAPTER_WEIGHTS, TRAINING_LOG

if TYPE_CHECKING:
    from darklode.pipeline.train.loop import Course
    from darklode.pipeline.train.methods import Method
    from darklode.pipeline.train.task import Task
    from darklode.pipeline.train.vectors import Base
    from darklode.pipeline.train.weights import Weights

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
TRAIN = Stage("adaptation_trials", 4, READS, ("training_log", "adaptation_trials", "adapter_weights"))

NO_VALIDATION = "no validation query has a positive: nothing can be chosen; build or mine with more queries"

Row = dict[str, Any]


def train(tables: Tables, output: Output, settings: AdaptSettings, base: Base, *, seed: int) -> None:
    """Try each learning rate, or each ridge, and write how it went, what it reached and its weights.

    One unit a trial. The base itself is a trial, too: with a share of 0.

    Args:
        tables: those of `adaptation_pairs`.
        output: takes `training_log`, `adaptation_trials` and `adapter_weights`.
        settings: method, loss, negatives, steps and learning rates.
        base: the encoder that is adapted.
        seed: of all draws.

    Raises:
        ArtifactError: there is no validation query to choose on.
    """
    from darklode.pipeline.train.methods import method_of
    from darklode.pipeline.train.task import Task

    task = Task.of(tables, base.open(tables), same_document=settings.same_document)
    if not len(task.validation):
        raise ArtifactError(NO_VALIDATION)
    method = method_of(settings, base)
    basis = key_of(*(tables.content(name) for name in READS), base.identity)
    for number, setting in enumerate(method.tried):
        with output.unit(f"{number}: {setting}", key_of(basis, setting)) as unit:
            if not unit.done:
                _try(task, output, method, number, (settings.steps, seed))
    output.facts["pairs"] = len(task.pair_query)
    tried = output.rows(ADAPTATION_TRIALS.name)
    output.count(FunnelStep("adaptation_trials", "queries to learn from", len(task.train), "settings tried", tried))


def _try(task: Task, output: Output, method: Method, number: int, steps_and_seed: tuple[int, int]) -> None:
    steps, seed = steps_and_seed
    setting = method.tried[number]

    def tell(step: int, seen: str) -> None:
        output.progress(number * steps + step, len(method.tried) * steps, f"{method.about} {setting:g}: {seen}")

    course = method.trained(task, setting, seed, tell)
    output.write(TRAINING_LOG.name, _log(number, course))
    output.write(ADAPTATION_TRIALS.name, _trials(f"{setting:g}", number, course, _reach(task, method, course.best)))
    output.write(ADAPTER_WEIGHTS.name, as_rows(number, course.best))


def _reach(task: Task, method: Method, weights: Weights) -> list[tuple[float, float]]:
    """Share and nDCG@10 on validation; the base first."""
    asked, found = task.validation, [(0.0, task.validation.reached(task.frozen, task.validation.vectors))]
    for share in method.shares:
        found.append((share, asked.reached(task.frozen, method.vectors(weights, share, asked))))
    return found


def _log(number: int, course: Course) -> pa.Table:
    rows = [{"trial": number, **asdict(look)} for look in course.looks]
    return pa.Table.from_pylist(rows, schema=TRAINING_LOG.schema)


def _trials(setting: str, number: int, course: Course, reached: Iterable[tuple[float, float]]) -> pa.Table:
    about = {"trial": number, "setting": setting, "step": course.step, "stopped": course.stopped}
    rows = [about | {"share": share, "validation": value} for share, value in reached]
    return pa.Table.from_pylist(rows, schema=ADAPTATION_TRIALS.schema)


def best(tables: Tables) -> Row:
    """The trial that is best on validation; of equals the one nearest to the base.

    Args:
        tables: holds `adaptation_trials`.
    """
    rows = tables.sql("FROM adaptation_trials ORDER BY validation DESC, share, trial LIMIT 1").to_pylist()
    return dict(rows[0])


def chosen(tables: Tables) -> tuple[Row, Weights]:
    """The best trial, and all that it trained.

    Args:
        tables: holds `adaptation_trials` and `adapter_weights`.
    """
    row = best(tables)
    return row, from_rows(tables.sql("FROM adapter_weights WHERE trial = $1 ORDER BY tensor, row", [row["trial"]]))
