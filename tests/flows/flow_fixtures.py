"""One Prefect server and one sample run for all tests of the flows, taken by `pytest_plugins = ["flow_fixtures"]`."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import (
    PREFECT,
    Call,
    Environment,
    Outcome,
    SampleRun,
    answers,
    background,
    build_command,
    built,
    free_port,
    mine_command,
    wait_for,
)

from flows import cli


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """`darklode` in this process, for commands that start no flow; so wide that no cell is folded."""
    monkeypatch.setattr(cli.console, "width", 1000)

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["darklode", *map(str, arguments)])
        code = cli.guarded()
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the repository, where commands are started."""
    return tmp_path_factory.mktemp("workplace")


@pytest.fixture(scope="session")
def alone(workplace: Path) -> Environment:
    """The environment of a user without a Prefect server, whose own Prefect profile is not touched."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AWS_", "COLUMNS"))}
    ours = {
        "PREFECT_HOME": str(workplace / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": "127.0.0.1",
    }
    return kept | ours


@pytest.fixture(scope="session")
def served(alone: Environment, workplace: Path) -> Iterator[Environment]:
    """The environment of a user with a Prefect server of their own, on loopback."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    patience = {"PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "1"}  # by default 30
    command = [PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"]
    with background(command, dict(alone) | patience, workplace / "server.log", workplace) as process:
        wait_for(lambda: process.poll() is not None or answers(f"{url}/health"), "the Prefect server")
        assert process.poll() is None, (workplace / "server.log").read_text()
        yield dict(alone) | {"PREFECT_API_URL": url}


@pytest.fixture(scope="session")
def sample_run(served: Environment, workplace: Path) -> SampleRun:
    """The sample, built once by the command, and left alone from then on."""
    folder = workplace / "sample"
    return SampleRun(folder, built(build_command(folder), dict(served) | {"PYTHONHASHSEED": "1"}))


@pytest.fixture(scope="session")
def mined_run(served: Environment, workplace: Path) -> SampleRun:
    """The sample's log, mined once by the command, and left alone from then on."""
    folder = workplace / "mined"
    return SampleRun(folder, built(mine_command(folder), dict(served) | {"PYTHONHASHSEED": "1"}))
