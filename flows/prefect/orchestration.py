"""The one place that knows Prefect's flows: each flow of Darklode as one of Prefect's, each stage as a task of it.

`prefect.yaml` deploys the flows that are named here.
"""

import atexit
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

from prefect import Flow, Task, flow, task
from prefect._internal.concurrency.threads import get_global_loop, get_run_sync_loop
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.events.worker import EventsWorker
from prefect.logging import get_logger, get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from darklode.flows.executor import Progress, execute, executing, executor, report_progress
from darklode.flows.jobs import adapt_encoder as adapt
from darklode.flows.jobs import adapt_tenants as adapting
from darklode.flows.jobs import audit_retrievers as audit
from darklode.flows.jobs import build_benchmark as build
from darklode.flows.jobs import build_index as indexing
from darklode.flows.jobs import compare_adapters as comparing
from darklode.flows.jobs import evaluate_systems as evaluate
from darklode.flows.jobs import generate_queries as generating
from darklode.flows.jobs import measure_entropy as measuring
from darklode.flows.jobs import mine_logs as mine
from darklode.flows.jobs import nightly_adapt as nightly
from darklode.flows.jobs import run_laws as scaling
from darklode.flows.jobs import train_towers as towers
from darklode.flows.jobs import validate_benchmark as validate
from darklode.flows.prefect.naming import artifact_key, run_name
from darklode.flows.prefect.notifications import notify
from darklode.flows.prefect.progress import reporter, summary
from darklode.flows.prefect.stale_flow_runs import watch_run
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.base.artifacts.store import s3_failure
from darklode.pipeline.base.errors import DarklodeError, HeldBack, MissingPart, NoLift, NotPublishable

PROGRESS_SECONDS = 2.0  # between two updates of a progress artifact: each is a request to the server
END_SECONDS = 5.0  # for a thread of Prefect's to end in; it takes milliseconds, unless a request of its own hangs

P = ParamSpec("P")

LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError, BrokenPipeError)
"""What the operating system refuses, and will refuse again."""


class Tasks:
    """Each stage is a task of the running flow, one whose result stands a cached one; a run's page is an artifact.

    Args:
        artifacts: whether to make any; a server that ends with the command has nobody to look at them.
        skips_checks: see `Executor`.
    """

    shows_progress = True

    def __init__(self, *, artifacts: bool = True, unchecked: bool = False) -> None:
        self._artifacts = artifacts
        self.skips_checks = unchecked
        self._bar: ProgressArtifact | None = None
        self.refusal: DarklodeError | None = None

    @property
    def is_persistent(self) -> bool:
        """Whether the server is there when the command has ended."""
        return self._artifacts

    def run(self, run: Run, step: Step, delays: Sequence[float]) -> None:
        """See `Executor`. Units that were finished are not repeated by a new try."""
        run_stage.with_options(
            name=step.stage.name,
            task_run_name=step.stage.name,
            retries=len(delays),
            retry_delay_seconds=list(delays),
            retry_condition_fn=can_retry,
        )(run, step, self)
        if self.refusal:
            raise self.refusal  # a task that returns a failed state is no error to its caller

    def show(self, run: Run, page: Callable[[], str]) -> None:
        """See `Executor`. The pages of a run have one key: Prefect shows the latest, and how it became so."""
        if self._artifacts:
            if self._bar:
                self._bar.fill()
            create_markdown_artifact(page(), key=artifact_key(run.store.url), description=run.store.url)

    def progress(self, run: Run, stage: str) -> Progress:
        """What a stage tells its progress to."""
        if not self._artifacts:
            return report_progress(stage)
        self._bar = self._bar or ProgressArtifact(f"{artifact_key(run.store.url)}-progress")
        return self._bar.for_stage(stage)


@task(cache_policy=NO_CACHE, persist_result=False)
def run_stage(run: Run, step: Step, tasks: Tasks) -> State[None]:
    """Run a stage unless its result stands."""
    name = step.stage.name
    try:
        manifest, redone = execute(run, step, lambda: tasks.progress(run, name))
    except DarklodeError as error:
        tasks.refusal = error
        return failed_state(error)
    if not redone:
        return Completed(name="Cached", message=f"nothing changed: {summary(manifest)}")
    get_run_logger().info("%s: %s in %.1f s", name, summary(manifest), manifest.seconds)
    return Completed(message=summary(manifest))


