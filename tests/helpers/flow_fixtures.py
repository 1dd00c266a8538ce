"""One Prefect server and one run of each kind for all tests of the flows; and the command line in this process."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from helpers.commands import (
    DARKLODE,
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
    run_command,
    run_inside,
    wait_for,
)


@pytest.fixture
def call() -> Call:
    """`darklode` in this process, for commands that start no flow; the environment is the test's own."""

    def run(*arguments: object) -> Outcome:
        return run_inside([DARKLODE, *map(str, arguments)], os.environ)

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
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test session share, where pytest-xdist made several."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def sample_run(served: Environment, finished_runs: Path) -> SampleRun:
    """The sample, built once by the command, and left alone from then on."""
    folder = finished_runs / "sample"
    return made_once(folder, build_command(folder), served)


@pytest.fixture(scope="session")
def mined_run(served: Environment, finished_runs: Path) -> SampleRun:
    """The sample's log, mined once by the command, and left alone from then on."""
    folder = finished_runs / "mined"
    return made_once(folder, mine_command(folder), served)


def made_once(folder: Path, command: list[str], environment: Environment) -> SampleRun:
    """Run the command unless another process of the session did; that one is waited for."""
    printed = folder.with_suffix(".log")
    with FileLock(folder.with_suffix(".lock")):
        if not printed.exists():
            printed.write_text(built(command, dict(environment) | {"PYTHONHASHSEED": "1"}, run_command))
    return SampleRun(folder, printed.read_text())


@pytest.fixture
def copied(sample_run: SampleRun, tmp_path: Path) -> Path:
    """A run of one's own, as finished as the sample's."""
    return Path(shutil.copytree(sample_run.folder, tmp_path / "run"))


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the build `run`, the encoder `model` and `adapter`, which hands an adapted one over; left alone."""
    from helpers.adapted import build_to_adapt, shipped_adapter

    root = tmp_path_factory.mktemp("shipped")
    shipped_adapter(root, build_to_adapt(root / "run"))
    return root


@pytest.fixture(scope="session")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `vectors.parquet`, the encoder `model` and the index `index` of the vectors; left alone."""
    pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    from helpers.indexed import IDS, clustered, made, put_vectors

    root = tmp_path_factory.mktemp("indexed")
    made(root, put_vectors(root / "vectors.parquet", IDS, clustered()))
    return root
