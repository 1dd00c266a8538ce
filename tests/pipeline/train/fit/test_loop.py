"""What happens around the steps: which candidates count, and when a trial stops."""

from types import SimpleNamespace

import numpy as np
import pytest

from darklode.pipeline.train.data.dataset import Labels, Probabilities
from darklode.pipeline.train.data.nearest import nearest
from darklode.pipeline.train.data.vectors import Floats, Ints
from darklode.pipeline.train.fit.heads import Head
from darklode.pipeline.train.fit.loop import (
    EvalPoint,
    TrainingHistory,
    TrainingLoop,
    allowed_candidates,
    has_collapsed,
    target_distribution,
    vector_spread,
)
from darklode.pipeline.train.fit.weights import Weights
from darklode.schemas.adaptation import AdaptSettings


def look(step: int, loss: float | None, validation: float) -> EvalPoint:
    return EvalPoint(step, loss, validation, None, 0.0, 0.0, 0.5)


def test_own_negatives_count_and_others_in_the_batch_but_no_known_positive() -> None:
    query, candidates = np.array([0, 1]), np.array([10, 11, 20, -1, 30, 10])
    known = Labels.from_pairs(np.array([0, 0, 1]), np.array([10, 11, 11]), 100)
    assert allowed_candidates(known, query, candidates, in_batch=True).tolist() == [
        [True, False, True, False, True, False],
        [True, True, True, False, True, True],
    ]
    assert allowed_candidates(known, query, candidates, in_batch=False).tolist() == [
        [True, False, True, False, False, False],
        [False, True, False, False, True, True],
    ]


def test_the_judges_probabilities_are_what_is_aimed_at() -> None:
    query, candidates = np.array([0, 1]), np.array([10, 11, 20, -1, 30, 10])
    nan = np.float32("nan")
    said = Probabilities.from_pairs(
        np.array([0, 0, 0, 1]), np.array([10, 20, 30, 30]), np.array([0.6, 0.2, nan, 0.25], np.float32), 100
    )
    allowed = allowed_candidates(Labels.from_pairs(query, candidates[:2], 100), query, candidates, in_batch=False)
    found = target_distribution(said, query, candidates, allowed)
    np.testing.assert_allclose(found, [[0.75, 0, 0.25, 0, 0, 0], [0, 0.8, 0, 0, 0.2, 0]], atol=1e-6)


def test_falling_validation_at_falling_loss_is_a_collapse() -> None:
    course = [look(0, None, 0.5), look(1, 3.0, 0.4), look(2, 2.0, 0.3), look(3, 1.0, 0.2)]
    assert has_collapsed(course)
    assert not has_collapsed(course[:3])
    assert not has_collapsed([*course[:3], look(3, 3.5, 0.2)])
    assert not has_collapsed([*course[:3], look(3, 1.0, 0.35)])


def test_the_best_step_is_kept_when_a_trial_is_stopped() -> None:
    course, head = TrainingHistory(), Head(8, 1)
    for number, value in enumerate([0.5, 0.6, 0.4, 0.3, 0.2]):
        course.add(look(number, 5.0 - number, value), head)
    assert (course.step, course.stopped) == (1, "validation fell 3 times in a row while the loss fell")


def test_spread_is_none_where_all_vectors_are_one() -> None:
    assert vector_spread(np.tile(np.array([[0.6, 0.8]], np.float32), (4, 1))) == pytest.approx(0, abs=1e-6)
    assert vector_spread(np.eye(2, dtype=np.float32)) == pytest.approx(1)


def test_of_equally_good_steps_the_first_is_kept() -> None:
    course, head = TrainingHistory(), Head(8, 1)
    for step, validation in [(0, 0.5), (50, 0.7), (100, 0.7), (150, 0.6)]:
        course.add(look(step, None, validation), head)
    assert course.step == 50


class TurningQuery:
    """One query, whose vector has turned by `angle` from (1, 0)."""

    angle = 0.0

    def vectors(self, _queries: object) -> Floats:
        return np.array([[np.cos(self.angle), np.sin(self.angle)]], np.float32)

    def state(self) -> Weights:
        return {}


ANGLES = np.arange(8) * 0.3


class Circle:
    """Texts at `ANGLES`."""

    vectors = np.column_stack([np.cos(ANGLES), np.sin(ANGLES)]).astype(np.float32)

    def nearest(self, queries: Floats, _index: object, depth: int) -> tuple[Ints, Floats]:
        return nearest(queries, self.take, range(len(ANGLES)), depth)

    def take(self, positions: Ints) -> Floats:
        return self.vectors[positions]


def lesson_of(model: TurningQuery, anchor: Floats | None = None) -> TrainingLoop:
    """The text at angle 0 is the positive; all others were judged as not relevant."""
    none, others = np.zeros(0, np.int64), np.arange(1, len(ANGLES))
    task = SimpleNamespace(
        frozen=Circle(),
        train=SimpleNamespace(vectors=model.vectors(None), index=np.zeros(1, np.int32)),
        validation=SimpleNamespace(ndcg=lambda *_: 0.5),
        pair_query=np.zeros(1, np.int64),
        pair_position=np.zeros(1, np.int64),
        labels=Labels.from_pairs(np.zeros(1, np.int64), np.zeros(1, np.int64), len(ANGLES)),
        refused=Labels.from_pairs(np.zeros(len(others), np.int64), others, len(ANGLES)),
        siblings=Labels.from_pairs(none, none, len(ANGLES)),
        probabilities=None,
        is_complete=False,
    )
    settings = AdaptSettings(max_steps=12, refresh_steps=4, num_negatives=1, negatives_per_step=1, soft_targets=False)
    return TrainingLoop(task, settings, 0, model, lambda *_: None, anchor)  # type: ignore[arg-type]


def hard_negatives(lesson: TrainingLoop, model: TurningQuery) -> list[int]:
    """The text that the query is held against at each step; it turns by a tenth of the circle of texts each time."""
    found = []
    for step in range(12):
        model.angle = 0.3 * step / 2
        assert lesson.evaluate_step(step)
        found.append(int(lesson.candidates(np.zeros(1, np.int64))[1]))
    return found


def test_negatives_are_mined_anew_at_each_refresh_and_only_then() -> None:
    model = TurningQuery()
    assert hard_negatives(lesson_of(model), model) == [1] * 4 + [2] * 4 + [4] * 4


@pytest.mark.parametrize("anchor", [None, np.array([[0, 1]], np.float32)])
def test_the_anchor_stays_where_training_began_though_negatives_are_refreshed(anchor: Floats | None) -> None:
    model = TurningQuery()
    lesson, began = lesson_of(model, anchor), model.vectors(None)
    hard_negatives(lesson, model)
    pairs = np.zeros(1, np.int64)
    np.testing.assert_array_equal(
        lesson.turn(pairs, lesson.candidates(pairs)).start, began if anchor is None else anchor
    )
