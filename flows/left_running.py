"""Flow runs whose process is gone: Prefect would show them and their tasks as running, so the next flow ends them.

While a flow runs, its process holds a lock on a file below PREFECT_HOME that is named after the flow run. Whatever ends
the process releases the lock, so who can take it knows that nobody runs that flow any more.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

from httpx import HTTPError
from prefect import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_HOME
from prefect.states import Crashed

from darklode.pipeline.base.artifacts import key_of

MESSAGE = "its process ended without a word, as a killed one does; the same command goes on from there"
ENDING = ".running"


@contextmanager
def watched(lasting: bool) -> Iterator[None]:
    """Hold the lock of the current flow run; first, end the runs that nobody holds one of.

    Args:
        lasting: the server is a configured one; those that a command brings along share one database.
    """
    server = str(PREFECT_API_URL.value()) if lasting else "own"
    folder = Path(PREFECT_HOME.value()) / "darklode" / key_of(server)
    folder.mkdir(parents=True, exist_ok=True)
    end_dead(folder)
    with _held(folder / f"{flow_run.id}{ENDING}"):
        yield


@contextmanager
def _held(path: Path) -> Iterator[None]:
    made = path.with_suffix(".new")  # it has its name when it is locked: no other process takes it for a dead one
    file = os.open(made, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        made.rename(path)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def end_dead(folder: Path) -> None:
    """Mark the flow runs as crashed whose files nobody holds, with their tasks.

    What the server does not take waits for the next time.
    """
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
        state = client.read_flow_run(flow_run_id).state
        if state and not state.is_final():
            client.set_flow_run_state(flow_run_id, Crashed(message=MESSAGE), force=True)
        its = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
        for task_run in client.read_task_runs(flow_run_filter=its):
            if task_run.state and not task_run.state.is_final():
                client.set_task_run_state(task_run.id, Crashed(message=MESSAGE), force=True)
