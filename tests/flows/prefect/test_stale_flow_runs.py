"""Flow runs whose process was killed are ended by the next flow, or by their guard."""

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from uuid import UUID

import psutil
import pytest
from prefect import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments.runner import RunnerDeployment
from prefect.settings import PREFECT_API_URL, PREFECT_HOME
from prefect.states import Completed, Running

from darklode.flows.jobs.job import Job
from darklode.flows.prefect.deployments import ONE_AT_A_TIME
from darklode.flows.prefect.orchestration import as_flow, run_stage
from darklode.flows.prefect.stale_flow_runs import (
    CLEANUP_LOCK_FILE,
    KILLED_MESSAGE,
    MAX_STARTS,
    RUNNING_SUFFIX,
    _hold_lock,
    mark_crashed,
)
from darklode.pipeline.base.artifacts import key_of
from helpers.commands import PREFECT, Environment, background, server_of, wait_for
from helpers.processes import family, kill
from helpers.staged import killed

HOLD_AND_DIE = """
from pathlib import Path
from darklode.flows.prefect.stale_flow_runs import _hold_lock
with _hold_lock(Path(sys.argv[1])):
    kill()
"""


@pytest.mark.slow
def test_a_lock_that_nobody_holds_is_left_by_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(
        "darklode.flows.prefect.stale_flow_runs._crash", lambda flow_run_id: ended.append(str(flow_run_id))
    )
    dead, alive = (tmp_path / f"{number}0000000-0000-0000-0000-000000000000{RUNNING_SUFFIX}" for number in (1, 2))
    killed(HOLD_AND_DIE, str(dead))
    assert dead.exists()
    with _hold_lock(alive):
        mark_crashed(tmp_path)
        assert (ended, dead.exists(), alive.exists()) == ([dead.stem], False, True)
    assert [path.name for path in tmp_path.iterdir()] == [CLEANUP_LOCK_FILE]
    mark_crashed(tmp_path)
    assert len(ended) == 1


def test_guards_that_look_at_once_end_each_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def crash(flow_run_id: UUID) -> None:
        ended.append(str(flow_run_id))
        time.sleep(0.2)

    monkeypatch.setattr("darklode.flows.prefect.stale_flow_runs._crash", crash)
    dead = [tmp_path / f"{number}0000000-0000-0000-0000-000000000000{RUNNING_SUFFIX}" for number in (1, 2)]
    for path in dead:
        path.touch()
    with ThreadPoolExecutor(2) as guards:
        list(guards.map(mark_crashed, [tmp_path] * 2))
    assert ended == [path.stem for path in dead]


@pytest.mark.slow
@pytest.mark.server
def test_the_next_flow_marks_what_was_killed_as_crashed_and_nothing_else(served: Environment) -> None:
    def nothing() -> str:
        """Do nothing."""
        return "done"

    trivial = as_flow(Job("trivial", nothing))
    with server_of(served), get_client(sync_client=True) as client:
        assert trivial(return_state=True).message == "done"
        folder = Path(PREFECT_HOME.value()) / "darklode" / key_of(str(PREFECT_API_URL.value()))
        assert list(folder.glob(f"*{RUNNING_SUFFIX}")) == []
        runs: list[FlowRun] = [client.create_flow_run(trivial, state=Running()) for _ in range(2)]
        tasks = [client.create_task_run(run_stage, run.id, "0", state=Running()) for run in runs]
        done = client.create_task_run(run_stage, runs[0].id, "1", state=Completed())
        dead, alive = (folder / f"{run.id}{RUNNING_SUFFIX}" for run in runs)
        unknown = folder / f"00000000-0000-0000-0000-000000000000{RUNNING_SUFFIX}"
        for path in (dead, unknown):
            path.touch()
        with _hold_lock(alive):
            assert trivial(return_state=True).is_completed()
            states = [client.read_flow_run(run.id).state for run in runs]
            assert [state and (state.name, state.message) for state in states] == [
                ("Crashed", KILLED_MESSAGE),
                ("Running", None),
            ]
            assert [client.read_task_run(task.id).state_name for task in (*tasks, done)] == [
                "Crashed",
                "Running",
                "Completed",
            ]
            assert list(folder.glob(f"*{RUNNING_SUFFIX}")) == [alive]


WAITING_FLOW = """
import time
from pathlib import Path
from darklode.flows.jobs.job import Job
from darklode.flows.prefect.orchestration import as_flow

def waits(folder: str) -> str:
    \"\"\"Note its start and its end, and wait for a file between them.\"\"\"
    from prefect.runtime import flow_run
    with Path(folder, "log").open("a") as log:
        print("starts", flow_run.id, file=log, flush=True)
        while not Path(folder, "go").exists():
            time.sleep(0.05)
        print("ends", flow_run.id, file=log, flush=True)
    return "done"

waiting_flow = as_flow(Job("waits", waits))
"""


