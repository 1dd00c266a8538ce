"""The history of a folder: a line per job that did some work or failed, and none else."""

from pathlib import Path

import pytest

from darklode.flows import job_history
from darklode.flows.job_history import HISTORY, HistoryEntry, StageRecorder, add_entry, read_history
from darklode.flows.prefect.progress import SilentReporter
from darklode.flows.runs import write_inputs
from darklode.pipeline.base.artifacts import Output, Run, Stage, Step, Tables, call
from darklode.schemas.run_inputs import MinedInputs

COMPLETE = HistoryEntry("2026-03-01T03:00:00+00:00", "mine-logs", "complete", 12.5, {"ingest_logs": 1.5})
QUIET = HistoryEntry("2026-03-02T03:00:00+00:00", "mine-logs", "complete", 0.5, {})
FAILED = HistoryEntry("2026-03-03T03:00:00+00:00", "mine-logs", "failed", 0.5, {}, "no log")


def test_a_job_that_worked_or_failed_has_a_line_and_a_quiet_one_has_none(run: Run) -> None:
    write_inputs(run, MinedInputs(logs="log", docs="docs"))
    for entry in (COMPLETE, QUIET, FAILED):
        add_entry(run.store.url, entry)
    assert read_history(run) == [COMPLETE, FAILED]


def test_a_folder_without_a_run_and_one_that_is_being_written_are_left_alone(run: Run, tmp_path: Path) -> None:
    add_entry(str(tmp_path / "empty"), FAILED)
    assert not (tmp_path / "empty").exists()
    write_inputs(run, MinedInputs(logs="log", docs="docs"))
    with Run(run.store.url).lock():
        add_entry(run.store.url, FAILED)
    assert read_history(run) == []


def test_old_lines_are_dropped_and_damaged_ones_skipped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_history, "MAX_ENTRIES", 2)
    write_inputs(run, MinedInputs(logs="log", docs="docs"))
    for entry in (COMPLETE, COMPLETE, FAILED):
        add_entry(run.store.url, entry)
    assert read_history(run) == [COMPLETE, FAILED]
    run.store.write(HISTORY, b'{"started": 1}\n{half\n' + (run.store.read(HISTORY) or b""))
    assert read_history(run) == [COMPLETE, FAILED]


def test_the_recorder_keeps_the_stages_that_ran(run: Run) -> None:
    def work(_tables: Tables, _output: Output) -> None:
        pass

    step = Step(Stage("work", 1, (), ()), call(work))
    manifest = run.execute(step.plan(run), step.execute)
    recorder = StageRecorder(SilentReporter())
    recorder.finish("earlier", manifest, redone=False)
    recorder.finish("work", manifest, redone=True)
    assert recorder.stages == {"work": manifest.seconds}
