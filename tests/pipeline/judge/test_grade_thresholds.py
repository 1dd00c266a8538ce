"""Grades of a judge with scores: fitted to people's grades where these support them, and never otherwise."""

import asyncio

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.judge.grade_thresholds import (
    GradeThresholds,
    ScoreGradedJudge,
    fit_grades,
    thresholds_by_tenant,
)
from helpers.scripted_judge import Said, ScriptedJudge
from helpers.scripted_stream import pairs

N = 400


def labelled(grades_of_share: dict[float, int], noise: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, grades (the last whose share is reached, with noise) and queries of four pairs each."""
    random = np.random.default_rng(7)
    probability = random.random(N).astype(np.float32)
    seen = probability + noise * random.standard_normal(N)
    shares = np.array(list(grades_of_share))
    grades = np.array([0, *grades_of_share.values()])[(seen[:, None] >= shares).sum(axis=1)]
    return probability, grades.astype(np.int64), np.arange(N) // 4


def test_each_grade_gets_the_threshold_that_agrees_best_with_people() -> None:
    fitted = fit_grades(*labelled({0.3: 1, 0.6: 2, 0.9: 3}), seed=1)
    assert fitted is not None
    assert fitted.grades == (1, 2, 3)
    assert fitted.thresholds == pytest.approx((0.6, 0.9), abs=0.02)
    assert fitted.kappa > 0.95


def test_noisy_grades_agree_less_on_queries_that_were_not_fitted() -> None:
    clean, noisy = (fit_grades(*labelled({0.2: 2, 0.6: 3}, noise), seed=1) for noise in (0.0, 0.3))
    assert clean
    assert noisy
    assert noisy.grades == (2, 3), "the scale is that of the people"
    assert 0 < noisy.kappa < 0.7 < clean.kappa


def test_binary_labels_give_no_grades() -> None:
    assert fit_grades(*labelled({0.5: 1}), seed=1) is None
    assert fit_grades(*labelled({2.0: 1}), seed=1) is None, "nothing is relevant"


def test_grades_that_do_not_follow_the_score_are_not_given() -> None:
    """The score separates relevant from not relevant, but says nothing about the grade."""
    probability, grades, query = labelled({0.5: 1})
    grades[grades > 0] = np.random.default_rng(3).integers(1, 4, (grades > 0).sum())
    assert fit_grades(probability, grades, query, seed=1) is None
    reversed_grades = np.where(grades > 0, np.where(probability > 0.75, 1, 3), 0)
    assert fit_grades(probability, reversed_grades, query, seed=1) is None


def test_a_grade_with_too_few_labels_counts_as_the_grade_below() -> None:
    probability, grades, query = labelled({0.3: 1, 0.6: 2})
    grades[np.argsort(probability)[-9:]] = 3
    fitted = fit_grades(probability, grades, query, seed=1)
    assert fitted
    assert fitted.grades == (1, 2)


def test_relevant_pairs_get_a_grade_and_other_pairs_grade_zero() -> None:
    said: list[Said] = [
        {"relevant": True, "probability": 0.95},
        {"relevant": True, "probability": 0.6},
        {"relevant": True, "probability": 0.5},
        {"relevant": False, "probability": 0.4},
        {"relevant": True},
        {"error": "no features of this pair are known"},
    ]
    judge = ScoreGradedJudge(
        ScriptedJudge(lambda pair: said[int(pair["chunk_id"][1:])], "j"), GradeThresholds((1, 2, 3), (0.6, 0.9), 0.5)
    )
    replies = asyncio.run(judge.judge(pairs(*((0, chunk) for chunk in range(len(said))))))
    assert replies["grade"].to_pylist() == [3, 2, 1, 0, 1, None]
    assert replies["relevant"].to_pylist() == [True, True, True, False, True, None]
    assert judge.judge_id == "j:grades=1,2>=0.6,3>=0.9"


def test_thresholds_are_read_back_by_tenant() -> None:
    graded = {"tenant": "a", "grades": [1, 3], "grade_thresholds": [0.5], "grade_kappa": 0.4}
    binary = {"tenant": "b", "grades": None, "grade_thresholds": None, "grade_kappa": None}
    rows = pa.Table.from_pylist([graded, binary]).to_pylist()
    assert thresholds_by_tenant(rows) == {"a": GradeThresholds((1, 3), (0.5,), 0.4)}
