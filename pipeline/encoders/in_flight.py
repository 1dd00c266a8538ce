"""Several requests under way at once, their results handed over one by one as they arrive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

from pipeline.endpoint import Stopped

Job = TypeVar("Job")
Result = TypeVar("Result")
Client = TypeVar("Client")

_READY = 2
"""Finished results that may wait for each place in flight, before no more jobs are started."""


class InFlight(Generic[Job, Result, Client]):
    """Works jobs off in an event loop of its own thread, so that it serves callers with and without a loop.

    Args:
        open_client: opened once, closed at the end.
        work: does one job; told by the event that another failed, so that it need not try again.
        most: jobs under way at once.
    """

    def __init__(
        self,
        open_client: Callable[[], AbstractAsyncContextManager[Client]],
        work: Callable[[Client, Job, asyncio.Event], Awaitable[Result]],
        most: int,
    ) -> None:
        self._open_client = open_client
        self._work = work
        self._most = most

    def results(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """Results in the order of their arrival.

        After a failure no job is started, those under way are awaited and their results handed over, and only then
        the failure is raised: what was received, and paid for, is not lost. Closing the iterator cancels the rest.
        """
        done: SimpleQueue[Result | _End] = SimpleQueue()
        run = _Run(self, iter(jobs), done)
        thread = threading.Thread(target=run.start, name="requests", daemon=True)
        thread.start()
        try:
            while not isinstance(item := done.get(), _End):
                run.make_room()
                yield item
            if item.failure:
                raise item.failure
        finally:
            run.cancel()
            thread.join()

    async def _worker(self, client: Client, run: _Run[Job, Result, Client]) -> None:
        while True:
            await run.room.acquire()
            if run.stop.is_set() or (job := next(run.jobs, None)) is None:
                run.room.release()
                return
            try:
                run.done.put(await self._work(client, job, run.stop))
            except Stopped:
                return
            except Exception as error:
                run.failure = run.failure or error
                run.stop.set()
                run.room.release()
                return


class _End:
    def __init__(self, failure: BaseException | None) -> None:
        self.failure = failure


class _Run(Generic[Job, Result, Client]):
    """One call of `results`: what its two threads share."""

    def __init__(
        self, owner: InFlight[Job, Result, Client], jobs: Iterator[Job], done: SimpleQueue[Result | _End]
    ) -> None:
        self._owner = owner
        self.jobs = jobs
        self.done = done
        self.failure: BaseException | None = None
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self.failure = self.failure or error
        finally:
            self._started.set()
            self.done.put(_End(self.failure))

    def make_room(self) -> None:
        self._call(self.room.release)

    def cancel(self) -> None:
        self._started.wait()
        if self._task:
            self._call(self._task.cancel)

    def _call(self, action: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(action)

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self.stop = asyncio.Event()
        self.room = asyncio.Semaphore(self._owner._most * (1 + _READY))
        self._started.set()
        async with self._owner._open_client() as client:
            await asyncio.gather(*(self._owner._worker(client, self) for _ in range(self._owner._most)))
