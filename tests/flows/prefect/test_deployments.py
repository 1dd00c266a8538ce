"""A stranger's way through prefect.yaml: a Prefect server, a work pool, a worker, the deployments, and their runs.

Everything starts in a copy of the repository, as from a fresh clone, and nothing in it may change.
"""

import contextlib
import hashlib
import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from prefect.flows import load_flow_from_entrypoint

from darklode.flows.prefect.naming import artifact_key
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.card import cell
from darklode.pipeline.report.operator import operator_page
from darklode.pipeline.report.page import REPORT_FILE, filled_sections, page
from darklode.schemas.settings import Settings
from helpers.commands import (
    DARKLODE,
    PREFECT,
    STAGES,
    Environment,
    Outcome,
    background,
    built,
    clone,
    one_line,
    run_command,
    run_inside,
    server_of,
    wait_for,
)
from helpers.report_runs import opened
from helpers.runs import REPOSITORY, SAMPLE

pytestmark = pytest.mark.server


DEPLOYMENTS = {
    f"{one['entrypoint'].rpartition('.')[2].replace('_', '-')}/{one['name']}": one
    for one in yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]
}


OVER = {"COMPLETED", "FAILED", "CRASHED"}


class Site:
    """A clone in which a worker runs what was deployed from it."""

    def __init__(self, clone: Path, environment: Environment) -> None:
        self.clone = clone
        self._environment = environment

    def prefect(self, *arguments: str) -> Outcome:
        """Run `prefect …` in the clone; it must succeed."""
        done = run_command([PREFECT, *arguments], self._environment, self.clone)
        assert done.code == 0, done
        return done

    def run(self, deployment: str, **parameters: object) -> tuple[Outcome, dict[str, Any]]:
        """Run a deployment to its end; what was printed, and the flow run."""
        given = [part for name, value in parameters.items() for part in ("--param", f"{name}={json.dumps(value)}")]
        done = run_command(
            [PREFECT, "deployment", "run", deployment, "--watch", "--watch-interval", "1", *given],
            self._environment,
            self.clone,
        )
        newest = {"limit": 1, "sort": "START_TIME_DESC"}
        begun = {"deployment_id": {"is_null_": False}, "start_time": {"is_null_": False}}
        return done, self.ask("/flow_runs/filter", newest | {"flow_runs": begun})[0]

    def inside(self, deployment: str, **parameters: object) -> dict[str, Any]:
        """Run what a deployment names in this process, with its parameters and others; returns the flow run."""
        found = DEPLOYMENTS[deployment]
        flow = load_flow_from_entrypoint(found["entrypoint"])
        with server_of(self._environment), contextlib.chdir(self.clone):
            state = flow(**found["parameters"] | parameters, return_state=True)
        return dict(
            self.ask("/flow_runs/filter", {"flow_runs": {"id": {"any_": [str(state.state_details.flow_run_id)]}}})[0]
        )

    def deployment(self, name: str) -> dict[str, Any]:
        """A deployment of mine-logs, as the server knows it."""
        filters = {"deployments": {"name": {"any_": [name]}}, "flows": {"name": {"any_": ["mine-logs"]}}}
        (found,) = self.ask("/deployments/filter", filters)
        return dict(found)

    def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """The API's answer."""
        url, head = self._environment["PREFECT_API_URL"] + path, {"Content-Type": "application/json"}
        asked = urllib.request.Request(url, json.dumps(body).encode(), head)
        for wait in (0.5, 1, 2, 4, 8, None):
            try:
                with urllib.request.urlopen(asked, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != HTTPStatus.SERVICE_UNAVAILABLE or wait is None:  # busy: its client waits, too
                    raise
                time.sleep(wait)
        return None

    def tasks(self, flow_run: Mapping[str, Any]) -> dict[str, str]:
        """Name of the state of each task of a flow run; the server learns of them a little later than of the run."""
        filters = {"flow_runs": {"id": {"any_": [flow_run["id"]]}}, "limit": 100}
        found: list[dict[str, Any]] = []

        def told() -> bool:
            found[:] = self.ask("/task_runs/filter", filters)
            return all(task["state"] and task["state"]["type"] in OVER for task in found)

        wait_for(told, "states of tasks")
        return {task["name"]: task["state"]["name"] for task in found}

    def artifacts(self, flow_run: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The artifacts of a flow run, by key."""
        filters = {"artifacts": {"flow_run_id": {"any_": [flow_run["id"]]}}, "limit": 100}
        return {artifact["key"]: artifact for artifact in self.ask("/artifacts/filter", filters)}


def contents(folder: Path) -> dict[str, str]:
    """Hash of every file below a folder, bytecode left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def site(served: Environment, workplace: Path) -> Iterator[Site]:
    """The steps that prefect.yaml's first lines name, in their order."""
    site = clone(workplace / "clone")
    before = contents(site)
    ours = Site(site, served)
    ours.prefect("work-pool", "create", "--type", "process", "local")
    ours.prefect("--no-prompt", "deploy", "--all")
    log = workplace / "worker.log"
    impatient = dict(served) | {"PREFECT_WORKER_QUERY_SECONDS": "1"}
    with background([PREFECT, "worker", "start", "--pool", "local"], impatient, log, workplace):
        wait_for(lambda: b"started" in log.read_bytes(), "the worker")
        yield ours
    assert contents(site) == before


def test_the_header_of_prefect_yaml_names_these_steps() -> None:
    head = (REPOSITORY / "prefect.yaml").read_text().split("name: darklode")[0]
    steps = [line.removeprefix("#   ") for line in head.splitlines() if line.startswith("#   ")]
    assert steps == [
        "prefect server start",
        "export PREFECT_API_URL=http://127.0.0.1:4200/api",
        "prefect work-pool create --type process local",
        "prefect --no-prompt deploy --all",
        "prefect worker start --pool local",
        "prefect deployment run build-benchmark/local --watch",
    ]


def test_every_deployment_names_a_flow_and_parameters_that_it_takes() -> None:
    assert list(DEPLOYMENTS) == [
        "build-benchmark/local",
        "audit-retrievers/local",
        "evaluate-systems/local",
        "validate-benchmark/local",
        "adapt-encoder/local",
        "adapt-tenants/local",
        "nightly-adapt/nightly",
        "compare-adapters/local",
        "swap-model/local",
        "train-towers/local",
        "train-reranker/local",
        "distil-judge/local",
        "run-laws/local",
        "measure-entropy/local",
        "generate-queries/local",
        "build-index/local",
        "update-index/local",
        "mine-logs/nightly",
        "mine-logs/backfill",
    ]
    for deployment in DEPLOYMENTS.values():
        load_flow_from_entrypoint(deployment["entrypoint"]).validate_parameters(deployment["parameters"])


Finished = tuple[str, dict[str, Any], str]


@pytest.fixture(scope="module")
def finished(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run that the worker built, its flow run, and what there is to show of it before other flows add to it."""
    out = str(tmp_path_factory.mktemp("deployed") / "run")
    done, flow_run = site.run("build-benchmark/local", out=out)
    assert (done.code, flow_run["state"]["name"]) == (0, "Completed"), done
    return out, flow_run, operators(Run(out), Settings())


@pytest.mark.slow
def test_a_deployed_build_runs_to_completed(site: Site, finished: Finished) -> None:
    out, flow_run, shows = finished
    assert set(STAGES) <= site.tasks(flow_run).keys()
    assert set(site.tasks(flow_run).values()) == {"Completed"}

    run = Run(out)
    triplets = run.tables("triplets").read("triplets").to_pylist()
    assert len(triplets) > 40
    assert all(row["query"] and row["positive"] and row["positive"] not in row["negatives"] for row in triplets)

    shown = site.artifacts(flow_run)
    key = artifact_key(out)
    assert set(shown) == {key, f"{key}-progress"}, "one page and one bar a run, whatever it is made of"
    assert (shown[key]["type"], shown[key]["description"]) == ("markdown", out)
    assert shown[key]["data"] == shows
    assert "## Funnel" in shown[key]["data"]
    assert "| clean.noise | queries |" in shown[key]["data"]
    assert "| bm25 |" in shown[key]["data"]
    assert f"`{out}/report.html`" in shown[key]["data"]
    assert (shown[f"{key}-progress"]["data"], shown[f"{key}-progress"]["description"]) == (100.0, "complete")
    assert flow_run["name"] == f"{'/'.join(out.split('/')[-2:])} {flow_run['expected_start_time'][:10]}"


@pytest.mark.slow
def test_a_second_build_is_shown_as_cached(site: Site, finished: Finished) -> None:
    out, flow_run, _ = finished
    again = site.inside("build-benchmark/local", out=out)
    assert (again["state"]["name"], again["id"] != flow_run["id"]) == ("Completed", True)
    assert set(site.tasks(again).values()) == {"Cached"}


@pytest.mark.slow
def test_an_audit_shows_what_it_measured(site: Site, finished: Finished, tmp_path: Path) -> None:
    out = str(shutil.copytree(finished[0], tmp_path / "run"))
    audit = site.inside("audit-retrievers/local", out=out, settings={"evaluate": {"n_resamples": 50}})
    assert audit["state"]["name"] == "Completed"
    assert site.tasks(audit)["audit"] == "Completed"
    measured = Run(out).tables("audit_retrievers").read("audit_retrievers").to_pylist()
    page = site.artifacts(audit)[artifact_key(out)]["data"]
    assert all(f"| {row['retriever']} | {cell(row['recall'])} |" in page for row in measured)
    assert {row["retriever"] for row in measured} >= {"bm25", "ppmi"}


@pytest.mark.slow
def test_a_run_that_is_held_back_fails_and_shows_why(site: Site, finished: Finished) -> None:
    held = site.inside("validate-benchmark/local", out=finished[0], settings={"validation": {"min_kappa": 0.5}})
    assert (held["state"]["type"], held["state"]["name"]) == ("FAILED", "Held")
    assert held["state"]["message"].startswith(f"{finished[0]} cannot be published: kappa is unknown")
    assert site.tasks(held)["review_sample"] == "Completed"
    assert "## Release requirements\n\n| figure |" in site.artifacts(held)[artifact_key(finished[0])]["data"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deployment", "source"), [("build-benchmark/local", "docs"), ("mine-logs/nightly", "logs")], ids=["build", "mine"]
)
def test_a_flow_without_its_source_fails(site: Site, tmp_path: Path, deployment: str, source: str) -> None:
    failed = site.inside(deployment, out=str(tmp_path / "run"), **{source: "nowhere"})
    assert failed["state"]["name"] == "Failed"
    assert failed["state"]["message"] == "nowhere does not exist; give a file or a folder"
    logged = site.ask("/logs/filter", {"logs": {"flow_run_id": {"any_": [failed["id"]]}}})
    assert not [line for line in logged if "Traceback" in line["message"]]


@pytest.mark.slow
def test_a_worker_names_all_that_is_in_the_way_and_logs_no_traceback(site: Site, tmp_path: Path) -> None:
    wrong = {"docs": "nowhere", "queries": "elsewhere", "settings": {"judge": {"human_labels": "lost.csv"}}}
    _, failed = site.run("build-benchmark/local", out=str(tmp_path / "run"), **wrong)
    assert failed["state"]["name"] == "Failed"
    said = failed["state"]["message"].splitlines()
    assert said[:2] == [f"{name} does not exist; give a file or a folder" for name in ("nowhere", "elsewhere")]
    assert len(said) == 3
    assert "lost.csv" in said[2]
    assert not (tmp_path / "run").exists()
    of_run = {"logs": {"flow_run_id": {"any_": [failed["id"]]}}}

    def messages() -> list[str]:
        return [line["message"] for line in site.ask("/logs/filter", of_run)]

    wait_for(lambda: any("Finished in state Failed" in line for line in messages()), "the run's log")
    wait_for(lambda: not works_on(failed["id"]), "the end of the run's process, which sends what it logged")
    assert not [line for line in messages() if "Traceback" in line or "unexpected exception" in line]


def works_on(flow_run: str) -> bool:
    """Whether a process for a flow run is there."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if flow_run in process.cmdline() or process.environ().get("PREFECT__FLOW_RUN_ID") == flow_run:
                return True
    return False


def operators(run: Run, settings: Settings) -> str:
    """The page that Prefect is to show of a run."""
    with opened(run, settings) as given:
        assert run.store.read(REPORT_FILE) == page(given)
        return operator_page(run.store.url, given, list(filled_sections(given)))


# Deployments of one's own


@pytest.fixture(scope="module")
def own(site: Site, served: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A settings file as `darklode init` writes it, for both jobs, deployed under its own name with a time."""
    file = tmp_path_factory.mktemp("own") / "mine.yaml"
    data = [part for name in ("docs", "queries", "logs") for part in (f"--{name}", str(SAMPLE))]
    built([DARKLODE, "init", str(file), *data, "--runs", str(file.parent / "runs")], served)
    cron = ["--cron", "30 2 * * *", "--timezone", "Europe/Berlin"]
    printed = built([DARKLODE, "deploy", "--config", str(file), *cron], served)
    assert "build-benchmark/mine  on demand\nmine-logs/mine  30 2 * * * Europe/Berlin\n" in printed
    assert "prefect worker start --pool local\n" in printed
    assert "prefect deployment run mine-logs/mine --watch\n" in printed
    return file


def mined_days(out: str) -> list[str]:
    return [str(day) for day in Run(out).tables().sql("SELECT DISTINCT date FROM click_evidence ORDER BY date")["date"]]


@pytest.mark.slow
def test_a_settings_file_is_deployed_and_its_nights_come_one_after_the_other(site: Site, own: Path) -> None:
    found = site.deployment("mine")
    assert [(one["schedule"]["cron"], one["schedule"]["timezone"]) for one in found["schedules"]] == [
        ("30 2 * * *", "Europe/Berlin")
    ]
    assert found["parameters"] == {"config": str(own)}
    assert found["global_concurrency_limit"]["limit"] == 1
    parameters = {"parameters": {"first": "2026-03-02", "last": "2026-03-03"}}
    ids = [site.ask(f"/deployments/{found['id']}/create_flow_run", parameters)["id"] for _ in range(2)]
    filters = {"flow_runs": {"id": {"any_": ids}}, "sort": "END_TIME_DESC"}

    def over() -> bool:
        return all(run["state"]["type"] in OVER for run in runs())

    def runs() -> list[dict[str, Any]]:
        return list(site.ask("/flow_runs/filter", filters))

    wait_for(over, "two nights", 300)
    later, sooner = runs()
    assert [later["state"]["name"], sooner["state"]["name"]] == ["Completed", "Completed"]
    assert sooner["end_time"] <= later["start_time"]
    assert set(site.tasks(sooner).values()) == {"Completed"}
    assert set(site.tasks(later).values()) == {"Cached"}
    out = str(own.parent / "runs" / "mined")
    assert mined_days(out) == ["2026-03-02", "2026-03-03"]

    (shown,) = (one["data"] for one in site.artifacts(later).values())  # nothing ran: no bar
    assert shown == operators(Run(out), Settings())
    assert "## Triplets by source" in shown
    assert "| 2026-03-02 |" in shown


@pytest.mark.slow
def test_what_is_deployed_again_is_replaced(site: Site, served: Environment, own: Path) -> None:
    named = ["--name", "again", "--pool", "another"]
    built([DARKLODE, "deploy", "--config", str(own), *named, "--cron", "0 4 * * *"], served)
    assert len(site.deployment("again")["schedules"]) == 1
    built([DARKLODE, "deploy", "--config", str(own), *named], served)
    assert site.deployment("again")["schedules"] == []
    assert site.deployment("again")["work_pool_name"] == "another"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cron", "0 3 * *"], "--cron '0 3 [*] [*]' is invalid; example"),
        (["--cron", "0 3 * * *", "--timezone", "Mars"], "--timezone 'Mars' is invalid; example"),
        (["--name", "a/b"], "--name: Name 'a/b' contains an invalid character"),
        (["--pool", "a/b"], "--pool: "),
        (["--pool", "prefect-own"], "rejected the deployment: .*reserved"),
    ],
)
def test_what_cannot_be_deployed_is_one_line(served: Environment, own: Path, options: list[str], message: str) -> None:
    one_line(
        run_inside([DARKLODE, "deploy", "--config", str(own), *options], served),
        message,
        1 + ("rejected" not in message),
    )


def test_a_file_without_queries_and_log_has_nothing_to_deploy(served: Environment, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("paths: {docs: handbook}\n")
    one_line(
        run_inside([DARKLODE, "deploy", "--config", str(tmp_path / "x.yaml")], served), "nothing to deploy", code=2
    )


def test_without_a_server_it_says_how_to_start_one(alone: Environment, own: Path) -> None:
    one_line(run_inside([DARKLODE, "deploy", "--config", str(own)], alone), "prefect server start")
    missing = run_inside([DARKLODE, "deploy", "--config", str(own.with_name("nope.yaml"))], alone)
    one_line(missing, "nope.yaml", code=2)
    assert "Prefect" not in missing.err, "the file is wrong, whatever the server is"


# mine-logs


@pytest.mark.slow
def test_nights_are_scheduled_one_at_a_time(site: Site) -> None:
    nightly = site.deployment("nightly")
    assert [(one["schedule"]["cron"], one["schedule"]["timezone"]) for one in nightly["schedules"]] == [
        ("0 3 * * *", "UTC")
    ]
    assert nightly["global_concurrency_limit"]["limit"] == 1
    assert nightly["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    backfill = site.deployment("backfill")
    assert (backfill["schedules"], backfill["global_concurrency_limit"]["limit"]) == ([], 1)

    filters = {"deployment_id": {"any_": [nightly["id"]]}, "state": {"type": {"any_": ["SCHEDULED"]}}}
    due: list[str] = []

    def scheduled() -> list[str]:
        found = site.ask("/flow_runs/filter", {"flow_runs": filters, "sort": "EXPECTED_START_TIME_ASC"})
        due[:] = [run["expected_start_time"] for run in found]
        return due

    wait_for(scheduled, "the scheduler")
    assert all(time[10:19] == "T03:00:00" for time in due)
    assert len({time[:10] for time in due}) == len(due)


@pytest.mark.slow
def test_a_backfill_reads_its_days(site: Site, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    flow_run = site.inside("mine-logs/backfill", out=out, first="2026-03-02", last="2026-03-04")
    assert flow_run["state"]["name"] == "Completed"
    assert flow_run["name"].endswith("/run 2026-03-02 to 2026-03-04")
    assert mined_days(out) == ["2026-03-02", "2026-03-03", "2026-03-04"]
