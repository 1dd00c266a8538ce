"""darklode report: at any time, for a run of either kind."""

import shutil
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.page import REPORT_FILE
from helpers.commands import DARKLODE, Call, Environment, SampleRun, run_command

pytestmark = pytest.mark.server


@pytest.fixture(params=["sample_run", "mined_run"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a finished run, named like it."""
    run: SampleRun = request.getfixturevalue(request.param)
    return Path(shutil.copytree(run.folder, tmp_path / "copies" / run.folder.name))


@pytest.mark.slow
def test_it_makes_the_same_page_as_the_flow_and_prints_its_place(call: Call, folder: Path) -> None:
    made = (folder / REPORT_FILE).read_bytes()
    (folder / REPORT_FILE).unlink()
    shown = call("report", folder)
    assert (shown.code, shown.out, shown.err) == (0, f"{folder}/{REPORT_FILE}\n", "")
    assert (folder / REPORT_FILE).read_bytes() == made


@pytest.mark.slow
def test_it_is_opened_in_the_browser(folder: Path, alone: Environment, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    shown = run_command([DARKLODE, "report", str(folder), "--open"], dict(alone) | {"BROWSER": f"{browser} %s"})
    assert (shown.code, shown.err) == (0, "")
    assert (tmp_path / "opened").read_text() == f"{(folder / REPORT_FILE).as_uri()}\n"


@pytest.mark.slow
def test_it_shows_a_run_that_is_not_complete(call: Call, folder: Path) -> None:
    run = Run(str(folder))
    for stage in ("judge", "triplets", "mined_triplets", "funnel"):
        run.store.delete(f"manifests/{stage}.json")
    assert call("report", folder).code == 0
    assert b"This run is incomplete" in (folder / REPORT_FILE).read_bytes()


def test_it_needs_a_run(call: Call, tmp_path: Path) -> None:
    shown = call("report", tmp_path / "none")
    assert shown.code == 1
    assert shown.err.startswith(f"error: {tmp_path}/none holds no run; make one with `darklode build")
    assert not (tmp_path / "none").exists()
