"""What a run holds, and what the next build would redo and why."""

from contextlib import suppress
from typing import Any

import pyarrow as pa

from flows import mine_record
from flows.build_benchmark import recorded, steps
from flows.mine_logs import steps as mine_steps
from flows.reporting import summary
from flows.steps import Step
from pipeline.artifacts import Run
from pipeline.errors import ArtifactError, InputError

SCHEMA = pa.schema([("stage", pa.string()), ("state", pa.string()), ("result", pa.string()), ("seconds", pa.float64())])


def outlook(run: Run) -> pa.Table:
    """One row per stage: its state (stands, or why it would be redone), what it made and how long that took.

    A stage after one that would be redone may still stand: it is redone only if what it reads really changes.
    """
    mined = mine_record.recorded(run)
    if mined is None:
        return _table([_row(run, step) for step in steps(*recorded(run))])
    rows = []
    with suppress(ArtifactError):  # a stage of mining is known when those before it are complete
        for step in mine_steps(run, *mined):
            rows.append(_row(run, step))
    return _table(rows)


def _row(run: Run, step: Step) -> dict[str, Any]:
    try:
        state = step.plan(run).reason or "stands"
    except InputError as error:
        state = str(error)
    manifest = run.manifest(step.stage)
    result, seconds = (summary(manifest), manifest.seconds) if manifest else (None, None)
    return {"stage": step.stage.name, "state": state, "result": result, "seconds": seconds}


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def settings_of(run: Run) -> str:
    """The settings in force, as YAML that `--config` takes."""
    if mine_record.recorded(run) is None:
        recorded(run)
    return (run.store.read("settings.yaml") or b"").decode()
