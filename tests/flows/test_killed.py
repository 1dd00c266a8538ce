"""kill -9 at every file that is written: the same command goes on, and the tables are those of an undisturbed run."""

import signal
import subprocess
from datetime import date
from pathlib import Path

import psutil
import pytest

from darklode.flows.config import load_settings
from darklode.flows.jobs.build_benchmark import steps
from darklode.pipeline.base.artifacts import Run
from helpers.commands import (
    START_SECONDS,
    Environment,
    SampleRun,
    build_command,
    build_without_prefect,
    built,
    mine_without_prefect,
    tables_of,
    wait_for,
)
from helpers.killing import killed_at_every_write
from helpers.runs import SAMPLE

SOME_DAYS = [date(2026, 3, number) for number in (1, 2, 3)]
NEXT_DAY = date(2026, 3, 4)


def assert_undisturbed(ours: Path, theirs: Path) -> None:
    """The same tables as another run, and nothing left of unfinished units."""
    assert tables_of(ours) == tables_of(theirs)
    assert not [path for path in (ours / "progress").rglob("*") if path.is_file()]


@pytest.mark.slow
def test_a_build_is_killed_at_every_write(tmp_path: Path) -> None:
    assignments = ("evaluate.n_resamples=50",)
    settings = load_settings(assignments=assignments)
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    met = killed_at_every_write(killed, assignments=assignments)
    stages = [step.stage.name for step in steps(str(SAMPLE), str(SAMPLE), settings)]
    assert [name for name in met if name.startswith("manifests/")] == [f"manifests/{stage}.json" for stage in stages]
    assert len([name for name in met if name.startswith("progress/search/")]) > 10
    assert len([name for name in met if name.startswith("progress/judge/")]) > 3
    assert build_without_prefect(undisturbed, SAMPLE, SAMPLE, settings) == stages
    assert_undisturbed(killed, undisturbed)


@pytest.mark.slow
def test_a_first_night_and_a_later_one_are_killed_at_every_write(tmp_path: Path) -> None:
    settings = load_settings()
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    for first, last in ((SOME_DAYS[0], SOME_DAYS[-1]), (NEXT_DAY, NEXT_DAY)):
        met = killed_at_every_write(killed, first, last)
        nights = SOME_DAYS if first in SOME_DAYS else [NEXT_DAY]
        redone = mine_without_prefect(undisturbed, settings, nights)
        assert [name for name in met if name.startswith("manifests/")] == [
            f"manifests/{stage}.json" for stage in redone
        ]
        assert {"ingest_logs", "click_evidence", "log_queries", "mined_pairs", "mined_triplets"} <= set(redone)
        written = [name for name in met if name.startswith("progress/mined_triplets/")]
        assert 1 < len(written) <= len(days_of(undisturbed))  # days in which no pair changed are not written again
        assert_undisturbed(killed, undisturbed)


def days_of(run: Path) -> list[object]:
    return Run(str(run)).tables().sql("SELECT DISTINCT date FROM triplets")["date"].to_pylist()


@pytest.mark.slow
@pytest.mark.server
def test_no_process_outlives_a_killed_command_and_the_same_command_goes_on(
    alone: Environment, sample_run: SampleRun, served: Environment, tmp_path: Path
) -> None:
    log, run = tmp_path / "log", tmp_path / "run"
    with log.open("wb") as output:
        process = subprocess.Popen(build_command(run), env=alone, stdout=output, stderr=output)
    family: list[psutil.Process] = []
    try:
        wait_for(lambda: b"search: " in log.read_bytes(), "the stage search", START_SECONDS)
        family = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL, log.read_text()
    _, left = psutil.wait_procs(family, timeout=5)
    for one in left:
        one.kill()
    assert not left
    printed = built(build_command(run), served)
    assert "✓ chunk " in printed
    assert "\nsearch: not run yet\n✓ search " in printed
    assert_undisturbed(run, sample_run.folder)
