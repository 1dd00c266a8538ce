"""What many threads ask for is trained at once, and what fails there fails for each of them."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit import batched_training
from darklode.pipeline.train.fit.batched_heads import StackedTrial
from darklode.pipeline.train.fit.batched_training import BatchedTraining, current_trainer
from darklode.pipeline.train.fit.trial import TrainingHistory

from ..conftest import QUICK, Adapted

SHORT = QUICK.model_copy(update={"steps": 10})


@pytest.fixture(scope="module")
def task(adapted: Adapted) -> Task:
    return Task.from_tables(adapted.out.tables(), adapted.base.open(adapted.out.tables()), same_document=False)


def asked(task: Task, wanted: list[int]) -> list[list[TrainingHistory]]:
    """What each thread gets that trains so many heads, one after the other."""
    shared = BatchedTraining(len(wanted))

    def works(place: int) -> list[TrainingHistory]:
        with shared.working():
            return [
                current_trainer()(StackedTrial(task, 1e-3, place, lambda *_: None), SHORT) for _ in range(wanted[place])
            ]

    with ThreadPoolExecutor(len(wanted)) as threads:
        waiting = [threads.submit(copy_context().run, works, place) for place in range(len(wanted))]
    return [one.result() for one in waiting]


def test_all_that_wait_are_trained_at_once_as_if_alone(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, real = list[int](), batched_training.train_stacked
    monkeypatch.setattr(
        batched_training, "train_stacked", lambda trials, of: sizes.append(len(trials)) or real(trials, of)
    )
    found = asked(task, [1, 3, 0, 2])
    assert sizes == [3, 2, 1]
    assert [len(one) for one in found] == [1, 3, 0, 2]
    for place, courses in enumerate(found):
        alone = batched_training.train_single(StackedTrial(task, 1e-3, place, lambda *_: None), SHORT)
        assert all(
            one.best_weights["0.weight"].tobytes() == alone.best_weights["0.weight"].tobytes() for one in courses
        )


def test_what_fails_fails_for_each(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(batched_training, "train_stacked", fails)
    with pytest.raises(MemoryError, match="no room"):
        asked(task, [1, 1])
