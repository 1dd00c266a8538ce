"""The loop of heads: the same bytes again, alone or beside others."""

from dataclasses import replace

import numpy as np
import pytest

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit import batched_heads
from darklode.pipeline.train.fit.batched_heads import StackedTrial
from darklode.pipeline.train.fit.heads import Head
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.schemas.adaptation import AdaptSettings

from ..conftest import QUICK, Adapted


def trained(task: Task, settings: AdaptSettings, seed: int = 1) -> TrainingHistory:
    (history,) = batched_heads.train_stacked([StackedTrial(task, 3e-3, seed, lambda *_: None)], settings)
    return history


@pytest.fixture(scope="module")
def task(adapted: Adapted) -> Task:
    return Task.from_tables(adapted.out.tables(), adapted.base.open(adapted.out.tables()), same_document=False)


def first(task: Task, pairs: int) -> Task:
    """The same with fewer pairs to learn from."""
    weight = None if task.pair_weight is None else task.pair_weight[:pairs]
    return replace(
        task, pair_query=task.pair_query[:pairs], pair_position=task.pair_position[:pairs], pair_weight=weight
    )


def weighted(task: Task) -> Task:
    """The same with a different weight of each pair."""
    return replace(task, pair_weight=np.linspace(0.2, 1, len(task.pair_query), dtype=np.float32))


def test_training_twice_gives_the_same_bytes_and_another_seed_others(adapted: Adapted, task: Task) -> None:
    before = task.frozen.take(np.arange(len(task.frozen))).tobytes()
    settings = QUICK.model_copy(update={"max_steps": 20})
    weights = [trained(task, settings, seed).best_weights for seed in (1, 1, 2)]
    assert weights[0]["0.weight"].tobytes() == weights[1]["0.weight"].tobytes() != weights[2]["0.weight"].tobytes()
    assert adapted.base.open(adapted.out.tables()).take(np.arange(len(task.frozen))).tobytes() == before, (
        "documents are frozen"
    )


def test_negatives_are_replaced_on_the_way(task: Task) -> None:
    history = trained(task, QUICK.model_copy(update={"max_steps": 150}))
    assert [one.step for one in history.eval_points] == [0, 50, 100, 150]
    assert history.eval_points[0].replaced is None
    assert any(one.replaced for one in history.eval_points[1:])


def test_the_loss_falls_on_fixed_negatives(task: Task) -> None:
    fixed = QUICK.model_copy(update={"max_steps": 150, "refresh_steps": 1000})
    history = trained(task, fixed)
    losses = [one.loss for one in history.eval_points[1:] if one.loss is not None]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("pairs", ["one", "all"])
def test_soft_targets_train_another_head_from_the_same_labels(task: Task, pairs: str) -> None:
    """The sample's judge says .9 of positives and .2 of negatives."""
    hard = QUICK.model_copy(update={"max_steps": 20, "positives_per_query": pairs})
    found = [
        trained(task, hard.model_copy(update={"targets": targets})).best_weights["0.weight"]
        for targets in ("one_hot", "soft")
    ]
    assert not np.array_equal(*found)
    assert all(np.isfinite(one).all() for one in found)


@pytest.mark.parametrize("pairs", ["one", "all"])
def test_weights_train_another_head_and_equal_weights_the_same(task: Task, pairs: str) -> None:
    settings = QUICK.model_copy(update={"max_steps": 20, "positives_per_query": pairs})
    alike = replace(task, pair_weight=np.full(len(task.pair_query), 0.37, np.float32))
    unweighted, same, other = (
        trained(of_task, settings).best_weights["0.weight"].tobytes()
        for of_task in (replace(task, pair_weight=None), alike, weighted(task))
    )
    assert unweighted == same != other


@pytest.mark.slow
@pytest.mark.parametrize("method", ["linear", "ffn"])
def test_a_head_among_others_is_the_one_trained_alone(task: Task, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte, whatever the others are: another rate, another seed, fewer queries, a start of their own."""
    settings = QUICK.model_copy(
        update={"method": method, "max_steps": 60, "targets": "soft" if method == "ffn" else "weighted"}
    )
    few, started = first(weighted(task), 9), Head(8, 3 if method == "ffn" else 1).weights()
    started[-1][0][:] = 0.1
    trials = [
        StackedTrial(task, 3e-3, 1, lambda *_: None),
        StackedTrial(task, 1e-3, 1, lambda *_: None),
        StackedTrial(few, 3e-3, 1, lambda *_: None),
        StackedTrial(task, 3e-3, 2, lambda *_: None, started),
        StackedTrial(few, 3e-3, 3, lambda *_: None),
    ]
    alone = [batched_heads.train_stacked([one], settings)[0] for one in trials]
    for bytes_at_once in (batched_heads.MAX_STACK_BYTES, 1):
        monkeypatch.setattr(batched_heads, "MAX_STACK_BYTES", bytes_at_once)
        for one, other in zip(alone, batched_heads.train_stacked(trials, settings), strict=True):
            assert one.eval_points == other.eval_points
            assert {name: value.tobytes() for name, value in one.best_weights.items()} == {
                name: value.tobytes() for name, value in other.best_weights.items()
            }


def test_who_has_stopped_keeps_what_it_had_while_the_others_go_on(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = QUICK.model_copy(update={"max_steps": 200})
    monkeypatch.setattr(
        "darklode.pipeline.train.fit.adaptation_trial.has_collapsed",
        lambda looks: len(looks) == 2 and looks[-1].loss < stop,
    )
    wild, mild = StackedTrial(task, 3e-3, 1, lambda *_: None), StackedTrial(task, 3e-3, 2, lambda *_: None)
    stop = float("inf")
    assert [one.eval_points[-1].step for one in batched_heads.train_stacked([wild, mild], settings)] == [50, 50]
    losses = [batched_heads.train_stacked([one], settings)[0].eval_points[1].loss for one in (wild, mild)]
    stop = sum(one for one in losses if one is not None) / 2
    ended = [one.eval_points[-1].step for one in batched_heads.train_stacked([wild, mild], settings)]
    assert sorted(ended) == [50, 200]


def test_nothing_is_trained_of_no_trials() -> None:
    assert batched_heads.train_stacked([], QUICK) == []
