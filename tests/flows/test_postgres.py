"""What of docker-compose.yml runs without containers: its PostgreSQL, Prefect server, deployments and worker."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from helpers.commands import Environment, answers, background, clone, free_port, run_command, tables_of, wait_for
from helpers.compose_file import compose
from helpers.postgres import BINARIES, NOT_INSTALLED, PASSWORD, Postgres
from helpers.runs import SAMPLE

pytestmark = [pytest.mark.server, pytest.mark.slow]

CONTENT = compose({"POSTGRES_PASSWORD": PASSWORD, "JUDGE_API_KEY": "0123abcd"})
SERVICES = CONTENT["services"]


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="darklode-") as folder:  # pytest's own folders are closed to other users
        environment = SERVICES["postgres"]["environment"]
        yield Postgres(Path(folder), environment["POSTGRES_USER"], environment["POSTGRES_DB"])


def command_of(service: str) -> list[str]:
    """A service's command, with the program of this environment."""
    program, *arguments = SERVICES[service]["command"]
    return [str(Path(sys.executable).with_name(program)), *arguments]


def settings_of(out: Path) -> str:
    """The composition's settings file with places of this machine, and the judge that needs no GPU."""
    given = yaml.safe_load(CONTENT["configs"]["darklode"]["content"])
    given["paths"] |= dict.fromkeys(("docs", "queries", "logs"), str(SAMPLE)) | {"out": str(out)}
    return yaml.safe_dump(given | {"judge": {"kind": "embedded"}})


@pytest.mark.skipif(BINARIES is None, reason=NOT_INSTALLED)
def test_the_composition_without_containers_runs_the_sample(
    alone: Environment, tmp_path: Path, postgres: Postgres
) -> None:
    site, port = clone(tmp_path / "clone"), free_port()
    url = f"http://127.0.0.1:{port}/api"
    database = {"PREFECT_SERVER_DATABASE_HOST": "127.0.0.1", "PREFECT_SERVER_DATABASE_PORT": str(postgres.port)}
    served = dict(alone) | SERVICES["server"]["environment"] | database
    server = [
        "127.0.0.1" if part == "0.0.0.0" else str(port) if part == "4200" else part for part in command_of("server")
    ]
    client = (
        dict(alone) | SERVICES["worker"]["environment"] | {"PREFECT_API_URL": url, "PREFECT_WORKER_QUERY_SECONDS": "1"}
    )
    client |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PREFECT_HOME": str(tmp_path / "prefect")}
    log = tmp_path / "worker.log"
    with postgres.serving(), background(server, served, tmp_path / "server.log", tmp_path):
        wait_for(lambda: answers(f"{url}/health"), "the Prefect server")
        file = tmp_path / "darklode.yaml"
        file.write_text(settings_of(tmp_path / "run"))
        for service in ("pool", "deploy", "pool"):  # a second start finds the pool there
            command = [part.replace("/darklode.yaml", str(file)) for part in command_of(service)]
            done = run_command(command, client, site)
            assert done.code == 0, done
        with background(command_of("worker"), client, log, site):
            wait_for(lambda: b"started" in log.read_bytes(), "the worker")
            out = tmp_path / "run"
            prefect = command_of("worker")[0]
            done = run_command([prefect, "deployment", "run", "build-benchmark/local", "--watch"], client, site)
        assert done.code == 0, done
        states = postgres.ask("SELECT state_name, count(*) FROM flow_run WHERE state_name <> 'Scheduled' GROUP BY 1")
        tasks = postgres.ask("SELECT DISTINCT state_name FROM task_run")
    assert (states, tasks) == ("Completed|1\n", "Completed\n")
    assert {"tables/triplets", "tables/verdicts"} <= {f"tables/{name.split('/')[0]}" for name in tables_of(out)}
