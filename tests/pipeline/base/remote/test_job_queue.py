"""Jobs over several servers: every job is done once, groups stay together, errors stop new jobs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

import pytest

from darklode.pipeline.base.remote.budget import Counters
from darklode.pipeline.base.remote.concurrency import ConcurrencyLimit
from darklode.pipeline.base.remote.job_queue import WAITING_PER_CALL, JobQueue
from darklode.pipeline.base.remote.replicas import Replica, Replicas, Slot

SLOTS = 2


def two_replicas() -> Replicas:
    servers = [Replica(name, f"http://{name}", ConcurrencyLimit(SLOTS)) for name in ("a", "b")]
    return Replicas(servers, 10.0, "judge", Counters(), lambda _line: None)


async def drain(queue: JobQueue[str, str]) -> list[str]:
    results: list[str] = []
    try:
        while batch := await queue.gather():
            results += batch
    finally:
        await queue.cancel()
    return results


def test_every_job_is_done_once_on_the_server_of_its_group() -> None:
    servers_of_group: dict[str, set[str]] = defaultdict(set)
    n_running, most_running = 0, 0

    async def go() -> list[str]:
        replicas = two_replicas()

        async def work(job: str, slot: Slot) -> str:
            nonlocal n_running, most_running
            n_running += 1
            most_running = max(most_running, n_running)
            servers_of_group[job.split(maxsplit=1)[0]].add(slot.replica.where)
            await asyncio.sleep(0.001)
            n_running -= 1
            replicas.leave(slot, None, answered=True)
            return job

        groups = ([f"{group} {number}" for number in range(10)] for group in range(10))
        return await drain(JobQueue(replicas, 2 * SLOTS, groups, work))

    results = asyncio.run(go())
    assert sorted(results) == sorted(f"{group} {number}" for group in range(10) for number in range(10))
    assert most_running == 2 * SLOTS
    assert sum(len(servers) > 1 for servers in servers_of_group.values()) <= 1


def test_jobs_wait_for_results_to_be_consumed() -> None:
    started = 0

    async def go() -> int:
        replicas = two_replicas()

        async def work(job: str, slot: Slot) -> str:
            nonlocal started
            started += 1
            replicas.leave(slot, None, answered=True)
            return job

        queue = JobQueue(replicas, 2 * SLOTS, [map(str, range(1000))], work)
        await asyncio.sleep(0.1)
        unconsumed = started
        assert len(await drain(queue)) == 1000
        return unconsumed

    assert asyncio.run(go()) == 2 * SLOTS * (1 + WAITING_PER_CALL)


def test_a_failure_starts_no_further_job() -> None:
    async def go() -> tuple[list[str], Exception | None]:
        replicas = two_replicas()

        async def work(job: str, slot: Slot) -> str:
            await asyncio.sleep(0.001)
            replicas.leave(slot, None, answered=True)
            if job == "20":
                raise ValueError(job)
            return job

        queue = JobQueue(replicas, 2 * SLOTS, one_each(range(1000)), work)
        return await drain(queue), queue.failure

    results, failure = asyncio.run(go())
    assert 20 <= len(results) < 40
    with pytest.raises(ValueError, match="20"):
        raise failure or AssertionError


def one_each(numbers: Iterable[int]) -> Iterable[list[str]]:
    return ([str(number)] for number in numbers)
