"""The one place where a stage becomes a Prefect task with artifacts."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from prefect import Task, task
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.logging import get_run_logger
from prefect.states import Completed

from flows import interrupt
from flows.reporting import reporter, summary
from pipeline.artifacts import Manifest, Output, Plan, Run, Stage, Tables

PROGRESS_SECONDS = 2.0  # between two updates of a progress artifact: each is a request to the server
RETRY_SECONDS = (5.0, 30.0)  # before each new try

LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError, BrokenPipeError)
"""What the operating system refuses, and will refuse again."""


@dataclass(frozen=True)
class Step:
    """A stage bound to its settings, its ports and what it reads besides tables.

    `external` gives fingerprints of inputs that are no tables, such as the files to ingest.
    """

    stage: Stage
    settings: dict[str, Any]
    work: Callable[[Tables, Output], None]
    external: Callable[[], dict[str, str]] = field(default=dict)

    def plan(self, run: Run) -> Plan:
        return run.plan(self.stage, self.settings, self.external())


def run_step(run: Run, step: Step, delays: Sequence[float] = RETRY_SECONDS) -> Manifest:
    """Run a step as a task of the current flow; one whose result stands is shown as cached.

    What a network file system or S3 fails at is tried again, after so many seconds each time; units that were finished
    are not repeated.
    """
    named = run_stage.with_options(
        name=step.stage.name,
        task_run_name=step.stage.name,
        retries=len(delays),
        retry_delay_seconds=list(delays),
        retry_condition_fn=may_pass,
    )
    named(run, step)
    manifest = run.manifest(step.stage)
    assert manifest is not None
    return manifest


def may_pass(named: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether what made a task fail may be over soon, and if so, say it. Our own errors and mistakes never pass."""
    error = state.data
    if not isinstance(error, OSError) or isinstance(error, LASTING):
        return False
    reporter().say(f"{named.name}: {error}; it is tried again in a moment")
    return True


@task(cache_policy=NO_CACHE, persist_result=False)
def run_stage(run: Run, step: Step) -> State[None]:
    """Run a stage unless its result stands, and publish its numbers."""
    interrupt.check()
    plan, name = step.plan(run), step.stage.name
    manifest = run.manifest(step.stage)
    if plan.stands and manifest is not None:
        run.tidy(manifest)
        reporter().finish(name, manifest, redone=False)
        return Completed(name="Cached", message=f"nothing changed: {summary(manifest)}")
    reporter().start(name, plan.reason or "")
    manifest = run.execute(plan, step.work, Progress(name))
    publish(manifest)
    reporter().finish(name, manifest, redone=True)
    get_run_logger().info("%s: %s in %.1f s", name, summary(manifest), manifest.seconds)
    return Completed(message=summary(manifest))


class Progress:
    """Tells the reporter of every step, and Prefect's progress artifact now and then."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._artifact = create_progress_artifact(
            0.0, key=artifact_key(stage, "progress"), description=f"{stage}: progress"
        )
        self._told = time.monotonic()

    def __call__(self, done: int, total: int | None, note: str) -> None:
        interrupt.check()
        reporter().progress(self._stage, done, total, note)
        if total and time.monotonic() - self._told > PROGRESS_SECONDS:
            self._told = time.monotonic()
            description = f"{self._stage}: {note or 'progress'}"
            update_progress_artifact(self._artifact, min(100.0, 100.0 * done / total), description)  # type: ignore[arg-type]


def publish(manifest: Manifest) -> None:
    """Show a stage's funnel as a Prefect table artifact."""
    rows = [asdict(step) | {"dropped": str(step.dropped or "")} for step in manifest.funnel]
    outputs = [{"step": name, "rows_out": manifest.rows(name)} for name in manifest.outputs]
    key = artifact_key(manifest.stage, "funnel")
    create_table_artifact(rows or outputs, key=key, description=f"{manifest.stage}: {manifest.seconds} s")


def artifact_key(stage: str, what: str) -> str:
    """Prefect takes lower-case letters, digits and dashes."""
    return f"{stage}-{what}".replace("_", "-")
