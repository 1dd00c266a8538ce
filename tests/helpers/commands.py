"""The command line and Prefect as a user starts them, and the same command line within this process."""

import contextlib
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from darklode.flows import cli
from darklode.flows.jobs.build_benchmark import steps
from darklode.flows.jobs.mine_logs import steps as mine_steps
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import MinedInputs
from darklode.schemas.settings import Settings
from helpers.processes import end
from helpers.runs import REPOSITORY, SAMPLE

DARKLODE = str(Path(sys.executable).with_name("darklode"))
PREFECT = str(Path(sys.executable).with_name("prefect"))
START_SECONDS = 120
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
STAGES = (
    "ingest_documents ingest_queries chunk clean split search pool calibrate judge label triplets held_out audit"
).split()
CLONED = ("src", "flows", "pipeline", "schemas", "prompts", "data/sample", "prefect.yaml", "pyproject.toml")

Environment = Mapping[str, str]
Call = Callable[..., "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


def one_line(shown: Outcome, message: str, code: int = 1) -> None:
    """Assert an exit code and a single readable line on stderr."""
    assert shown.code == code, shown
    assert re.fullmatch(rf"error: [^\n]*{message}[^\n]*\n", shown.err), shown.err
    assert not CONTROL.search(shown.err)


def server_of(environment: Environment) -> contextlib.AbstractContextManager[object]:
    """Flows that are called inside the block run on the environment's Prefect server."""
    return temporary_settings({PREFECT_API_URL: environment.get("PREFECT_API_URL")})


def run_inside(command: list[str], environment: Environment) -> Outcome:
    """Run `darklode …` to its end in this process, with other variables; so wide that no cell is folded."""
    assert command[0] == DARKLODE, "another program needs a process of its own"
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, dict(environment), clear=True),
        pytest.MonkeyPatch.context() as patch,
        server_of(environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["darklode", *command[1:]])
        patch.setattr(cli.console, "width", 1000)
        code = cli.run_guarded()
    return Outcome(code, out.getvalue(), err.getvalue())


def run_command(command: list[str], environment: Environment, folder: Path | None = None) -> Outcome:
    """Run a command to its end, in a process of its own."""
    done = subprocess.run(
        command, env=dict(environment), cwd=folder, capture_output=True, check=False, text=True, timeout=600
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def build_command(out: str | Path, *options: str, docs: Path = SAMPLE, queries: Path = SAMPLE) -> list[str]:
    """`darklode build` on the sample, or on other documents and queries."""
    return [DARKLODE, "build", "--docs", str(docs), "--queries", str(queries), "--out", str(out), *options]


def mine_command(out: str | Path, *options: str, logs: str | Path = SAMPLE, docs: str | Path = SAMPLE) -> list[str]:
    """`darklode mine` on the sample, or on another log and other documents."""
    return [DARKLODE, "mine", "--logs", str(logs), "--docs", str(docs), "--out", str(out), *options]


def built(command: list[str], environment: Environment, how: Callable[..., Outcome] = run_inside) -> str:
    """Run a command that must succeed in silence on stderr; returns what it printed."""
    outcome = how(command, environment)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    return outcome.out


def build_without_prefect(
    url: str | Path, docs: Path, queries: Path, settings: Settings, qrels: Path | None = None
) -> list[str]:
    """The stages of build-benchmark without the flow around them; returns those that did not stand."""
    run, redone = Run(str(url)), []
    for step in steps(str(docs), str(queries), settings, qrels=str(qrels) if qrels else None):
        plan = step.plan(run)
        if not plan.is_up_to_date:
            run.execute(plan, step.execute)
            redone.append(step.stage.name)
    return redone


def mine_without_prefect(
    url: str | Path,
    settings: Settings,
    dates: Collection[date] | None = None,
    *,
    logs: str | Path = SAMPLE,
    docs: str | Path = SAMPLE,
) -> list[str]:
    """A night of mine-logs without the flow around its stages; returns those that did not stand."""
    run, redone = Run(str(url)), []
    write_run(run, MinedInputs(logs=str(logs), docs=str(docs)), settings)
    for step in mine_steps(run, str(logs), str(docs), settings, dates):
        if not step.enabled:
            continue
        plan = step.plan(run)
        if not plan.is_up_to_date:
            run.execute(plan, step.execute)
            redone.append(step.stage.name)
    return redone


def tables_of(folder: str | Path) -> dict[str, bytes]:
    """Every file under `tables/`, hidden ones too, by relative path."""
    root = Path(folder) / "tables"
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert found, f"{root} is empty"
    return found


def clone(folder: Path) -> Path:
    """A copy of the repository's files that a worker needs."""
    for name in CLONED:
        copy = partial(shutil.copytree, symlinks=True) if (REPOSITORY / name).is_dir() else shutil.copy2
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy(REPOSITORY / name, folder / name)
    return folder


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: Callable[[], object], reason: str, seconds: float = START_SECONDS) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: it was not so in time.
    """
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s in vain for {reason}")
        time.sleep(0.02)


def answers(url: str) -> bool:
    """Whether a server answers there."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False


@contextlib.contextmanager
def background(
    command: list[str], environment: Environment, log: Path, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of a block. Stopped as by Ctrl-C; nothing that it started is left over."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=dict(environment), cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        left = end(process, signal.SIGINT, 30)
    assert not left, f"{command} left processes behind: {left}"


@dataclass(frozen=True)
class SampleRun:
    """An undisturbed build or night of the sample. Tests read it or copy it."""

    folder: Path
    printed: str
