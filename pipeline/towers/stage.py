"""The trials: a student for each learning rate, looked at with queries that are held out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, State, Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.weights import as_rows, from_rows
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS
from darklode.schemas.tower_tables import DISTILLATION_LOG, DISTILLATION_TRIALS, TOWER_QUERIES
from darklode.schemas.towers import TowerSettings

if TYPE_CHECKING:
    from darklode.pipeline.towers.course import Look
    from darklode.pipeline.towers.pair import Pair
    from darklode.pipeline.towers.student import Student
    from darklode.pipeline.towers.watch import Course
    from darklode.pipeline.train.task import Questions

READS = (TOWER_QUERIES.name,)
DISTIL = Stage("distillation_trials", 2, READS, (DISTILLATION_LOG.name, DISTILLATION_TRIALS.name, ADAPTER_WEIGHTS.name))

AHEAD = 1 << 13
"""Queries whose teacher's vectors are asked for together, so that the cache has all before training begins."""

FIRST = 1 << 12
"""Queries from whose vectors a student's projection begins."""

Row = dict[str, Any]


def distil(tables: Tables, output: Output, settings: TowerSettings, pair: Pair, *, seed: int) -> None:
    """Train a student with each learning rate, and write how it went, how near it came, and its weights.

    The teacher encodes each query once, into the cache. One unit a trial; one that was killed goes on
    from its last checkpoint.

    Args:
        tables: holds `tower_queries`.
        output: takes `distillation_log`, `distillation_trials` and `adapter_weights`.
        settings: steps, batch and rates.
        pair: teacher and student.
        seed: of the order of queries, and of a projection.

    Raises:
        ArtifactError: there are too few queries to hold any out.
    """
    from darklode.pipeline.towers.course import Lesson

    validation = asked(tables, pair, "validation")
    if not len(validation):
        raise ArtifactError("there are fewer than ten queries: none can be held out to look at")
    lesson = Lesson(_encoded(tables, output, pair), pair, validation)
    basis = key_of(tables.content(TOWER_QUERIES.name), pair.identity)
    for number, rate in enumerate(settings.learning_rates):
        named = f"{number}: {rate}", key_of(basis, rate)
        with output.unit(*named) as unit:
            if not unit.done:
                _try(output, lesson, settings, number, seed, output.state(*named))
    tried = output.rows(DISTILLATION_TRIALS.name)
    output.count(FunnelStep(DISTIL.name, "queries to learn from", len(lesson.texts), "students", tried))


def _encoded(tables: Tables, output: Output, pair: Pair) -> pa.Array:
    """Texts of the train queries, whose teacher's vectors the cache has now."""
    texts = _of(tables, "train")["query"].combine_chunks()
    for start in range(0, len(texts), AHEAD):
        pair.queries(texts.slice(start, AHEAD).to_pylist())
        output.progress(min(start + AHEAD, len(texts)), len(texts), "queries by the teacher")
    return texts


def _try(output: Output, lesson: Any, settings: TowerSettings, number: int, seed: int, kept: State) -> None:
    from darklode.pipeline.towers.course import learn
    from darklode.pipeline.train.loop import steady

    rate = settings.learning_rates[number]

    def tell(step: int, seen: str) -> None:
        output.progress(number * settings.steps + step, len(settings.learning_rates) * settings.steps, seen)

    with steady(seed):
        student = lesson.pair.open()
        student.begin(*lesson.drawn(FIRST, seed))
        course = learn(lesson, settings, rate, student, seed, tell, kept)
    output.write(DISTILLATION_LOG.name, _log(number, course))
    row = {"trial": number, "learning_rate": rate, "step": course.step, "distance": course.reached.distance}
    output.write(DISTILLATION_TRIALS.name, pa.Table.from_pylist([row], schema=DISTILLATION_TRIALS.schema))
    output.write(ADAPTER_WEIGHTS.name, as_rows(number, course.best))


def _log(number: int, course: Course[Look]) -> pa.Table:
    rows = [{"trial": number, **asdict(look)} for look in course.looks]
    return pa.Table.from_pylist(rows, schema=DISTILLATION_LOG.schema)


def _of(tables: Tables, split: str) -> pa.Table:
    rows = tables.read(TOWER_QUERIES.name)
    return rows.filter(pc.equal(rows["split"], split)).sort_by("query")


def asked(tables: Tables, pair: Pair, split: str) -> Questions:
    """Queries of a side, with their teacher's vectors.

    Args:
        tables: holds `tower_queries`.
        pair: whose teacher.
        split: the side.
    """
    from darklode.pipeline.train.task import Questions

    rows = _of(tables, split)
    return Questions.asked(rows["query"].to_pylist(), pair, rows["index"].to_numpy().astype(np.int32))


def best(tables: Tables) -> Row:
    """The trial that came nearest; of equals the first.

    Args:
        tables: holds `distillation_trials`.
    """
    return dict(tables.sql("FROM distillation_trials ORDER BY distance, trial LIMIT 1").to_pylist()[0])


def graduate(tables: Tables, pair: Pair) -> Student:
    """The student of the best trial, as it was at its best look.

    Args:
        tables: holds `distillation_trials` and `adapter_weights`.
        pair: as it was trained with.
    """
    trial = best(tables)["trial"]
    weights = from_rows(tables.sql("FROM adapter_weights WHERE trial = $1 ORDER BY tensor, row", [trial]))
    student = pair.open()
    student.take(weights)
    return student
