"""What a command starts: nothing where every stage stands, one server where one has to run."""

import re
import shutil
from pathlib import Path

import pytest

from helpers.commands import Environment, SampleRun, build_command, built, mine_command, run_inside

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
