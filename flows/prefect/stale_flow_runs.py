"""Flow runs whose process is gone: Prefect would show them and their tasks as running, so they are ended here.

While a flow runs, its process holds a lock on a file below PREFECT_HOME that is named after the flow run. Whatever ends
the process releases the lock, so whoever can take it knows that nobody runs that flow any more. The next flow on the
machine looks for such files. A deployment's run has a guard besides: a small process that waits for the lock, so that
queued runs need not wait until Prefect's lease on the concurrency slot expires.

A run of a deployment is started again after it was marked as crashed, at most `MAX_STARTS` times in all.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from httpx import HTTPError, HTTPStatusError, codes
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.runtime import deployment, flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_HOME
from prefect.states import AwaitingRetry, Cancelled, Crashed, Pending

from darklode.pipeline.base.artifacts import key_of

MESSAGE = "its process ended without a word, as a killed one does; the same command goes on from there"
ENDING = ".running"
LOCK = "ending.lock"
MAX_STARTS = 3
"""A run that takes its machine down each time is not started for ever."""

REPORT_SECONDS = 5.0
"""A worker that is alive reports within this time that a flow's process was killed."""

LEASE_SECONDS = 60.0
"""The shortest that Prefect grants."""

_OCCUPYING = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
"""States in which a run holds a slot of its deployment's concurrency limit."""

_GUARD = """
import fcntl, os, sys, time
path, seconds, *command = sys.argv[1:]
try:
    file = os.open(path, os.O_RDWR)
except FileNotFoundError:
    sys.exit()
fcntl.flock(file, fcntl.LOCK_EX)
if os.path.exists(path):
    os.close(file)
    time.sleep(float(seconds))
    os.execv(command[0], command)
"""
"""Waits for a lock; if its file is still there then, the holder was killed. Imports little, as it lasts long."""


@contextmanager
def watch_run(lasting: bool) -> Iterator[None]:
    """Hold the lock of the current flow run; first, end the runs that nobody holds one of.

    Args:
        lasting: the server is a configured one; those that a command brings along share one database.
    """
    server = str(PREFECT_API_URL.value()) if lasting else "own"
    folder = Path(PREFECT_HOME.value()) / "darklode" / key_of(server)
    folder.mkdir(parents=True, exist_ok=True)
    end_dead(folder)
    path = folder / f"{flow_run.id}{ENDING}"
    with _hold_lock(path), guard_run(path) if deployment.id else nullcontext():
        yield


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    made = path.with_suffix(".new")  # it has its name when it is locked: no other process takes it for a dead one
    file = os.open(made, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        made.rename(path)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


@contextmanager
def guard_run(path: Path) -> Iterator[None]:
    """Have a process of its own call `end_dead` if this process is killed."""
    ends = [sys.executable, "-m", "darklode.flows.prefect.stale_flow_runs", str(path.parent)]
    command = [sys.executable, "-I", "-S", "-c", _GUARD, str(path), str(REPORT_SECONDS), *ends]
    guard = subprocess.Popen(  # noqa: S603 (our own program)
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.wait()


def end_dead(folder: Path) -> None:
    """Mark the flow runs as crashed whose files nobody holds, with their tasks; one process at a time, each run once.

    What the server does not take waits for the next time.
    """
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in sorted(folder.glob(f"*{ENDING}")):
            if _free(path):
                with suppress(HTTPError, PrefectException):
                    _crash(UUID(path.stem))
                    path.unlink(missing_ok=True)


def _free(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def _crash(flow_run_id: UUID) -> None:
    with get_client(sync_client=True) as client, suppress(ObjectNotFound):
        dead = client.read_flow_run(flow_run_id)
        its = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
        for task_run in client.read_task_runs(flow_run_filter=its):  # before the run may start again, with new ones
            if task_run.state and not task_run.state.is_final():
                client.set_task_run_state(task_run.id, Crashed(message=MESSAGE), force=True)
        if dead.state and not dead.state.is_final():
            _keep_slots_of_others(client, dead)
            cancelled = dead.state.is_cancelling()
            ended: State[Any] = Cancelled(message=MESSAGE) if cancelled else Crashed(message=MESSAGE)
            client.set_flow_run_state(flow_run_id, ended, force=True)
            if dead.deployment_id and not cancelled and dead.run_count < MAX_STARTS:
                again: State[Any] = AwaitingRetry(message="its process was killed; it goes on where it stopped")
                client.set_flow_run_state(flow_run_id, again, force=True)


def _keep_slots_of_others(client: SyncPrefectClient, dead: FlowRun) -> None:
    """Make sure that ending a run frees its own concurrency slot and no other.

    Prefect frees a slot whenever a run ends. If the run's lease has expired, its slot is free already and may be held
    by another run by now. Such a run gets a lease on nothing, which is what its end then releases.
    """
    if dead.deployment_id is None or dead.state is None:
        return
    lease_id = dead.state.state_details.deployment_concurrency_lease_id
    if (lease_id and _renew_lease(client, lease_id)) or _holds_slot(client, dead.id, dead.deployment_id):
        return
    granted = client.increment_concurrency_slots_with_lease(
        names=[f"none-{dead.id}"], slots=1, mode="concurrency", lease_duration=LEASE_SECONDS
    )
    holding: State[Any] = Pending()  # which frees no slot and, unlike Running, counts as no start
    holding.state_details.deployment_concurrency_lease_id = UUID(granted.json()["lease_id"])
    client.set_flow_run_state(dead.id, holding, force=True)


def _renew_lease(client: SyncPrefectClient, lease_id: UUID) -> bool:
    try:
        client.renew_concurrency_lease(lease_id, LEASE_SECONDS)
    except HTTPStatusError as error:
        if error.response.status_code == codes.GONE:
            return False
        raise
    return True


def _holds_slot(client: SyncPrefectClient, flow_run_id: UUID, deployment_id: UUID) -> bool:
    """Whether a run whose lease is unknown still holds a slot, as after a restart of a server that keeps no leases.

    Others that end or start meanwhile must not make it look so: they are counted before and after.
    """
    before = _n_others(client, flow_run_id, deployment_id)
    limit = client.read_deployment(deployment_id).global_concurrency_limit
    after = _n_others(client, flow_run_id, deployment_id)
    return limit is None or limit.active_slots > max(before, after)


def _n_others(client: SyncPrefectClient, flow_run_id: UUID, deployment_id: UUID) -> int:
    occupying = FlowRunFilter(
        id=FlowRunFilterId(not_any_=[flow_run_id]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_OCCUPYING)),
    )
    of_deployment = DeploymentFilter(id=DeploymentFilterId(any_=[deployment_id]))
    return len(client.read_flow_runs(flow_run_filter=occupying, deployment_filter=of_deployment))


if __name__ == "__main__":
    end_dead(Path(sys.argv[1]))
