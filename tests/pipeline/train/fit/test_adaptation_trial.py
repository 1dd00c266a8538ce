"""What happens around the steps: which candidates count, and when a trial stops."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.labels import Labels, Probabilities
from darklode.pipeline.train.data.nearest import nearest
from darklode.pipeline.train.fit.adaptation_trial import AdaptationTrial, collapse_reason, vector_spread
from darklode.pipeline.train.fit.batches import allowed_candidates, target_distribution
from darklode.pipeline.train.fit.eval_point import EvalPoint, has_collapsed
from darklode.pipeline.train.fit.trial import EarlyStopping, KeepBestWeights, TrainingHistory, Trial
from darklode.pipeline.train.types import Weights
from darklode.schemas.adaptation import AdaptSettings


def point(step: int, loss: float | None, validation: float) -> EvalPoint:
    return EvalPoint(step, loss, validation, None, 0.0, 0.0, 0.5)


class Replayed(Trial[EvalPoint]):
    """Gives evaluations that are known before; the weights are the step."""

    def __init__(self, points: list[EvalPoint]) -> None:
        self.points = iter(points)
        callbacks = [KeepBestWeights(), EarlyStopping(collapse_reason)]
        super().__init__(points[-1].step, 1, SimpleNamespace(state=self.state), callbacks)

    def state(self) -> Weights:
        return {"step": np.array([self.history.eval_points[-1].step], np.float32)}

    def evaluate(self, _step: int) -> EvalPoint:
        return next(self.points)


def history_of(points: list[EvalPoint]) -> TrainingHistory[EvalPoint]:
    trial = Replayed(points)
    for point in points:
        trial.after_step(point.step)
    return trial.history


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
    history = [point(0, None, 0.5), point(1, 3.0, 0.4), point(2, 2.0, 0.3), point(3, 1.0, 0.2)]
    assert has_collapsed(history)
    assert not has_collapsed(history[:3])
    assert not has_collapsed([*history[:3], point(3, 3.5, 0.2)])
    assert not has_collapsed([*history[:3], point(3, 1.0, 0.35)])


def test_the_best_step_is_kept_when_a_trial_is_stopped() -> None:
    history = history_of([point(number, 5.0 - number, value) for number, value in enumerate([0.5, 0.6, 0.4, 0.3, 0.2])])
    assert (history.step, history.stopped) == (1, "validation fell 3 times in a row while the loss fell")


def test_spread_is_none_where_all_vectors_are_one() -> None:
    assert vector_spread(np.tile(np.array([[0.6, 0.8]], np.float32), (4, 1))) == pytest.approx(0, abs=1e-6)
    assert vector_spread(np.eye(2, dtype=np.float32)) == pytest.approx(1)


def test_of_equally_good_steps_the_first_is_kept() -> None:
    history = history_of([point(step, None, value) for step, value in [(0, 0.5), (50, 0.7), (100, 0.7), (150, 0.6)]])
    assert history.step == 50
    assert history.best_weights["step"].item() == 50


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


def trial_of(model: TurningQuery, anchor: Floats | None = None) -> AdaptationTrial:
    """The text at angle 0 is the positive; all others were judged as not relevant."""
    none, others = np.zeros(0, np.int64), np.arange(1, len(ANGLES))
    train: Any = SimpleNamespace(vectors=model.vectors(None), index=np.zeros(1, np.int32))
    validation: Any = SimpleNamespace(ndcg=lambda *_: 0.5)
    frozen: Any = Circle()
    task = Task(
        frozen=frozen,
        train=train,
        validation=validation,
        pair_query=np.zeros(1, np.int64),
        pair_position=np.zeros(1, np.int64),
        labels=Labels.from_pairs(np.zeros(1, np.int64), np.zeros(1, np.int64), len(ANGLES)),
        non_relevant=Labels.from_pairs(np.zeros(len(others), np.int64), others, len(ANGLES)),
        siblings=Labels.from_pairs(none, none, len(ANGLES)),
    )
    settings = AdaptSettings(max_steps=12, refresh_steps=4, num_negatives=1, negatives_per_step=1)
    return AdaptationTrial(task, settings, 0, model, lambda *_: None, anchor)


def hard_negatives(trial: AdaptationTrial, model: TurningQuery) -> list[int]:
    """The text that the query is held against at each step; it turns by a tenth of the circle of texts each time."""
    found = []
    for step in range(12):
        model.angle = 0.3 * step / 2
        assert trial.after_step(step)
        found.append(int(trial.candidates(np.zeros(1, np.int64))[1]))
    return found


def test_negatives_are_mined_anew_at_each_refresh_and_only_then() -> None:
    model = TurningQuery()
    assert hard_negatives(trial_of(model), model) == [1] * 4 + [2] * 4 + [4] * 4


@pytest.mark.parametrize("anchor", [None, np.array([[0, 1]], np.float32)])
def test_the_anchor_stays_where_training_began_though_negatives_are_refreshed(anchor: Floats | None) -> None:
    model = TurningQuery()
    trial, began = trial_of(model, anchor), model.vectors(None)
    hard_negatives(trial, model)
    pairs = np.zeros(1, np.int64)
    np.testing.assert_array_equal(
        trial.batch(pairs, trial.candidates(pairs)).anchor, began if anchor is None else anchor
    )
