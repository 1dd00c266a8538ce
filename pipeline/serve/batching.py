"""Dynamic batching: requests that arrive while a batch is processed form the next batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Condition, Thread
from typing import Generic, TypeVar

from darklode.pipeline.base.errors import DarklodeError

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class QueueFull(DarklodeError):
    """The queue is full."""


class RequestBatcher(Generic[Request, Answer]):
    """A thread that processes waiting requests in batches, oldest first.

    It never waits to fill a batch: a single request is processed immediately, and batches grow under load.

    Args:
        answer: processes a batch of requests, in order.
        max_batch: maximum requests per batch.
        waiting: maximum requests in the queue.
    """

    def __init__(
        self, answer: Callable[[Sequence[Request]], Sequence[Answer]], *, max_batch: int, waiting: int
    ) -> None:
        self._answer, self._max_batch, self._room = answer, max_batch, waiting
        self._waiting: deque[tuple[Request, Future[Answer]]] = deque()
        self._change, self._closed = Condition(), False
        self._thread = Thread(target=self._run, name="darklode-batches", daemon=True)
        self._thread.start()

    @property
    def n_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def ask(self, questions: Sequence[Request]) -> list[Future[Answer]]:
        """Queue requests; returns futures, which raise the errors of their batch.

        Raises:
            QueueFull: the queue has no room for all of them, or is closed.
        """
        requests: list[tuple[Request, Future[Answer]]] = [(question, Future()) for question in questions]
        with self._change:
            if self._closed or len(self._waiting) + len(requests) > self._room:
                raise QueueFull(f"queue full ({len(self._waiting):,} requests waiting); retry in 1 s")
            self._waiting.extend(requests)
            self._change.notify()
        return [future for _, future in requests]

    def close(self) -> None:
        """Accept no more requests, and process those in the queue."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            active = [(question, future) for question, future in batch if future.set_running_or_notify_cancel()]
            try:
                answers = self._answer([question for question, _ in active])
            except Exception as error:  # raised in the futures
                for _, future in active:
                    future.set_exception(error)
                continue
            for (_, future), answer in zip(active, answers, strict=True):
                future.set_result(answer)

    def _next_batch(self) -> list[tuple[Request, Future[Answer]]]:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closed)
            return [self._waiting.popleft() for _ in range(min(self._max_batch, len(self._waiting)))]
