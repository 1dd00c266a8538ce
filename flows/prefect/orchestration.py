"""Prefect flows of all jobs, with each stage as a task.

`prefect.yaml` deploys the flows by their names in this module.
"""

import atexit
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any

from prefect import Flow, Task, flow, task
from prefect._internal.concurrency.threads import get_global_loop, get_run_sync_loop
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.events.worker import EventsWorker
from prefect.logging import get_logger, get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from darklode.flows.executor import (
    Progress,
    execute,
    executing,
    executor,
    explain_s3_failure,
    is_temporary,
    report_progress,
)
from darklode.flows.jobs import adapt_encoder as adapt_encoder_job
from darklode.flows.jobs import adapt_tenants as adapt_tenants_job
from darklode.flows.jobs import audit_retrievers as audit_retrievers_job
from darklode.flows.jobs import build_benchmark as build_benchmark_job
from darklode.flows.jobs import build_index as build_index_job
from darklode.flows.jobs import compare_adapters as compare_adapters_job
from darklode.flows.jobs import distil_judge as distil_judge_job
from darklode.flows.jobs import evaluate_systems as evaluate_systems_job
from darklode.flows.jobs import generate_queries as generate_queries_job
from darklode.flows.jobs import measure_entropy as measure_entropy_job
from darklode.flows.jobs import mine_logs as mine_logs_job
from darklode.flows.jobs import nightly_adapt as nightly_adapt_job
from darklode.flows.jobs import probe_judge as probe_judge_job
from darklode.flows.jobs import run_laws as run_laws_job
from darklode.flows.jobs import swap_model as swap_model_job
from darklode.flows.jobs import train_reranker as train_reranker_job
from darklode.flows.jobs import train_towers as train_towers_job
from darklode.flows.jobs import validate_benchmark as validate_benchmark_job
from darklode.flows.jobs.job import Job
from darklode.flows.prefect.naming import artifact_key, run_name
from darklode.flows.prefect.notifications import notify, state_of
from darklode.flows.prefect.progress import reporter, summary
from darklode.flows.prefect.stale_flow_runs import watch_run
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.base.errors import DarklodeError

PROGRESS_SECONDS = 2.0  # between updates of a progress artifact, each of which is a request
END_SECONDS = 5.0  # timeout for Prefect's threads; they end in milliseconds unless a request hangs


class Tasks:
    """Runs each stage as a task of the running flow, and publishes a run's page as an artifact.

    Args:
        artifacts: whether to create artifacts; nobody would see them on a temporary server.
        needs_preflight: as in `Executor`.
    """

    shows_progress = True

    def __init__(self, *, artifacts: bool = True, needs_preflight: bool = False) -> None:
        self._artifacts = artifacts
        self.needs_preflight = needs_preflight
        self._bar: ProgressArtifact | None = None
        self.refusal: DarklodeError | None = None

    @property
    def is_persistent(self) -> bool:
        """Whether the server still runs when the command has ended."""
        return self._artifacts

    def run(self, run: Run, step: Step, delays: Sequence[float]) -> None:
        """Run a step as a task; a retry does not repeat finished units."""
        run_stage.with_options(
            name=step.stage.name,
            task_run_name=step.stage.name,
            retries=len(delays),
            retry_delay_seconds=list(delays),
            retry_condition_fn=can_retry,
        )(run, step, self)
        refusal, self.refusal = self.refusal, None  # a job may catch it and run further stages
        if refusal:
            raise refusal  # the caller of a task does not see its failed state

    def show(self, run: Run, page: Callable[[], str]) -> None:
        """Publish a page; all pages of a run have one key, so Prefect shows the latest and its history."""
        if self._artifacts:
            if self._bar:
                self._bar.fill()
            create_markdown_artifact(page(), key=artifact_key(run.store.url), description=run.store.url)

    def progress(self, run: Run, stage: str) -> Progress:
        """A callback for a stage's progress."""
        if not self._artifacts:
            return report_progress(stage)
        self._bar = self._bar or ProgressArtifact(f"{artifact_key(run.store.url)}-progress")
        return self._bar.for_stage(stage)


@task(cache_policy=NO_CACHE, persist_result=False)
def run_stage(run: Run, step: Step, tasks: Tasks) -> State[None]:
    """Run a stage unless it is up to date."""
    name = step.stage.name
    try:
        manifest, redone = execute(run, step, lambda: tasks.progress(run, name))
    except DarklodeError as error:
        tasks.refusal = error
        return failed_state(error)
    if not redone:
        return Completed(name="Cached", message=f"up to date: {summary(manifest)}")
    get_run_logger().info("%s: %s in %.1f s", name, summary(manifest), manifest.seconds)
    return Completed(message=summary(manifest))


