"""Run coroutines from synchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

TICK_SECONDS = 1.0


class Background:
    """An event loop in a thread, open as long as its context, so that connections are reused."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="calls", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for closing in (self._loop.shutdown_asyncgens(), self._loop.shutdown_default_executor()):
            asyncio.run_coroutine_threadsafe(closing, self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T], tick: Callable[[], None]) -> T:
        """Run a coroutine and return its result; `tick` is called in this thread every second meanwhile.

        An exception in `tick`, or Ctrl-C, cancels the coroutine, waits for it and is raised here.
        """
        outcome: Future[T] = Future()
        running = asyncio.run_coroutine_threadsafe(_settle(work, outcome), self._loop)
        try:
            while True:
                try:
                    return outcome.result(TICK_SECONDS)
                except TimeoutError:
                    if outcome.done():  # raised by the coroutine, or it has just finished
                        return outcome.result()
                    tick()
        except BaseException:
            running.cancel()
            if outcome.cancel():  # it had not started
                work.close()
            else:
                outcome.exception()
            raise

    def iterate(self, results: AsyncGenerator[T]) -> Iterator[T]:
        """Iterate over an asynchronous generator; closing the iterator closes the generator."""

        async def next_result() -> list[T]:
            async for result in results:
                return [result]
            return []

        try:
            while result := self.run(next_result(), lambda: None):
                yield result[0]
        finally:
            self.run(results.aclose(), lambda: None)


async def _settle(work: Coroutine[Any, Any, T], outcome: Future[T]) -> None:
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        outcome.set_result(await work)
    except BaseException as error:
        outcome.set_exception(error)
