"""Questions that come at once are answered together: who waits while a batch is worked on is in the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Condition, Thread
from typing import Generic, TypeVar

from darklode.pipeline.base.errors import DarklodeError

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class QueueFull(DarklodeError):
    """As many questions wait as may."""


class RequestBatcher(Generic[Asked, Answer]):
    """One thread that answers all that waits, batch after batch, oldest first.

    Nothing is waited for: a question that comes alone is answered alone, and batches grow as the answering lags behind.

    Args:
        answer: answers questions, in their order.
        most: questions in a batch.
        n_waiting: questions that may wait besides.
    """

    def __init__(self, answer: Callable[[Sequence[Asked]], Sequence[Answer]], *, max_batch: int, waiting: int) -> None:
        self._answer, self._max_batch, self._room = answer, max_batch, waiting
        self._waiting: deque[tuple[Asked, Future[Answer]]] = deque()
        self._change, self._closed = Condition(), False
        self._thread = Thread(target=self._run, name="darklode-batches", daemon=True)
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        """Questions that nobody works on yet."""
        return len(self._waiting)

    def ask(self, questions: Sequence[Asked]) -> list[Future[Answer]]:
        """What the questions will be answered; what goes wrong in their batch is raised there.

        Raises:
            Busy: there is no room for all of them, or no more is taken.
        """
        requests: list[tuple[Asked, Future[Answer]]] = [(question, Future()) for question in questions]
        with self._change:
            if self._closed or len(self._waiting) + len(requests) > self._room:
                raise QueueFull(f"{len(self._waiting):,} questions wait already; ask again in a second")
            self._waiting.extend(requests)
            self._change.notify()
        return [future for _, future in requests]

    def close(self) -> None:
        """Take no more, and answer what waits."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            active = [(question, future) for question, future in batch if future.set_running_or_notify_cancel()]
            try:
                answers = self._answer([question for question, _ in active])
            except Exception as error:  # whoever asked is told
                for _, future in active:
                    future.set_exception(error)
                continue
            for (_, future), answer in zip(active, answers, strict=True):
                future.set_result(answer)

    def _next_batch(self) -> list[tuple[Asked, Future[Answer]]]:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closed)
            return [self._waiting.popleft() for _ in range(min(self._max_batch, len(self._waiting)))]
