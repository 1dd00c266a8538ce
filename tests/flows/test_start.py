"""The first moments of the command: Ctrl-C, an ASCII locale, an output that nobody reads to its end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.finished_run import finished_run
from helpers.runs import PYTHONPATH

ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
COMMAND = [sys.executable, "-m", "darklode"]

INTERRUPTED = """
import os, signal, sys, threading
from darklode.flows.start import main

sys.argv = ["darklode", "doctor"]
threading.Timer(float(os.environ["SECONDS"]), os.kill, (os.getpid(), signal.SIGINT)).start()
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return finished_run(str(tmp_path_factory.mktemp("finished") / "run")).store.url


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": PYTHONPATH} | more


@pytest.mark.slow
@pytest.mark.parametrize("seconds", ["0.01", "0.1", "0.3"])
def test_an_early_interrupt_is_one_line(seconds: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, env=environment(SECONDS=seconds), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (
        130,
        "",
        "interrupted; run the same command again to resume\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize("locale", [ASCII, ASCII | {"PYTHONUTF8": ""}], ids=["UTF-8 mode forbidden", "ASCII locale"])
def test_queries_in_an_ascii_locale_are_read_and_answered_in_utf8(folder: str, locale: dict[str, str]) -> None:
    command = [*COMMAND, "query", folder, "SELECT 'für' AS x, length('für') AS n", "--format", "json"]
    done = subprocess.run(command, env=environment(**locale), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert '"x": "für"'.encode() in done.stdout
    assert b'"n": 3' in done.stdout


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_command_goes_on_where_nobody_reads_its_output(folder: str, form: str) -> None:
    """As with `| head`: the exit code is that of the work."""
    command = [*COMMAND, "query", folder, "SELECT repeat('x', 1000) AS text FROM range(500)", "--format", form]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), said) == (0, b"")


def test_an_error_keeps_its_exit_code_where_nobody_reads(tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m darklode verify '{tmp_path}' | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True, check=False)
    assert done.returncode == 1
    assert b"holds no run" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_stop_no_command(closed: str) -> None:
    command = f"'{sys.executable}' -m darklode --version {closed}"
    done = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (closed == "2>&-")
