"""What happens around the steps: which candidates count, and when a trial stops."""

import numpy as np
import pytest

from darklode.pipeline.train.heads import Head
from darklode.pipeline.train.loop import Course, Look, aims, allow, collapses, spread
from darklode.pipeline.train.task import Labels, Probabilities


def look(step: int, loss: float | None, validation: float) -> Look:
    return Look(step, loss, validation, None, 0.0, 0.0, 0.5)


def test_own_negatives_count_and_others_in_the_batch_but_no_known_positive() -> None:
    query, candidates = np.array([0, 1]), np.array([10, 11, 20, -1, 30, 10])
    known = Labels.of(np.array([0, 0, 1]), np.array([10, 11, 11]), 100)
    assert allow(known, query, candidates, in_batch=True).tolist() == [
        [True, False, True, False, True, False],
        [True, True, True, False, True, True],
    ]
    assert allow(known, query, candidates, in_batch=False).tolist() == [
        [True, False, True, False, False, False],
        [False, True, False, False, True, True],
    ]


def test_the_judges_probabilities_are_what_is_aimed_at() -> None:
    query, candidates = np.array([0, 1]), np.array([10, 11, 20, -1, 30, 10])
    nan = np.float32("nan")
    said = Probabilities.of(
        np.array([0, 0, 0, 1]), np.array([10, 20, 30, 30]), np.array([0.6, 0.2, nan, 0.25], np.float32), 100
    )
    allowed = allow(Labels.of(query, candidates[:2], 100), query, candidates, in_batch=False)
    found = aims(said, query, candidates, allowed)
    np.testing.assert_allclose(found, [[0.75, 0, 0.25, 0, 0, 0], [0, 0.8, 0, 0, 0.2, 0]], atol=1e-6)


def test_falling_validation_at_falling_loss_is_a_collapse() -> None:
    course = [look(0, None, 0.5), look(1, 3.0, 0.4), look(2, 2.0, 0.3), look(3, 1.0, 0.2)]
    assert collapses(course)
    assert not collapses(course[:3])
    assert not collapses([*course[:3], look(3, 3.5, 0.2)])
    assert not collapses([*course[:3], look(3, 1.0, 0.35)])


def test_the_best_step_is_kept_when_a_trial_is_stopped() -> None:
    course, head = Course(), Head(8, 1)
    for number, value in enumerate([0.5, 0.6, 0.4, 0.3, 0.2]):
        course.add(look(number, 5.0 - number, value), head)
    assert (course.step, course.stopped) == (1, "validation fell 3 times in a row while the loss fell")


def test_spread_is_none_where_all_vectors_are_one() -> None:
    assert spread(np.tile(np.array([[0.6, 0.8]], np.float32), (4, 1))) == pytest.approx(0, abs=1e-6)
    assert spread(np.eye(2, dtype=np.float32)) == pytest.approx(1)
