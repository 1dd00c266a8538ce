"""The history of a folder: one line per job that did some work or failed, in `history.jsonl`.

Jobs that run on a Prefect server have their history there.
"""

import json
from dataclasses import asdict, dataclass, fields

from darklode.flows.prefect.progress import OnceReporter, Reporter
from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.base.errors import DarklodeError
from darklode.schemas.folder_kinds import INPUTS

HISTORY = "history.jsonl"
MAX_ENTRIES = 1000
"""Older lines are dropped: bounds the file to a few hundred kilobytes, which holds more than two years of nights."""


@dataclass(frozen=True)
class HistoryEntry:
    """How a job ended.

    Attributes:
        started: ISO time, UTC.
        job: name of the job.
        state: complete, held, failed or interrupted.
        seconds: duration.
        stages: seconds of each stage that ran.
        message: error message; empty if complete.
    """

    started: str
    job: str
    state: str
    seconds: float
    stages: dict[str, float]
    message: str = ""


class StageRecorder(OnceReporter):
    """Forwards everything, and keeps the seconds of each stage that ran.

    Attributes:
        stages: seconds by stage.
    """

    def __init__(self, to: Reporter) -> None:
        super().__init__(to)
        self.stages: dict[str, float] = {}

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        if redone:
            self.stages[stage] = manifest.seconds
        super().finish(stage, manifest, redone)


def add_entry(url: str | None, entry: HistoryEntry) -> None:
    """Add a line to a folder's history, unless the job found everything up to date.

    A folder that no job has written to, or that another process is writing to, is left alone.
    """
    if url is None or (entry.state == "complete" and not entry.stages):
        return
    try:
        run = Run(str(url))
        if run.store.size(INPUTS) is None:
            return
        with run.lock():
            lines = [*(run.store.read(HISTORY) or b"").splitlines(), json.dumps(asdict(entry)).encode()]
            run.store.write(HISTORY, b"\n".join(lines[-MAX_ENTRIES:]) + b"\n")
    except (DarklodeError, OSError):  # must not hide the job's own error, or make a finished job fail
        return


def read_history(run: Run) -> list[HistoryEntry]:
    """The lines of a folder's history, oldest first; damaged lines are skipped."""
    entries, names = [], {field.name for field in fields(HistoryEntry)}
    for line in (run.store.read(HISTORY) or b"").splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict) and values.keys() == names:
            entries.append(HistoryEntry(**values))
    return entries
