"""Evaluation of a student: distance to its teacher, agreement of rankings, and speed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.towers.stage import load_best_student, query_set
from darklode.pipeline.train.release.evaluation import DEPTH as RANKING_DEPTH
from darklode.pipeline.train.release.evaluation import (
    test_queries,
    write_rankings,
    write_test_labels,
)
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS
from darklode.schemas.tower_tables import DISTILLATION_TRIALS, TOWER_HEALTH, TOWER_QUERIES

if TYPE_CHECKING:
    from darklode.pipeline.towers.student import Student
    from darklode.pipeline.towers.teacher_student import TeacherPair
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import QuerySet
    from darklode.pipeline.train.data.vectors import FrozenIndex

LABELLED_TABLES = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
READS = (*LABELLED_TABLES, TOWER_QUERIES.name, DISTILLATION_TRIALS.name, ADAPTER_WEIGHTS.name)
TOWER_TEST_STAGE = Stage("tower_test", 2, READS, ("test_queries", "test_labels", "test_rankings", TOWER_HEALTH.name))

SYSTEMS = ("teacher", "student")
MEASURES = ("R@10", "R@100", "nDCG@10")
SPLITS = ("validation", "unseen", "test")
TEACHER_DEPTH = 10
"""First results of the teacher that the student should find, too."""

N_TIMED_QUERIES = 256
"""Number of queries that are timed, one at a time and in batches of `TIMING_BATCH_SIZE`."""
TIMING_BATCH_SIZE = 32
"""Batch size of the batched timing."""


def test_student(tables: Tables, output: Output, base: BaseEncoder, pair: TeacherPair) -> None:
    """Rank the labelled test queries with both, and measure their distance on all held-out queries.

    Args:
        tables: the tables of `adaptation_pairs`, `tower_queries` and those of the trials.
        output: receives `test_queries`, `test_labels`, `test_rankings` and `tower_health`; its facts are the number of
            parameters and the single-core speed of both, tokenization included.
        base: the encoder of the index.
        pair: teacher and student.

    Raises:
        ArtifactError: no test query has a positive.
    """
    from darklode.pipeline.train.fit.determinism import deterministic

    frozen = base.open(tables)
    labelled = test_queries(tables, frozen)
    with deterministic(0):
        student = load_best_student(tables, pair)
        systems = {"teacher": pair.queries(labelled.texts), "student": student.vectors(labelled)}
        lists = {name: labelled.ranking(frozen, vectors, RANKING_DEPTH) for name, vectors in systems.items()}
        write_rankings(tables, output, lists, TOWER_TEST_STAGE)
        rows = [_agreement_row(frozen, student, split, query_set(tables, pair, split)) for split in SPLITS]
        output.facts |= _speeds(pair, student, list(labelled.texts[:N_TIMED_QUERIES]))
    write_test_labels(tables, output)
    output.write(TOWER_HEALTH.name, pa.Table.from_pylist([row for row in rows if row], schema=TOWER_HEALTH.schema))


def _agreement_row(frozen: FrozenIndex, student: Student, split: str, queries: QuerySet) -> dict[str, Any] | None:
    """A row of `tower_health`; None without queries."""
    from darklode.pipeline.towers.distillation import distances

    if not len(queries):
        return None
    student_vectors = student.vectors(queries)
    student_distances = distances(queries.vectors, student_vectors)
    teacher_list = frozen.search(queries.vectors, queries.index, TEACHER_DEPTH)[0]
    student_list = frozen.search(student_vectors, queries.index, RANKING_DEPTH)[0]
    return {
        "split": split,
        "queries": len(queries),
        "distance": float(student_distances.mean(dtype=np.float64)),
        "distance_p95": float(np.quantile(student_distances, 0.95)),
        "overlap": overlap(teacher_list, student_list[:, :TEACHER_DEPTH]),
        "top_100": overlap(teacher_list, student_list),
    }


def overlap(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    """Mean share of the first lists' texts that the second lists contain; −1 entries are empty."""
    is_hit = first >= 0
    n_common = ((first[:, :, None] == second[:, None, :]).any(axis=2) & is_hit).sum(axis=1)
    return float((n_common / np.maximum(is_hit.sum(axis=1), 1)).mean())


def _speeds(pair: TeacherPair, student: Student, texts: list[str]) -> dict[str, Any]:
    """Parameters, milliseconds per single query, and queries per second in batches, of both."""
    from darklode.pipeline.base.models.loading import load_query_tower

    teacher = load_query_tower(pair.teacher, "cpu")
    loaded = student.loaded.to("cpu")
    rows = {}
    for name, model, prompt in (
        ("teacher", teacher, pair.teacher.query_prompt),
        ("student", loaded, pair.student.query_prompt),
    ):
        numbers = sum(parameter.numel() for parameter in model.parameters())
        rows[name] = {"numbers": numbers} | measure_speed(model, [prompt + text for text in texts])
    return rows


def measure_speed(model: Any, texts: list[str]) -> dict[str, float]:
    """Single-core speed: milliseconds per single query, and queries per second in batches.

    Args:
        model: a sentence-transformers model.
        texts: queries with their prompt; processor time, tokenization included.
    """

    def measure_seconds(size: int) -> float:
        start_time = time.process_time()
        for start in range(0, len(texts), size):
            model.encode(texts[start : start + size], batch_size=size, show_progress_bar=False)
        return time.process_time() - start_time

    measure_seconds(TIMING_BATCH_SIZE)  # warm-up, not counted
    single_seconds = measure_seconds(1)
    batched_seconds = measure_seconds(TIMING_BATCH_SIZE)
    n_texts = max(len(texts), 1)
    return {
        "milliseconds": round(1000 * single_seconds / n_texts, 3),
        "per_second": round(n_texts / max(batched_seconds, 1e-9), 1),
    }
