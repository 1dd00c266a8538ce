"""The one place that knows Prefect's flows: each flow of Darklode as one of Prefect's, each stage as a task of it.

`prefect.yaml` deploys the flows that are named here.
"""

import asyncio
import atexit
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from typing import Any, ParamSpec

from prefect import Flow, Task, flow, get_client, task
from prefect._internal.concurrency.threads import get_global_loop, get_run_sync_loop
from prefect.artifacts import (
    MarkdownArtifact,
    TableArtifact,
    create_progress_artifact,
    update_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.events.worker import EventsWorker
from prefect.logging import get_run_logger
from prefect.states import Completed

from darklode.flows import audit_retrievers as audit
from darklode.flows import build_benchmark as build
from darklode.flows import evaluate_systems as evaluate
from darklode.flows import mine_logs as mine
from darklode.flows import validate_benchmark as validate
from darklode.flows.executor import Exhibit, Progress, execute, executing, executor, reported
from darklode.flows.left_running import watched
from darklode.flows.reporting import reporter, summary
from darklode.pipeline.base.artifacts import Manifest, Run, Step
from darklode.pipeline.base.errors import DarklodeError

PROGRESS_SECONDS = 2.0  # between two updates of a progress artifact: each is a request to the server

P = ParamSpec("P")

LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError, BrokenPipeError)
"""What the operating system refuses, and will refuse again."""


class Tasks:
    """Each stage is a task of the running flow, one whose result stands a cached one; exhibits are artifacts.

    Args:
        artifacts: whether to make them; a server that ends with the command has nobody to look at them.
    """

    def __init__(self, *, artifacts: bool = True) -> None:
        self._artifacts = artifacts

    @property
    def lasting(self) -> bool:
        """Whether the server is there when the command has ended."""
        return self._artifacts

    def run(self, run: Run, step: Step, delays: Sequence[float]) -> None:
        """See `Executor`. Units that were finished are not repeated by a new try."""
        run_stage.with_options(
            name=step.stage.name,
            task_run_name=step.stage.name,
            retries=len(delays),
            retry_delay_seconds=list(delays),
            retry_condition_fn=may_pass,
        )(run, step, self)

    def show(self, exhibits: Iterable[Exhibit]) -> None:
        """See `Executor`."""
        if self._artifacts:
            asyncio.run(_publish(list(exhibits)))

    def progress(self, stage: str) -> Progress:
        """What a stage tells its progress to."""
        return ProgressArtifact(stage) if self._artifacts else reported(stage)


@task(cache_policy=NO_CACHE, persist_result=False)
def run_stage(run: Run, step: Step, tasks: Tasks) -> State[None]:
    """Run a stage unless its result stands, and show its numbers."""
    name = step.stage.name
    manifest, redone = execute(run, step, lambda: tasks.progress(name))
    if not redone:
        return Completed(name="Cached", message=f"nothing changed: {summary(manifest)}")
    tasks.show([_funnel(manifest)])
    get_run_logger().info("%s: %s in %.1f s", name, summary(manifest), manifest.seconds)
    return Completed(message=summary(manifest))


def may_pass(named: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether what made a task fail may be over soon, and if so, say it. Our own errors and mistakes never pass."""
    error = state.data
    if not isinstance(error, OSError) or isinstance(error, (*LASTING, DarklodeError)):
        return False
    reporter().say(f"{named.name}: {error}; it is tried again in a moment")
    return True


class ProgressArtifact:
    """Tells the reporter of every step, and Prefect's progress artifact now and then."""

    def __init__(self, stage: str) -> None:
        self._stage, self._report = stage, reported(stage)
        self._artifact = create_progress_artifact(0.0, key=_key(stage, "progress"), description=f"{stage}: progress")
        self._updated = time.monotonic()

    def __call__(self, done: int, total: int | None, note: str) -> None:
        self._report(done, total, note)
        if total and time.monotonic() - self._updated > PROGRESS_SECONDS:
            self._updated = time.monotonic()
            description = f"{self._stage}: {note or 'progress'}"
            update_progress_artifact(self._artifact, min(100.0, 100.0 * done / total), description)  # type: ignore[arg-type]


def _funnel(manifest: Manifest) -> Exhibit:
    """What came into a stage and what went out, step by step."""
    rows = [asdict(step) | {"dropped": str(step.dropped or "")} for step in manifest.funnel]
    outputs = [{"step": name, "rows_out": manifest.rows(name)} for name in manifest.outputs]
    return Exhibit(_key(manifest.stage, "funnel"), rows or outputs, f"{manifest.stage}: {manifest.seconds} s")


def _key(stage: str, what: str) -> str:
    """Prefect takes lower-case letters, digits and dashes."""
    return f"{stage}-{what}".replace("_", "-")


async def _publish(exhibits: Sequence[Exhibit]) -> None:
    """Make an artifact of each, by one client: a new one costs as much as several artifacts."""
    async with get_client() as client:
        await asyncio.gather(*[_artifact(one).acreate(client) for one in exhibits])


def _artifact(exhibit: Exhibit) -> MarkdownArtifact | TableArtifact:
    named = {"key": exhibit.key, "description": exhibit.description}
    if isinstance(exhibit.content, str):
        return MarkdownArtifact(markdown=exhibit.content, **named)
    return TableArtifact(table=exhibit.content, **named)


def as_flow(name: str, body: Callable[P, str | None]) -> Flow[P, State[None]]:
    """A flow of Prefect's; what the body returns is the message of its last state."""

    @wraps(body)
    def managed(*args: P.args, **kwargs: P.kwargs) -> State[None]:
        outer = executor()
        tasks = outer if isinstance(outer, Tasks) else Tasks()
        with executing(tasks), watched(tasks.lasting):
            return Completed(message=body(*args, **kwargs))

    managed.__module__ = __name__  # where deployments find it: what it wraps is no flow
    return flow(name=name, persist_result=False)(managed)


@contextmanager
def drained() -> Iterator[None]:
    """Let Prefect send what it has to tell before its server is gone, and end its threads with this process.

    They would keep modules alive that DuckDB then reports as leaked. They are not ended before: Prefect's log handler
    would start them anew, which never ends where logging is being configured, as uvicorn does.
    """
    atexit.unregister(_end_threads)
    atexit.register(_end_threads)
    try:
        yield
    finally:
        EventsWorker.drain_all()


def _end_threads() -> None:
    for loop in (get_global_loop(), get_run_sync_loop()):
        loop.shutdown()


build_benchmark = as_flow("build-benchmark", build.build_benchmark)
mine_logs = as_flow("mine-logs", mine.mine_logs)
audit_retrievers = as_flow("audit-retrievers", audit.audit_retrievers)
evaluate_systems = as_flow("evaluate-systems", evaluate.evaluate_systems)
validate_benchmark = as_flow("validate-benchmark", validate.validate_benchmark)
