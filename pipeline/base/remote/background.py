"""Waiting for coroutines from a thread that has something to tell meanwhile."""

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
    """One event loop in a thread of its own for as long as its context is open, so that connections can be kept."""

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
        """The coroutine's result; `tick` is called in this thread every second until it is there.

        What `tick` raises, Ctrl-C too, cancels the coroutine, which is awaited before it is raised here.
        """
        ended: Future[T] = Future()
        begun = asyncio.run_coroutine_threadsafe(_settle(work, ended), self._loop)
        try:
            while True:
                try:
                    return ended.result(TICK_SECONDS)
                except TimeoutError:
                    if ended.done():  # the coroutine's own, or it ended just now
                        return ended.result()
                    tick()
        except BaseException:
            begun.cancel()
            if ended.cancel():  # it had not begun
                work.close()
            else:
                ended.exception()
            raise

    def iterate(self, results: AsyncGenerator[T]) -> Iterator[T]:
        """What an asynchronous generator yields, as it comes; closing the iterator closes the generator."""

        async def following() -> list[T]:
            async for result in results:
                return [result]
            return []

        try:
            while result := self.run(following(), lambda: None):
                yield result[0]
        finally:
            self.run(results.aclose(), lambda: None)


async def _settle(work: Coroutine[Any, Any, T], ended: Future[T]) -> None:
    if not ended.set_running_or_notify_cancel():
        return
    try:
        ended.set_result(await work)
    except BaseException as error:
        ended.set_exception(error)
