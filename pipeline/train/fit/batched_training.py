"""Batch the head trainings that many threads request: they run as one problem once every thread waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from threading import RLock, Semaphore

from darklode.pipeline.train.fit.batched_heads import StackedTrial, train_stacked
from darklode.pipeline.train.fit.eval_point import EvalPoint
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.schemas.adaptation import AdaptSettings

Trainer = Callable[[StackedTrial, AdaptSettings], TrainingHistory[EvalPoint]]


def train_single(trial: StackedTrial, settings: AdaptSettings) -> TrainingHistory[EvalPoint]:
    """Train a single head."""
    (history,) = train_stacked([trial], settings)
    return history


_current: ContextVar[Trainer] = ContextVar("trainer", default=train_single)


def current_trainer() -> Trainer:
    """The function that trains heads for this thread."""
    return _current.get()


class BatchedTraining:
    """Trains the requests of all threads at once; each gets the result it would get alone.

    Threads take turns: one works at a time, and hands on the turn while it waits for its training. Once every thread
    that has not ended waits, the last one to ask trains all requests, with the lock held.

    Args:
        threads: number of threads; each works inside `working`.
    """

    def __init__(self, threads: int) -> None:
        self._busy, self._lock, self._turn = threads, RLock(), Semaphore(1)
        self._requests: list[tuple[StackedTrial, AdaptSettings, Future[TrainingHistory[EvalPoint]]]] = []

    @contextmanager
    def working(self) -> Iterator[None]:
        """Runs a thread's work with its trainings batched with those of the others."""
        token = _current.set(self._train)
        try:
            with self._turn:
                yield
        finally:
            _current.reset(token)
            with self._lock:
                self._busy -= 1
                self._train_if_all_wait()

    def _train(self, trial: StackedTrial, settings: AdaptSettings) -> TrainingHistory[EvalPoint]:
        future = Future[TrainingHistory[EvalPoint]]()
        self._turn.release()
        try:
            with self._lock:
                self._requests.append((trial, settings, future))
                self._train_if_all_wait()
            return future.result()
        finally:
            self._turn.acquire()

    def _train_if_all_wait(self) -> None:
        if not self._requests or len(self._requests) < self._busy:
            return
        requests, self._requests = self._requests, []
        try:
            histories = train_stacked([trial for trial, *_ in requests], requests[0][1])
        except BaseException as error:
            for *_, waiting in requests:
                waiting.set_exception(error)
            return
        for (*_, waiting), history in zip(requests, histories, strict=True):
            waiting.set_result(history)