def failed_state(error: DarklodeError) -> State[Any]:
    """The last state of what a person can mend: its sentence, and no trace of the program; who calls gets the error."""
    name = "Held" if isinstance(error, HeldBack | NoLift | NotPublishable) else None
    return Failed(name=name, message=str(error), data=error)


def can_retry(task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether what made a task fail may be over soon, and if so, say it. Our own errors and mistakes never pass."""
    error = state.data
    if not isinstance(error, OSError) or isinstance(error, (*LASTING, DarklodeError)):
        return False
    reporter().say(f"{task.name}: {error}; it is tried again in a moment")
    return True


def is_unexpected(record: logging.LogRecord) -> bool:
    """Whether a log record is kept: not the traceback of an error of ours, whose sentence the flow's last state has."""
    return not (record.exc_info and isinstance(record.exc_info[1], DarklodeError))


for _logger in ("engine", "flow_runs"):
    get_logger(_logger).addFilter(is_unexpected)


class ProgressArtifact:
    """Tells the reporter of every step of a run, and Prefect's progress artifact now and then."""

    def __init__(self, key: str) -> None:
        self._artifact = create_progress_artifact(0.0, key=key, description="begins")
        self._updated = time.monotonic()

    def for_stage(self, stage: str) -> Progress:
        """What a stage tells its progress to."""
        report = report_progress(stage)

        def tell(done: int, total: int | None, note: str) -> None:
            report(done, total, note)
            if total and time.monotonic() - self._updated > PROGRESS_SECONDS:
                self._updated = time.monotonic()
                share = min(100.0, 100.0 * done / total)
                update_progress_artifact(self._artifact, share, f"{stage}: {note}".removesuffix(": "))  # type: ignore[arg-type]

        return tell

    def fill(self) -> None:
        """The run is complete."""
        update_progress_artifact(self._artifact, 100.0, "complete")  # type: ignore[arg-type]


def as_flow(name: str, body: Callable[P, str | None]) -> Flow[P, State[None]]:
    """A flow of Prefect's; what the body returns is the message of its last state."""

    @wraps(body)
    def run_managed(*args: P.args, **kwargs: P.kwargs) -> State[None]:
        outer = executor()
        tasks = outer if isinstance(outer, Tasks) else Tasks(unchecked=True)
        with executing(tasks), watch_run(tasks.is_persistent):
            try:
                return Completed(message=body(*args, **kwargs))
            except DarklodeError as error:
                return failed_state(error)
            except OSError as error:
                if sentence := s3_failure(error):
                    return failed_state(MissingPart(sentence))
                raise

    run_managed.__module__ = __name__  # where deployments find it: what it wraps is no flow
    run_managed.__signature__ = signature(body, eval_str=True)  # type: ignore[attr-defined] # types are named in its module
    prefects = flow(name=name, flow_run_name=_run_name, persist_result=False, on_failure=[notify], on_crashed=[notify])
    return prefects(run_managed)


def _run_name() -> str:
    return run_name(flow_run.parameters, flow_run.scheduled_start_time)


@contextmanager
def drain_events() -> Iterator[None]:
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
    for loop in (get_run_sync_loop(), get_global_loop()):
        loop.shutdown()
        loop.thread.join(END_SECONDS)


build_benchmark = as_flow("build-benchmark", build.build_benchmark)
mine_logs = as_flow("mine-logs", mine.mine_logs)
audit_retrievers = as_flow("audit-retrievers", audit.audit_retrievers)
evaluate_systems = as_flow("evaluate-systems", evaluate.evaluate_systems)
validate_benchmark = as_flow("validate-benchmark", validate.validate_benchmark)
adapt_encoder = as_flow("adapt-encoder", adapt.adapt_encoder)
adapt_tenants = as_flow("adapt-tenants", adapting.adapt_tenants)
nightly_adapt = as_flow("nightly-adapt", nightly.nightly_adapt)
compare_adapters = as_flow("compare-adapters", comparing.compare_adapters)
train_towers = as_flow("train-towers", towers.train_towers)
run_laws = as_flow("run-laws", scaling.run_laws)
measure_entropy = as_flow("measure-entropy", measuring.measure_entropy)
generate_queries = as_flow("generate-queries", generating.generate_queries)
build_index = as_flow("build-index", indexing.build_index)
update_index = as_flow("update-index", indexing.update_index)
