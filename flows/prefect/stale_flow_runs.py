"""Flow runs whose process was killed: Prefect would show them and their tasks as running for ever.

While a flow runs, its process holds a lock on a file below PREFECT_HOME that is named after the flow run. Any end of
the process releases the lock, so a process that can take it knows that the flow run is dead. The next flow on the
machine checks all such files. A deployment's run also has a guard: a small process that waits for the lock, so that
queued runs need not wait until Prefect's lease on the concurrency slot expires.

A deployment's run that was marked as crashed is started again, at most `MAX_STARTS` times in total.
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

KILLED_MESSAGE = "The process was killed. Run the same command again to resume."
RUNNING_SUFFIX = ".running"  # of the files that running flows hold locked
CLEANUP_LOCK_FILE = "ending.lock"  # held while dead runs are marked as crashed
MAX_STARTS = 3
"""Limits restarts of a run that crashes its machine each time."""

REPORT_SECONDS = 5.0
"""Within this time a live worker itself reports that a flow's process was killed."""

LEASE_SECONDS = 60.0
"""Prefect's minimum."""

_SLOT_HOLDING_STATES = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
"""States in which a run holds a slot of its deployment's concurrency limit."""

_GUARD_PROGRAM = """
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
"""Waits for the lock; if its file still exists then, the holder was killed. Imports little, since it runs long."""


@contextmanager
def watch_run(is_persistent: bool) -> Iterator[None]:
    """Hold the lock of the current flow run; first, mark dead runs as crashed.

    Args:
        is_persistent: the server is configured; servers that commands start share one database.
    """
    server = str(PREFECT_API_URL.value()) if is_persistent else "own"
    folder = Path(PREFECT_HOME.value()) / "darklode" / key_of(server)
    folder.mkdir(parents=True, exist_ok=True)
    mark_crashed(folder)
    path = folder / f"{flow_run.id}{RUNNING_SUFFIX}"
    with _hold_lock(path), guard_run(path) if deployment.id else nullcontext():
        yield


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    temporary = path.with_suffix(".new")  # renamed once locked, so no process takes it for a dead run's
    file = os.open(temporary, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        temporary.rename(path)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


@contextmanager
def guard_run(path: Path) -> Iterator[None]:
    """Start a process that calls `mark_crashed` if this process is killed."""
    cleanup = [sys.executable, "-m", "darklode.flows.prefect.stale_flow_runs", str(path.parent)]
    command = [sys.executable, "-I", "-S", "-c", _GUARD_PROGRAM, str(path), str(REPORT_SECONDS), *cleanup]
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


def mark_crashed(folder: Path) -> None:
    """Mark flow runs as crashed whose lock nobody holds, with their tasks; one process at a time, each run once.

    What the server rejects is tried again the next time.
    """
    with (folder / CLEANUP_LOCK_FILE).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in sorted(folder.glob(f"*{RUNNING_SUFFIX}")):
            if _is_unlocked(path):
                with suppress(HTTPError, PrefectException):
                    _crash(UUID(path.stem))
                    path.unlink(missing_ok=True)


def _is_unlocked(path: Path) -> bool:
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
        run_filter = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
        for task_run in client.read_task_runs(flow_run_filter=run_filter):  # first: a restarted run has new task runs
            if task_run.state and not task_run.state.is_final():
                client.set_task_run_state(task_run.id, Crashed(message=KILLED_MESSAGE), force=True)
        if dead.state and not dead.state.is_final():
            _keep_slots_of_others(client, dead)
            cancelled = dead.state.is_cancelling()
            ended: State[Any] = Cancelled(message=KILLED_MESSAGE) if cancelled else Crashed(message=KILLED_MESSAGE)
            client.set_flow_run_state(flow_run_id, ended, force=True)
            if dead.deployment_id and not cancelled and dead.run_count < MAX_STARTS:
                again: State[Any] = AwaitingRetry(message="The process was killed; the run resumes.")
                client.set_flow_run_state(flow_run_id, again, force=True)


def _keep_slots_of_others(client: SyncPrefectClient, dead: FlowRun) -> None:
    """Ensure that ending a run frees only its own concurrency slot.

    Prefect frees a slot whenever a run ends. If the run's lease has expired, its slot is already free and may be held
    by another run. Such a run gets a lease on a limit that does not exist, and its end releases that.
    """
    if dead.deployment_id is None or dead.state is None:
        return
    lease_id = dead.state.state_details.deployment_concurrency_lease_id
    if (lease_id and _renew_lease(client, lease_id)) or _holds_slot(client, dead.id, dead.deployment_id):
        return
    granted = client.increment_concurrency_slots_with_lease(
        names=[f"none-{dead.id}"], slots=1, mode="concurrency", lease_duration=LEASE_SECONDS
    )
    holding: State[Any] = Pending()  # frees no slot and, unlike Running, is not counted as a start
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
    """Whether a run without a known lease still holds a slot, as after a restart of a server that stores no leases.

    Other runs are counted before and after, since they may start or end meanwhile.
    """
    before = _n_others(client, flow_run_id, deployment_id)
    limit = client.read_deployment(deployment_id).global_concurrency_limit
    after = _n_others(client, flow_run_id, deployment_id)
    return limit is None or limit.active_slots > max(before, after)


def _n_others(client: SyncPrefectClient, flow_run_id: UUID, deployment_id: UUID) -> int:
    occupying = FlowRunFilter(
        id=FlowRunFilterId(not_any_=[flow_run_id]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_SLOT_HOLDING_STATES)),
    )
    of_deployment = DeploymentFilter(id=DeploymentFilterId(any_=[deployment_id]))
    return len(client.read_flow_runs(flow_run_filter=occupying, deployment_filter=of_deployment))


if __name__ == "__main__":
    mark_crashed(Path(sys.argv[1]))
