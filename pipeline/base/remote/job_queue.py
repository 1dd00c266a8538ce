"""Queue of the jobs of calls: assigns them to servers with free slots, and collects their results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Generic, TypeVar

from darklode.pipeline.base.remote.call_errors import Stopped
from darklode.pipeline.base.remote.replicas import Replica, Replicas, Slot

GATHER_SECONDS = 0.02
"""Results that arrive within this time are returned together."""
WAITING_PER_CALL = 3
"""Jobs waiting for a retry, and results waiting to be consumed, per call in flight."""

Job = TypeVar("Job")
Result = TypeVar("Result")


class _End:
    """Marks the end of the results."""


class JobQueue(Generic[Job, Result]):
    """Assigns jobs to servers with free slots and collects results; created in a running event loop.

    Args:
        replicas: the servers.
        most_in_flight: maximum number of concurrent calls.
        groups: groups of jobs; a group goes to one server, unless others would be idle.
        work: executes a job, beginning with the given slot, and releases the slot; its result is not None.

    Attributes:
        failure: the first failure of a job; None: none has failed.
    """

    def __init__(
        self,
        replicas: Replicas,
        most_in_flight: int,
        groups: Iterable[Iterable[Job]],
        work: Callable[[Job, Slot], Awaitable[Result]],
    ) -> None:
        self._replicas, self._work = replicas, work
        self._groups, self._groups_by_replica = iter(groups), dict[Replica, Iterator[Job]]()
        max_waiting = most_in_flight * (1 + WAITING_PER_CALL)
        self._capacity, self._results = asyncio.Semaphore(max_waiting), asyncio.Queue[Result | _End]()
        self._tasks, self._n_running = set[asyncio.Task[None]](), 0
        self._assigning = asyncio.create_task(self._assign_jobs())
        self.failure: Exception | None = None

    async def gather(self) -> list[Result]:
        """Results since the last call; empty at the end."""
        results, item = list[Result](), await self._results.get()
        if self._n_running:
            await asyncio.sleep(GATHER_SECONDS)
        while not isinstance(item, _End):
            results.append(item)
            self._capacity.release()
            if self._results.empty():
                return results
            item = self._results.get_nowait()
        if results:
            self._results.put_nowait(item)
        return results

    async def cancel(self) -> None:
        """Cancel all running jobs."""
        tasks = [self._assigning, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _assign_jobs(self) -> None:
        try:
            while True:
                await self._capacity.acquire()
                slot = await self._replicas.enter(is_new_job=True)
                try:
                    job = self._next_job(slot.replica)
                except BaseException:
                    self._replicas.leave(slot, None, answered=False)
                    raise
                task = asyncio.create_task(self._work_off(job, slot))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (StopIteration, Stopped):
            pass
        except Exception as error:
            self._fail(error)
        await asyncio.gather(*self._tasks)
        self._results.put_nowait(_End())

    def _next_job(self, replica: Replica) -> Job:
        """The next job for a server: of its own group, of a new group, or of another server's group.

        Raises:
            StopIteration: there are no more jobs.
        """
        for job in self._groups_by_replica.get(replica, ()):
            return job
        for group in self._groups:
            self._groups_by_replica[replica] = iter(group)
            for job in self._groups_by_replica[replica]:
                return job
        return next(job for group in self._groups_by_replica.values() for job in group)

    async def _work_off(self, job: Job, slot: Slot) -> None:
        """Execute a job, and further ones as long as there are jobs and free slots: a task per job costs more time."""
        next_: tuple[Job, Slot] | None = job, slot
        while next_:
            job, slot = next_
            await self._execute(job, slot)
            next_ = await self._next()

    async def _next(self) -> tuple[Job, Slot] | None:
        """A job and a slot for it, if both are available now."""
        if self._replicas.is_stopped or self._capacity.locked() or self._replicas.has_waiting_calls:
            return None
        if not (slot := self._replicas.try_enter()):
            return None
        try:
            job = self._next_job(slot.replica)
        except Exception as error:
            self._replicas.leave(slot, None, answered=False)
            if not isinstance(error, StopIteration):
                self._fail(error)  # as in `_assign_jobs`, which sees no error of this task
            return None
        await self._capacity.acquire()  # does not wait
        return job, slot

    async def _execute(self, job: Job, slot: Slot) -> None:
        self._n_running += 1
        result: Result | _End | None = None
        try:
            result = await self._work(job, slot)
        except Stopped:
            pass
        except Exception as error:
            self._fail(error)
        finally:
            self._n_running -= 1
        if result is None:
            self._capacity.release()
        else:
            self._results.put_nowait(result)

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self._replicas.stop()
