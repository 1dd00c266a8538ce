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


class Busy(DarklodeError):
    """As many questions wait as may."""


class Batches(Generic[Asked, Answer]):
    """One thread that answers all that waits, batch after batch, oldest first.

    Nothing is waited for: a question that comes alone is answered alone, and batches grow as the answering lags behind.

    Args:
        answer: answers questions, in their order.
        most: questions in a batch.
        waiting: questions that may wait besides.
    """

    def __init__(self, answer: Callable[[Sequence[Asked]], Sequence[Answer]], *, most: int, waiting: int) -> None:
        self._answer, self._most, self._room = answer, most, waiting
        self._waiting: deque[tuple[Asked, Future[Answer]]] = deque()
        self._change, self._closed = Condition(), False
        self._thread = Thread(target=self._work, name="darklode-batches", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Questions that nobody works on yet."""
        return len(self._waiting)

    def ask(self, questions: Sequence[Asked]) -> list[Future[Answer]]:
        """What the questions will be answered; what goes wrong in their batch is raised there.

        Raises:
            Busy: there is no room for all of them, or no more is taken.
        """
        asked: list[tuple[Asked, Future[Answer]]] = [(one, Future()) for one in questions]
        with self._change:
            if self._closed or len(self._waiting) + len(asked) > self._room:
                raise Busy(f"{len(self._waiting):,} questions wait already; ask again in a second")
            self._waiting.extend(asked)
            self._change.notify()
        return [future for _, future in asked]

    def close(self) -> None:
        """Take no more, and answer what waits."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            kept = [(one, future) for one, future in batch if future.set_running_or_notify_cancel()]
            try:
                answers = self._answer([one for one, _ in kept])
            except Exception as error:  # whoever asked is told
                for _, future in kept:
                    future.set_exception(error)
                continue
            for (_, future), answer in zip(kept, answers, strict=True):
                future.set_result(answer)

    def _next(self) -> list[tuple[Asked, Future[Answer]]]:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closed)
            return [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
