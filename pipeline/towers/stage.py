"""The stage `distil`: one student per learning rate, evaluated on held-out queries."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, State, Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Row
from darklode.pipeline.train.fit.weights import as_rows, load_weights
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS
from darklode.schemas.tower_tables import DISTILLATION_LOG, DISTILLATION_TRIALS, TOWER_QUERIES
from darklode.schemas.towers import DistillSettings

if TYPE_CHECKING:
    from darklode.pipeline.towers.distillation import DistillationEval, DistillationTask
    from darklode.pipeline.towers.student import Student
    from darklode.pipeline.towers.teacher_student import TeacherPair
    from darklode.pipeline.train.data.dataset import QuerySet
    from darklode.pipeline.train.fit.trial import TrainingHistory

READS = (TOWER_QUERIES.name,)
DISTIL_STAGE = Stage(
    "distillation_trials", 3, READS, (DISTILLATION_LOG.name, DISTILLATION_TRIALS.name, ADAPTER_WEIGHTS.name)
)

TEACHER_BLOCK = 1 << 13
"""Queries whose teacher vectors are requested together, so that all are cached before training starts."""


def distil(tables: Tables, output: Output, settings: DistillSettings, pair: TeacherPair, *, seed: int) -> None:
    """Train a student with each learning rate; write history, distances and weights.

    The teacher encodes each query once, into the cache. Each trial is a resumable unit that continues from its last
    checkpoint.

    Args:
        tables: has `tower_queries`.
        output: receives `distillation_log`, `distillation_trials` and `adapter_weights`.
        settings: number of steps, batch size and learning rates.
        pair: the teacher and the initial student.
        seed: seed of the order of queries and of the sample that initializes the projection.

    Raises:
        ArtifactError: there are too few queries to hold any out.
    """
    from darklode.pipeline.towers.distillation import DistillationTask

    validation = query_set(tables, pair, "validation")
    if not len(validation):
        raise ArtifactError("there are fewer than ten queries: none can be held out for evaluation")
    task = DistillationTask(_encode_teacher(tables, output, pair), pair, validation)
    inputs_key = key_of(tables.content(TOWER_QUERIES.name), pair.identity)
    for number, rate in enumerate(settings.learning_rates):
        trial_unit = f"{number}: {rate}", key_of(inputs_key, rate)
        with output.unit(*trial_unit) as unit:
            if not unit.done:
                _run_trial(output, task, settings, number, seed, output.state(*trial_unit))
    n_trials = output.rows(DISTILLATION_TRIALS.name)
    output.count(FunnelStep(DISTIL_STAGE.name, "queries to learn from", len(task.texts), "students", n_trials))


def _encode_teacher(tables: Tables, output: Output, pair: TeacherPair) -> pa.Array:
    """Cache the teacher's vectors of the train queries, and return the queries' texts."""
    texts = _texts_of_split(tables, "train")["query"].combine_chunks()
    for start in range(0, len(texts), TEACHER_BLOCK):
        pair.queries(texts.slice(start, TEACHER_BLOCK).to_pylist())
        output.progress(min(start + TEACHER_BLOCK, len(texts)), len(texts), "queries by the teacher")
    return texts


def _run_trial(
    output: Output, task: DistillationTask, settings: DistillSettings, number: int, seed: int, state: State
) -> None:
    from darklode.pipeline.towers.distillation import train_student
    from darklode.pipeline.train.fit.determinism import deterministic

    rate = settings.learning_rates[number]

    def on_step(step: int, message: str) -> None:
        output.progress(number * settings.max_steps + step, len(settings.learning_rates) * settings.max_steps, message)

    with deterministic(seed):
        student = task.pair.open()
        student.initialize(*task.sample(student.n_initialization_texts, seed))
        history = train_student(task, settings, rate, student, seed, on_step, state)
    output.write(DISTILLATION_LOG.name, _log(number, history))
    row = {"trial": number, "learning_rate": rate, "step": history.step, "distance": history.best_point.distance}
    output.write(DISTILLATION_TRIALS.name, pa.Table.from_pylist([row], schema=DISTILLATION_TRIALS.schema))
    output.write(ADAPTER_WEIGHTS.name, as_rows(number, history.best_weights))


def _log(number: int, history: TrainingHistory[DistillationEval]) -> pa.Table:
    rows = [{"trial": number, **asdict(point)} for point in history.eval_points]
    return pa.Table.from_pylist(rows, schema=DISTILLATION_LOG.schema)


def _texts_of_split(tables: Tables, split: str) -> pa.Table:
    rows = tables.read(TOWER_QUERIES.name)
    return rows.filter(pc.equal(rows["split"], split)).sort_by("query")


def query_set(tables: Tables, pair: TeacherPair, split: str) -> QuerySet:
    """Queries of a split with the teacher's vectors.

    Args:
        tables: `tower_queries`.
        pair: has the teacher.
        split: the split.
    """
    from darklode.pipeline.train.data.dataset import QuerySet

    rows = _texts_of_split(tables, split)
    return QuerySet.from_texts(rows["query"].to_pylist(), pair, rows["index"].to_numpy().astype(np.int32))


def best_trial(tables: Tables) -> Row:
    """The trial with the smallest distance; the first one wins ties.

    Args:
        tables: `distillation_trials`.
    """
    return dict(tables.sql("FROM distillation_trials ORDER BY distance, trial LIMIT 1").to_pylist()[0])


def load_best_student(tables: Tables, pair: TeacherPair) -> Student:
    """The student of the best trial at its best evaluation.

    Args:
        tables: `distillation_trials` and `adapter_weights`.
        pair: as in training.
    """
    trial = best_trial(tables)["trial"]
    weights = load_weights(tables, trial)
    student = pair.open(is_restored=True)
    student.restore(weights)
    return student
