"""What a command starts: nothing without a server, and with one a flow run only where a stage has to run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from darklode.flows.job_history import read_history
from darklode.flows.launch import launch
from darklode.flows.prefect.progress import SilentReporter
from darklode.flows.runs import write_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import HeldBack, InputError, MissingPart
from darklode.schemas.run_inputs import MinedInputs
from helpers.commands import Environment, SampleRun, build_command, built, mine_command, run_inside, server_of
from helpers.environment import with_paths
from helpers.hook import listening

pytestmark = pytest.mark.server

STANDS = re.compile(r"^✓ (\w+) .* up to date$", re.M)


@pytest.fixture
def nobody(served: Environment) -> Environment:
    """The environment of a user whose Prefect server does not answer."""
    return dict(served) | {"PREFECT_API_URL": "http://127.0.0.1:9/api"}


@pytest.mark.slow
def test_a_build_that_stands_needs_no_server(sample_run: SampleRun, nobody: Environment, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(sample_run.folder, tmp_path / "run"))
    for name in ("report.html", "README.md", "views.sql"):
        (copied / name).unlink()
    stood = STANDS.findall(built(build_command(copied), nobody))
    assert len(stood) == len(set(stood)) == 14
    assert all((copied / name).exists() for name in ("report.html", "README.md", "views.sql"))

    shown = run_inside(build_command(copied, "--set", "evaluate.n_resamples=50"), nobody)
    assert (shown.code, STANDS.findall(shown.out)) == (1, stood[:-2])
    assert shown.err.startswith("error: PREFECT_API_URL does not answer")


@pytest.mark.slow
def test_a_night_without_anything_new_needs_no_server(
    mined_run: SampleRun, nobody: Environment, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(mined_run.folder, tmp_path / "run"))
    printed = built(mine_command(copied), nobody)
    assert printed.count("no new days in the log") == 1
    assert "mined_test" in STANDS.findall(printed)


@pytest.mark.slow
def test_stages_that_stand_are_reported_once(sample_run: SampleRun, served: Environment, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(sample_run.folder, tmp_path / "run"))
    printed = built(build_command(copied, "--set", "evaluate.n_resamples=50"), served)
    stood = STANDS.findall(printed)
    assert len(stood) == len(set(stood)) == 13
    assert re.search(r"^audit: n_resamples: 1000 → 50\n✓ audit ", printed, re.M)


MINED = """
import sys
from darklode.flows.cli import run_guarded
sys.argv[0] = "darklode"
code = run_guarded()
imported = sorted({name.partition(".")[0] for name in sys.modules} & {"prefect", "uvicorn", "scipy", "sklearn"})
print(imported, file=sys.stderr)
raise SystemExit(code)
"""


@pytest.mark.slow
def test_a_night_without_a_server_needs_no_prefect_and_a_quiet_one_writes_nothing(
    alone: Environment, mined_run: SampleRun, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(mined_run.folder, tmp_path / "run"))
    command = [sys.executable, "-c", MINED, *mine_command(copied, "--no-report")[1:]]
    environment = dict(alone) | {"PYTHONPATH": with_paths()["PYTHONPATH"]}

    def mine(*options: str) -> str:
        """What was imported."""
        arguments = [*command, *options]
        done = subprocess.run(arguments, env=environment, cwd=tmp_path, capture_output=True, check=True, text=True)
        return done.stderr.strip()

    assert "prefect" not in mine("--discard-day", "2026-03-03")
    assert not (copied / "report.html").exists(), "it would be out of date"
    (entry,) = read_history(Run(str(copied)))
    assert (entry.job, entry.state, "admit_days" in entry.stages) == ("mine-logs", "complete", True)

    def written() -> dict[Path, int]:
        """When each file was written, but for the lock and for stamps of files that are verified for the first time."""
        files = (path for path in copied.rglob("*") if path.is_file() and not {"verified", ".lock"} & {*path.parts})
        return {path: path.stat().st_mtime_ns for path in files}

    before = written()
    assert mine() == "[]", "these modules are slow to import"
    assert written() == before


@pytest.fixture
def mined_folder(alone: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A folder as `mine` begins it, and no Prefect server."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    run = Run(str(tmp_path / "run"))
    write_inputs(run, MinedInputs(logs="log", docs="docs"))
    return run


@pytest.mark.parametrize(
    ("error", "state", "posted"),
    [
        (InputError("nowhere does not exist"), "failed", ["failed"]),
        (ValueError("a bug"), "failed", ["failed"]),
        (HeldBack("held back: 2026-03-11"), "held", []),
        (KeyboardInterrupt(), "interrupted", []),
    ],
)
def test_the_end_of_a_job_without_a_server_is_recorded_and_posted(
    alone: Environment,
    mined_folder: Run,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    state: str,
    posted: list[str],
) -> None:
    """Days held back are posted by the job itself, at most once a day."""

    def mine_logs(out: str) -> None:
        raise error

    with listening(monkeypatch) as hook, server_of(alone), pytest.raises(type(error)):
        launch(mine_logs, SilentReporter(), out=mined_folder.store.url)
    (entry,) = read_history(mined_folder)
    assert (entry.job, entry.state, entry.message) == ("mine-logs", state, str(error))
    assert [message["state"] for _, message in hook.posted] == posted


def test_a_failure_of_s3_is_explained(alone: Environment, mined_folder: Run) -> None:
    def mine_logs(out: str) -> None:
        raise OSError("AWS Error ACCESS_DENIED during ListObjectsV2 operation: Access Denied")

    with server_of(alone), pytest.raises(MissingPart):
        launch(mine_logs, SilentReporter(), out=mined_folder.store.url)
