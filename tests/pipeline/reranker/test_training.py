"""Training on soft targets: the loss, weights, early stopping, and what a resumed trial repeats."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from darklode.pipeline.reranker.model import InitialReranker, TrainableReranker
from darklode.pipeline.reranker.pairs import SoftPairs
from darklode.pipeline.reranker.training import RerankerEval, WeightedCrossEntropy, stopping_reason, train_reranker
from darklode.pipeline.towers import checkpoint
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.schemas.pooling import LocalModel
from darklode.schemas.reranker import RerankerSettings
from helpers.reranked import MARKERS, cross_encoder

from .test_lists import lists

pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cross_encoder(tmp_path_factory.mktemp("model") / "cross")


def opened(model: Path) -> TrainableReranker:
    return InitialReranker(LocalModel(model=str(model), device="cpu"), 1).open()


def soft_pairs() -> SoftPairs:
    """Texts with a marker word each, whose probabilities are .9, .5 and .1."""
    number = np.arange(60) % 3
    return SoftPairs(
        ["bado", "gela"],
        pa.array(MARKERS),
        np.arange(60) % 2,
        number,
        np.float32(0.9 - 0.4 * number),
        np.ones(60, np.float32),
    )


def test_the_loss_is_the_weighted_cross_entropy_of_soft_targets(model: Path) -> None:
    pairs, losses = soft_pairs(), list[torch.Tensor]()
    pairs.weight[1] = 3.0
    reranker, rows = opened(model), np.array([0, 1])
    features = reranker.features(pairs.queries_at(rows), pairs.texts_at(rows))
    loss = WeightedCrossEntropy(reranker, pairs, losses)([features], torch.from_numpy(rows))
    p = 1 / (1 + np.exp(-reranker.scores(pairs.queries_at(rows), pairs.texts_at(rows))))
    expected = -(pairs.target[rows] * np.log(p) + (1 - pairs.target[rows]) * np.log(1 - p)) @ pairs.weight[rows] / 2
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert losses[0].tolist() == [pytest.approx(expected, rel=1e-5)]


def test_probabilities_are_learned(model: Path) -> None:
    reranker, pairs = opened(model), soft_pairs()
    settings = RerankerSettings(max_steps=120, batch_size=12)
    with deterministic(1):
        history = train_reranker(pairs, lists(), reranker, settings, 2e-2, 1, lambda *_: None)
    assert history.eval_points[0].validation is not None
    learned = 1 / (1 + np.exp(-reranker.scores(["bado"] * 3, MARKERS)))
    np.testing.assert_allclose(learned, [0.9, 0.5, 0.1], atol=0.15)


class Memory:
    """Keeps every checkpoint."""

    def __init__(self, first: bytes | None = None) -> None:
        self.first, self.written = first, list[bytes]()

    def read(self) -> bytes | None:
        return self.first

    def write(self, data: bytes) -> None:
        self.written.append(data)


def test_a_resumed_trial_ends_with_the_same_weights(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MIN_SECONDS", 0.0)
    settings, memory, steps = RerankerSettings(max_steps=10, batch_size=7), Memory(), list[int]()
    with deterministic(1):
        whole = train_reranker(soft_pairs(), lists(), opened(model), settings, 1e-3, 1, lambda *_: None, memory)
    second = Memory(memory.written[2])
    with deterministic(1):
        resumed = train_reranker(
            soft_pairs(), lists(), opened(model), settings, 1e-3, 1, lambda step, _: steps.append(step), second
        )
    assert steps[0] == 6
    assert resumed.eval_points == whole.eval_points
    for name, values in whole.best_weights.items():
        assert values.tobytes() == resumed.best_weights[name].tobytes()


def test_a_trial_stops_after_three_evaluations_without_a_gain() -> None:
    points = [RerankerEval(step, None, value, 0.5) for step, value in enumerate([0.1, 0.5, 0.4, 0.5])]
    assert stopping_reason(points) is None
    assert stopping_reason([*points, RerankerEval(4, None, 0.3, 1.0)]) == (
        "no gain on validation in 3 evaluations after step 1"
    )


def test_any_evaluation_is_better_than_a_head_that_was_never_trained() -> None:
    worst = RerankerEval(4, None, 0.0, 0.25)
    assert TrainingHistory([RerankerEval(0, None, None, None), worst]).best_point is worst