def failed_state(error: DarklodeError) -> State[Any]:
    """The final state for an error that a user can fix: its message, without a traceback."""
    name = "Held" if state_of(error) == "held" else None
    return Failed(name=name, message=str(error), data=error)


def can_retry(task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether the cause of a failure may be temporary; then it is reported. Darklode's own errors never are."""
    if not is_temporary(state.data):
        return False
    reporter().say(f"{task.name}: {state.data}; retrying")
    return True


def is_unexpected(record: logging.LogRecord) -> bool:
    """Whether to keep a log record; tracebacks of Darklode's errors are dropped, since the state has the message."""
    return not (record.exc_info and isinstance(record.exc_info[1], DarklodeError))


for _logger in ("engine", "flow_runs"):
    get_logger(_logger).addFilter(is_unexpected)


class ProgressArtifact:
    """Reports progress to the reporter, and every `PROGRESS_SECONDS` to a Prefect progress artifact."""

    def __init__(self, key: str) -> None:
        self._artifact = create_progress_artifact(0.0, key=key, description="starting")
        self._updated = time.monotonic()

    def for_stage(self, stage: str) -> Progress:
        """A callback for a stage's progress."""
        report = report_progress(stage)

        def report_both(done: int, total: int | None, note: str) -> None:
            report(done, total, note)
            if total and time.monotonic() - self._updated > PROGRESS_SECONDS:
                self._updated = time.monotonic()
                share = min(100.0, 100.0 * done / total)
                update_progress_artifact(self._artifact, share, f"{stage}: {note}".removesuffix(": "))  # type: ignore[arg-type]

        return report_both

    def fill(self) -> None:
        """Set the progress to 100 %."""
        update_progress_artifact(self._artifact, 100.0, "complete")  # type: ignore[arg-type]


def as_flow(job: Job) -> Flow[..., State[None]]:
    """The Prefect flow of a job; the job's summary is the message of its final state."""
    body: Callable[..., str | None] = job.function

    @wraps(body)
    def run_managed(*args: Any, **kwargs: Any) -> State[None]:
        outer = executor()
        tasks = outer if isinstance(outer, Tasks) else Tasks(needs_preflight=True)
        with executing(tasks), watch_run(tasks.is_persistent):
            try:
                return Completed(message=body(*args, **kwargs))
            except DarklodeError as error:
                return failed_state(error)
            except OSError as error:
                explained = explain_s3_failure(error)
                if isinstance(explained, DarklodeError):
                    return failed_state(explained)
                raise

    run_managed.__module__ = __name__  # where deployments import it from
    run_managed.__signature__ = signature(body, eval_str=True)  # type: ignore[attr-defined] # annotations refer to its module
    to_flow = flow(
        name=job.name, flow_run_name=_run_name, persist_result=False, on_failure=[notify], on_crashed=[notify]
    )
    return to_flow(run_managed)


def _run_name() -> str:
    return run_name(flow_run.parameters, flow_run.scheduled_start_time)


@contextmanager
def drain_events() -> Iterator[None]:
    """Send Prefect's pending events before its server ends, and end its threads at exit.

    Running threads would keep modules alive that DuckDB then reports as leaked. They are not ended earlier, because
    Prefect's log handler would start them again, which deadlocks while logging is being configured, as uvicorn does.
    """
    atexit.unregister(_end_threads)
    atexit.register(_end_threads)
    try:
        yield
    finally:
        # In a thread: where an event loop runs, as in a notebook, it would only return a coroutine.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(EventsWorker.drain_all).result()


def _end_threads() -> None:
    for loop in (get_run_sync_loop(), get_global_loop()):
        loop.shutdown()
        loop.thread.join(END_SECONDS)


build_benchmark = as_flow(build_benchmark_job.JOB)
mine_logs = as_flow(mine_logs_job.JOB)
audit_retrievers = as_flow(audit_retrievers_job.JOB)
evaluate_systems = as_flow(evaluate_systems_job.JOB)
validate_benchmark = as_flow(validate_benchmark_job.JOB)
probe_judge = as_flow(probe_judge_job.JOB)
adapt_encoder = as_flow(adapt_encoder_job.JOB)
adapt_tenants = as_flow(adapt_tenants_job.JOB)
nightly_adapt = as_flow(nightly_adapt_job.JOB)
compare_adapters = as_flow(compare_adapters_job.JOB)
swap_model = as_flow(swap_model_job.JOB)
train_towers = as_flow(train_towers_job.JOB)
train_reranker = as_flow(train_reranker_job.JOB)
distil_judge = as_flow(distil_judge_job.JOB)
run_laws = as_flow(run_laws_job.JOB)
measure_entropy = as_flow(measure_entropy_job.JOB)
generate_queries = as_flow(generate_queries_job.JOB)
build_index = as_flow(build_index_job.JOB)
update_index = as_flow(build_index_job.UPDATE_JOB)
