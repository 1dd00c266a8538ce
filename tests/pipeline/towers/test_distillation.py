"""How a student learns: the trainer's steps are those of a plain loop."""

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers

from darklode.pipeline.towers.distillation import (
    WEIGHT_DECAY,
    DistillationEval,
    DistillationTask,
    distances,
    train_student,
)
from darklode.pipeline.towers.loss import distillation, distillation_parts
from darklode.pipeline.towers.stage import query_set
from darklode.pipeline.train.fit.batches import ShuffledRows
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.schemas.towers import DistillSettings

from .conftest import Distilled

SHORT = DistillSettings(student_layers=1, max_steps=12, batch_size=16)


@pytest.fixture(scope="module")
def task(distilled: Distilled) -> DistillationTask:
    texts = pa.array(
        [f"how {one}" for one in "badu befi kuma lopa nidu rasi tepo vinu zoka mela hido pagu".split()] * 3
    )
    return DistillationTask(texts, distilled.pair, query_set(distilled.out.tables(), distilled.pair, "validation"))


def history_of(distilled: Distilled, task: DistillationTask, seed: int) -> TrainingHistory[DistillationEval]:
    with deterministic(seed):
        return train_student(task, SHORT, 3e-3, distilled.pair.open(), seed, lambda *_: None)


@pytest.mark.slow
def test_the_trainers_steps_are_those_of_a_plain_loop(distilled: Distilled, task: DistillationTask) -> None:
    """Order of queries, Eq. 15, AdamW with its decay, warm-up and fall, and the cut of gradients, written out."""
    history = history_of(distilled, task, 1)
    with deterministic(1):
        student, turns = distilled.pair.open(), ShuffledRows(len(task.texts), SHORT.batch_size, 1)
        student.loaded.train()
        optimiser = torch.optim.AdamW(student.parameters(), lr=3e-3, weight_decay=WEIGHT_DECAY, fused=True)
        schedule = transformers.get_linear_schedule_with_warmup(optimiser, 1, SHORT.max_steps)
        for _ in range(history.step):
            texts = task.texts_at(turns.next().tolist())
            found = student.unit(student.loaded(student.features(texts))["sentence_embedding"])
            loss = distillation(*distillation_parts(torch.from_numpy(distilled.pair.queries(texts)), found))
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(student.parameters()), 1.0)
            optimiser.step()
            schedule.step()
    assert history.step > 6
    for name, one in student.state().items():
        np.testing.assert_allclose(history.best_weights[name], one, atol=1e-5)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(distilled: Distilled, task: DistillationTask) -> None:
    first, again, other = (history_of(distilled, task, seed) for seed in (1, 1, 2))
    assert [one.tobytes() for one in first.best_weights.values()] == [
        one.tobytes() for one in again.best_weights.values()
    ]
    assert [one.tobytes() for one in first.best_weights.values()] != [
        one.tobytes() for one in other.best_weights.values()
    ]
    assert first.eval_points == again.eval_points
    assert [look.step for look in first.eval_points] == list(range(13))


def test_each_query_has_its_turn_in_each_round() -> None:
    turns = ShuffledRows(10, 4, 3)
    seen = np.concatenate([turns.next() for _ in range(5)])
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert ShuffledRows(3, 4, 3).size == 3


def test_the_distance_is_that_of_the_bound() -> None:
    teacher, student = np.eye(3, dtype=np.float32), np.roll(np.eye(3, dtype=np.float32), 1, axis=0)
    np.testing.assert_allclose(distances(teacher, student), [2**0.5] * 3)