class Queue:
    """A deployment of which one run at a time may work, and a worker for it."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        (folder / "waiting.py").write_text(WAITING_FLOW)
        self.folder = folder
        self.environment = dict(environment) | {"PYTHONPATH": str(folder), "PREFECT_WORKER_QUERY_SECONDS": "1"}
        sys.path.insert(0, str(folder))
        try:
            from waiting import waiting_flow  # type: ignore[import-not-found]
        finally:
            sys.path.remove(str(folder))
            sys.modules.pop("waiting", None)
        self.pool = folder.name.replace("_", "-")
        with get_client(sync_client=True) as client:
            client.create_work_pool(WorkPoolCreate(name=self.pool, type="process"))
        made = waiting_flow.to_deployment(self.pool, concurrency_limit=ONE_AT_A_TIME, work_pool_name=self.pool)
        made.entrypoint = f"{folder}/waiting.py:waiting_flow"
        self.deployment = cast(UUID, cast(RunnerDeployment, made).apply())

    def submit(self, n: int) -> list[UUID]:
        with get_client(sync_client=True) as client:
            folder = {"folder": str(self.folder)}
            return [client.create_flow_run_from_deployment(self.deployment, parameters=folder).id for _ in range(n)]

    @contextmanager
    def worker(self, name: str) -> Iterator[psutil.Process]:
        command = [PREFECT, "worker", "start", "--pool", self.pool]
        with background(command, self.environment, self.folder / f"{name}.log", self.folder) as process:
            yield psutil.Process(process.pid)

    def log(self) -> list[list[str]]:
        path = self.folder / "log"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def states(self, runs: Sequence[UUID]) -> list[StateType | None]:
        with get_client(sync_client=True) as client:
            return [client.read_flow_run(run).state_type for run in runs]


@pytest.fixture
def queue(served: Environment, tmp_path: Path) -> Iterator[Queue]:
    with server_of(served):
        yield Queue(served, tmp_path)


def released_as_expired(run: UUID) -> None:
    """What Prefect's server does five minutes after a killed run renewed its lease."""
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(run).state
        lease = state and state.state_details.deployment_concurrency_lease_id
        assert lease
        client.release_concurrency_slots_with_lease(lease)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("guard_survives", [True, False], ids=["worker and flow killed", "guard killed, too"])
def test_a_killed_workers_run_starts_again_and_no_two_run_at_once(queue: Queue, *, guard_survives: bool) -> None:
    runs = queue.submit(3)
    with queue.worker("first") as worker:
        wait_for(queue.log, "the first run")
        started = family(worker.pid)
        guards = [one for one in started if "stale_flow_runs" in " ".join(one.cmdline())]
        assert len(guards) == 1
        kill([one for one in started if not guard_survives or one not in guards])
    lost = UUID(queue.log()[0][1])
    assert queue.states([lost]) == [StateType.RUNNING]
    if guard_survives:
        wait_for(lambda: queue.states([lost]) == [StateType.SCHEDULED], "the guard", 30)
    else:
        released_as_expired(lost)
    with queue.worker("second"):
        wait_for(lambda: len(queue.log()) == 2, "a queued run")
        wait_for(lambda: queue.states([lost]) != [StateType.RUNNING], "the lost run to be found")
        with pytest.raises(TimeoutError):
            wait_for(lambda: len(queue.log()) > 2, "a run beside it", 6)
        (queue.folder / "go").touch()
        wait_for(lambda: set(queue.states(runs)) == {StateType.COMPLETED}, "all runs")
    events = queue.log()
    assert [event for event, _ in events] == ["starts", *["starts", "ends"] * 3]
    assert all(start[1] == end[1] for start, end in zip(events[1::2], events[2::2], strict=True))
    assert {run for _, run in events[1:]} == {str(run) for run in runs}


@pytest.mark.server
def test_a_run_that_is_killed_each_time_is_given_up(queue: Queue) -> None:
    with get_client(sync_client=True) as client:
        (run,) = queue.submit(1)
        folder = Path(PREFECT_HOME.value()) / "darklode" / key_of(str(PREFECT_API_URL.value()))
        folder.mkdir(parents=True, exist_ok=True)
        found = list[StateType | None]()
        for _ in range(MAX_STARTS):
            client.set_flow_run_state(run, Running(), force=True)
            (folder / f"{run}{RUNNING_SUFFIX}").touch()
            mark_crashed(folder)
            found += queue.states([run])
        assert found == [StateType.SCHEDULED, StateType.SCHEDULED, StateType.CRASHED]
