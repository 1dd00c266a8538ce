"""The trials: each setting trained or solved for, and looked at on the validation queries alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTATION_TRIALS, TRAINING_LOG

if TYPE_CHECKING:
    from darklode.pipeline.train.heads import Layers
    from darklode.pipeline.train.loop import Course
    from darklode.pipeline.train.task import Task
    from darklode.pipeline.train.vectors import Base

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
TRAIN = Stage("adaptation_trials", 1, READS, ("training_log", "adaptation_trials", "adapter_weights"))

NO_VALIDATION = "no validation query has a positive: nothing can be chosen; build or mine with more queries"

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Of the way from the base's weights to the trained ones; Wortsman et al. 2022 (WiSE-FT)."""

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
    from darklode.pipeline.train.task import Task

    frozen = base.open(tables)
    task = Task.of(tables, frozen, same_document=settings.same_document)
    if not len(task.validation):
        raise ArtifactError(NO_VALIDATION)
    basis = key_of(*(tables.content(name) for name in READS), base.identity)
    if settings.method == "closed_form":
        with output.unit("closed form", basis) as unit:
            if not unit.done:
                _solve(task, output, settings)
    else:
        for number, rate in enumerate(settings.learning_rates):
            with output.unit(f"{number}: {rate}", key_of(basis, rate)) as unit:
                if not unit.done:
                    _try(task, output, settings, _Trial(number, rate, seed))
    output.facts["pairs"] = len(task.pair_query)
    tried = output.rows(ADAPTATION_TRIALS.name)
    output.count(FunnelStep("adaptation_trials", "queries to learn from", len(task.train), "settings tried", tried))


@dataclass(frozen=True)
class _Trial:
    number: int
    rate: float
    seed: int


def _try(task: Task, output: Output, settings: AdaptSettings, trial: _Trial) -> None:
    from darklode.pipeline.train.heads import as_rows
    from darklode.pipeline.train.loop import trained

    trials = len(settings.learning_rates)

    def tell(step: int, seen: str) -> None:
        done = trial.number * settings.steps + step
        output.progress(done, trials * settings.steps, f"rate {trial.rate:g}: {seen}")

    course = trained(task, settings, trial.rate, trial.seed, tell)
    output.write(TRAINING_LOG.name, _log(trial.number, course))
    output.write(
        ADAPTATION_TRIALS.name, _trials(f"{trial.rate:g}", trial.number, course, _reach(task, course.best, SHARES))
    )
    output.write("adapter_weights", as_rows(trial.number, course.best))


def _solve(task: Task, output: Output, settings: AdaptSettings) -> None:
    from darklode.pipeline.train.closed_form import RIDGES, STEPS, solutions
    from darklode.pipeline.train.heads import as_rows
    from darklode.pipeline.train.loop import Course, steady
    from darklode.pipeline.train.negatives import mine

    with steady(0):
        negatives = mine(task, task.train.vectors, settings)
        for number, (ridge, weights) in enumerate(solutions(task, negatives, settings)):
            reached = _reach(task, weights, STEPS)
            output.write(ADAPTATION_TRIALS.name, _trials(f"{ridge:g}", number, Course(), reached))
            output.write("adapter_weights", as_rows(number, weights))
            output.progress(
                number + 1, len(RIDGES), f"ridge {ridge:g}: validation {max(value for _, value in reached):.4f}"
            )


def _reach(task: Task, weights: Layers, shares: Iterable[float]) -> list[tuple[float, float]]:
    """Share and nDCG@10 on validation; the base first."""
    from darklode.pipeline.train.heads import Head

    whole, found = Head.of(weights), [(0.0, task.validation.reached(task.frozen, task.validation.vectors))]
    for share in shares:
        vectors = Head.of(whole.weights(share)).apply_to(task.validation.vectors)
        found.append((share, task.validation.reached(task.frozen, vectors)))
    return found


def _log(number: int, course: Course) -> pa.Table:
    rows = [{"trial": number, **asdict(look)} for look in course.looks]
    return pa.Table.from_pylist(rows, schema=TRAINING_LOG.schema)


def _trials(setting: str, number: int, course: Course, reached: Iterable[tuple[float, float]]) -> pa.Table:
    about = {"trial": number, "setting": setting, "step": course.step, "stopped": course.stopped}
    rows = [about | {"share": share, "validation": value} for share, value in reached]
    return pa.Table.from_pylist(rows, schema=ADAPTATION_TRIALS.schema)


def chosen(tables: Tables) -> tuple[Row, Layers]:
    """The trial that is best on validation, and its weights at its share; of equals the nearest to the base.

    Args:
        tables: holds `adaptation_trials` and `adapter_weights`.
    """
    from darklode.pipeline.train.heads import Head, from_rows

    rows = tables.sql("SELECT * FROM adaptation_trials ORDER BY validation DESC, share, trial").to_pylist()
    weights = tables.read("adapter_weights")
    best: Row = rows[0]
    mine = from_rows(weights.filter(pc.equal(weights["trial"], best["trial"])))
    return best, Head.of(mine).weights(best["share"])
