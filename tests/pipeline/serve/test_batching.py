"""Questions that come at once are answered together, and no more of them wait than may."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from darklode.pipeline.serve.batching import QueueFull, RequestBatcher


class Slow:
    """Answers with the number doubled, batch by batch, each as soon as it may."""

    def __init__(self) -> None:
        self.go, self.begun = Event(), Event()
        self.batches: list[list[int]] = []

    def __call__(self, questions: Sequence[int]) -> list[int]:
        self.batches.append(list(questions))
        self.begun.set()
        assert self.go.wait(30)
        if -1 in questions:
            raise ValueError("no such number")
        return [2 * one for one in questions]


def test_what_waits_is_answered_in_batches_oldest_first() -> None:
    slow = Slow()
    batches = RequestBatcher(slow, max_batch=4, waiting=100)
    first = batches.ask([0])
    assert slow.begun.wait(30)
    others = [future for one in range(1, 11) for future in batches.ask([one])]
    slow.go.set()
    assert [future.result(30) for future in first + others] == [2 * one for one in range(11)]
    assert slow.batches == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    batches.close()


def test_a_question_that_finds_no_room_is_refused_and_the_others_are_answered() -> None:
    slow = Slow()
    batches = RequestBatcher(slow, max_batch=2, waiting=3)
    first = batches.ask([0])
    assert slow.begun.wait(30)
    kept = batches.ask([1, 2])
    with pytest.raises(QueueFull, match=r"queue full \(2 requests waiting\)"):
        batches.ask([3, 4])
    kept += batches.ask([5])
    slow.go.set()
    assert [future.result(30) for future in first + kept] == [0, 2, 4, 10]
    batches.close()


def test_what_fails_is_told_to_its_batch_alone() -> None:
    slow = Slow()
    batches = RequestBatcher(slow, max_batch=2, waiting=9)
    batches.ask([0])
    assert slow.begun.wait(30)
    doomed, spared = batches.ask([1, -1]), batches.ask([3])
    slow.go.set()
    for future in doomed:
        with pytest.raises(ValueError, match="no such number"):
            future.result(30)
    assert spared[0].result(30) == 6
    batches.close()


def test_the_end_waits_for_what_was_asked_and_takes_no_more() -> None:
    slow = Slow()
    batches = RequestBatcher(slow, max_batch=1, waiting=9)
    asked = batches.ask([1, 2, 3])
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(batches.close)
        slow.go.set()
        closing.result(30)
    assert [future.result(0) for future in asked] == [2, 4, 6]
    with pytest.raises(QueueFull):
        batches.ask([4])
