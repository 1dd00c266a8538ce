"""Grades of a judge that gives scores only: thresholds of its probability, fitted to people's grades."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import (
    MIN_OF_EACH,
    cohens_kappa,
    confusion,
    cross_validated_labels,
    fit_threshold,
    kappa_of_table,
    quadratic,
)
from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.judge.port import REPLIES, Judge, JudgeWrapper

_Z_95_ONE_SIDED = 1.645
"""One-sided 95 % quantile of the normal distribution."""


@dataclass(frozen=True)
class GradeThresholds:
    """Grades of relevant pairs by the judge's probability.

    Attributes:
        grades: ascending; every relevant pair has at least the first.
        thresholds: minimum probability of each grade after the first, ascending.
        kappa: quadratic-weighted kappa with people's grades, over pairs that people call relevant, with thresholds
            fitted on other queries.
    """

    grades: tuple[int, ...]
    thresholds: tuple[float, ...]
    kappa: float

    def grade(self, probability: NDArray[np.float32]) -> NDArray[np.int32]:
        """Grade of relevant pairs with these probabilities; NaN gets the lowest grade."""
        cuts = np.array(self.thresholds, np.float32)
        n_reached = (probability[:, None] >= cuts).sum(axis=1)
        return np.asarray(np.array(self.grades, np.int32)[n_reached])


def fit_grades(
    probability: NDArray[np.float32], relevance: NDArray[np.int64], query: NDArray[np.int64], seed: int
) -> GradeThresholds | None:
    """Fit the minimum probability of each grade to human labels; None if people give no usable grades.

    Each grade above the lowest relevant one gets the threshold with the highest kappa among the pairs that people call
    relevant. A grade needs at least `MIN_OF_EACH` pairs on each side of it, and thresholds fitted on other queries must
    agree with people better than chance (one-sided test, 5 %); otherwise its pairs get the grade below.

    Args:
        probability: the judge's probabilities, shape (n_pairs,), without NaN; of a trained judge from cross-validation.
        relevance: human labels, 0 or a grade, shape (n_pairs,).
        query: query index of each pair, from 0, shape (n_pairs,).
        seed: assigns queries to folds.
    """
    is_relevant = relevance > 0
    probability, grades = probability[is_relevant], relevance[is_relevant]
    query = np.unique(query[is_relevant], return_inverse=True)[1].astype(np.int64)
    grade_fits: list[tuple[int, float, NDArray[np.bool_]]] = []
    for grade in np.unique(grades)[1:].tolist():
        has_grade = grades >= grade
        threshold = fit_threshold(probability, has_grade) if _has_enough_of_each(has_grade) else None
        predictions = cross_validated_labels(probability, has_grade, query, seed) if threshold else None
        if threshold and predictions is not None and _beats_chance(predictions, has_grade):
            grade_fits.append((grade, threshold[0], predictions))
    if not grade_fits:
        return None
    cuts = np.maximum.accumulate([cut for _, cut, _ in grade_fits])
    n_reached = np.sum([predictions for *_, predictions in grade_fits], axis=0)
    scale = np.array([int(grades.min()), *(grade for grade, *_ in grade_fits)])
    return GradeThresholds(tuple(scale.tolist()), tuple(cuts.tolist()), _weighted_kappa(scale[n_reached], grades))


def _has_enough_of_each(has_grade: NDArray[np.bool_]) -> bool:
    return min(int(has_grade.sum()), int((~has_grade).sum())) >= MIN_OF_EACH


def _beats_chance(predictions: NDArray[np.bool_], has_grade: NDArray[np.bool_]) -> bool:
    """Whether Cohen's kappa is above 0, by its standard error under independence (Cohen, 1960)."""
    kappa = float(cohens_kappa(confusion(predictions, has_grade)))
    if not math.isfinite(kappa):
        return False
    agreement = predictions.mean() * has_grade.mean() + (1 - predictions.mean()) * (1 - has_grade.mean())
    return bool(kappa > _Z_95_ONE_SIDED * math.sqrt(agreement / ((1 - agreement) * len(has_grade))))


def _weighted_kappa(judge_grades: NDArray[np.int64], human_grades: NDArray[np.int64]) -> float:
    values = np.unique(np.concatenate([judge_grades, human_grades]))
    cells = np.searchsorted(values, judge_grades) * len(values) + np.searchsorted(values, human_grades)
    counts = np.bincount(cells, minlength=len(values) ** 2).reshape(len(values), len(values)).astype(np.float64)
    return float(kappa_of_table(counts, quadratic(values.astype(np.float64))))


def thresholds_by_tenant(rows: Sequence[Mapping[str, object]]) -> dict[str, GradeThresholds]:
    """Grade thresholds in rows of `calibration`; tenants without grades are left out."""
    return {
        str(row["tenant"]): GradeThresholds(tuple(row["grades"]), tuple(row["grade_thresholds"]), row["grade_kappa"])  # type: ignore[arg-type]
        for row in rows
        if row["grades"]
    }


def fitted_grades(tables: Tables) -> set[int]:
    """Grades that a run's judge gives by its scores, over all tenants.

    Args:
        tables: must contain `calibration`.
    """
    return {grade for row in tables.read("calibration", ["grades"]).to_pylist() for grade in row["grades"] or ()}


class ScoreGradedJudge(JudgeWrapper):
    """A judge whose relevant pairs get grades by probability; other pairs have grade 0.

    Args:
        judge: gives labels and probabilities.
        thresholds: fitted to people's grades.
    """

    def __init__(self, judge: Judge, thresholds: GradeThresholds) -> None:
        super().__init__(judge)
        self._thresholds = thresholds

    @property
    def suffix(self) -> str:
        """The grades and their thresholds."""
        cuts = zip(self._thresholds.grades[1:], self._thresholds.thresholds, strict=True)
        lowest = self._thresholds.grades[0]
        return f":grades={lowest},{','.join(f'{grade}>={cut:g}' for grade, cut in cuts)}"

    def change_replies(self, replies: pa.Table) -> pa.Table:
        relevant = replies["relevant"].to_numpy(zero_copy_only=False)
        probability = replies["probability"].to_numpy(zero_copy_only=False).astype(np.float32)
        grade = np.where(relevant == True, self._thresholds.grade(probability), 0)  # noqa: E712 (null is None)
        column = pa.array(grade.astype(np.int32), mask=replies["relevant"].is_null().to_numpy())
        return replies.set_column(REPLIES.get_field_index("grade"), REPLIES.field("grade"), column)
