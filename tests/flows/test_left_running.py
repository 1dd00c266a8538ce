"""Flow runs whose process was killed are ended by the next flow."""

from pathlib import Path

import pytest
from prefect import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, PREFECT_HOME
from prefect.states import Completed, Running

from darklode.flows.left_running import ENDING, MESSAGE, _held, end_dead
from darklode.flows.orchestration import as_flow, run_stage
from darklode.pipeline.base.artifacts import key_of
from helpers.commands import Environment, server_of
from helpers.staged import killed

HOLD_AND_DIE = """
from pathlib import Path
from darklode.flows.left_running import _held
with _held(Path(sys.argv[1])):
    kill()
"""


def test_a_lock_that_nobody_holds_is_left_by_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr("darklode.flows.left_running._crash", lambda flow_run_id: ended.append(str(flow_run_id)))
    dead, alive = (tmp_path / f"{number}0000000-0000-0000-0000-000000000000{ENDING}" for number in (1, 2))
    killed(HOLD_AND_DIE, str(dead))
    assert dead.exists()
    with _held(alive):
        end_dead(tmp_path)
        assert (ended, dead.exists(), alive.exists()) == ([dead.stem], False, True)
    assert list(tmp_path.iterdir()) == []
    end_dead(tmp_path)
    assert len(ended) == 1


@pytest.mark.server
def test_the_next_flow_marks_what_was_killed_as_crashed_and_nothing_else(served: Environment) -> None:
    def nothing() -> str:
        """Do nothing."""
        return "done"

    trivial = as_flow("trivial", nothing)
    with server_of(served), get_client(sync_client=True) as client:
        assert trivial(return_state=True).message == "done"
        folder = Path(PREFECT_HOME.value()) / "darklode" / key_of(str(PREFECT_API_URL.value()))
        assert list(folder.iterdir()) == []
        runs: list[FlowRun] = [client.create_flow_run(trivial, state=Running()) for _ in range(2)]
        tasks = [client.create_task_run(run_stage, run.id, "0", state=Running()) for run in runs]
        done = client.create_task_run(run_stage, runs[0].id, "1", state=Completed())
        dead, alive = (folder / f"{run.id}{ENDING}" for run in runs)
        unknown = folder / f"00000000-0000-0000-0000-000000000000{ENDING}"
        for path in (dead, unknown):
            path.touch()
        with _held(alive):
            assert trivial(return_state=True).is_completed()
            states = [client.read_flow_run(run.id).state for run in runs]
            assert [state and (state.name, state.message) for state in states] == [
                ("Crashed", MESSAGE),
                ("Running", None),
            ]
            assert [client.read_task_run(task.id).state_name for task in (*tasks, done)] == [
                "Crashed",
                "Running",
                "Completed",
            ]
            assert list(folder.iterdir()) == [alive]
