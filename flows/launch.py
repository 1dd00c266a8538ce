"""Running a job from a command: in this process, or on the configured Prefect server."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from inspect import signature
from typing import Any

from darklode.flows.executor import DryRun, InProcess, PrefectIsNeeded, StageIsDue, executing, explain_s3_failure
from darklode.flows.job_history import HistoryEntry, StageRecorder, add_entry
from darklode.flows.prefect.naming import run_name
from darklode.flows.prefect.notifications import build_message, post_message, state_of
from darklode.flows.prefect.progress import Reporter, reporting
from darklode.flows.prefect.server import Server, configured_server, own_server
from darklode.pipeline.base.artifacts.database import shared_database
from darklode.pipeline.base.errors import HeldBack


def launch(
    body: Callable[..., Any], reporter: Reporter, *args: Any, needs_preflight: bool = False, **kwargs: Any
) -> None:
    """Run a job.

    Without a configured Prefect server, its stages run in this process, and the folder's `history.jsonl` gets a line.
    Only shards on a Ray cluster need Prefect then: a temporary server is started for them.

    With a server, the job is a flow run there, unless all its stages are up to date. Stages before the first one that
    is due are passed over twice, but reported once.

    Args:
        body: the job's function; `darklode.flows.prefect.orchestration` has a flow with its name.
        reporter: receives progress.
        needs_preflight: no command has checked the inputs, so the job has to.

    Raises:
        MissingPart: the configured Prefect server does not answer.
    """
    recorder = StageRecorder(reporter)
    with reporting(recorder), shared_database():
        server = configured_server()
        if server is None:
            with suppress(PrefectIsNeeded):
                with _recording(body, recorder, *args, **kwargs), executing(InProcess(needs_preflight=needs_preflight)):
                    body(*args, **kwargs)
                return
            with own_server() as temporary_server:
                _run_on(temporary_server, body, *args, **kwargs)
            return
        try:
            with executing(DryRun(needs_preflight=needs_preflight)):
                body(*args, **kwargs)
            return
        except (StageIsDue, PrefectIsNeeded) as due:
            recorder.say(f"Starting at stage {due}; earlier stages are up to date.")
        _run_on(server, body, *args, **kwargs)


def _run_on(server: Server, body: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    from darklode.flows.prefect import orchestration

    server.wait()
    with executing(orchestration.Tasks(artifacts=server.is_persistent)), orchestration.drain_events():
        getattr(orchestration, body.__name__)(*args, **kwargs)


@contextmanager
def _recording(body: Callable[..., Any], recorder: StageRecorder, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Record how the block ends: in the folder's history and, if it failed, at the webhook."""
    began, clock = datetime.now(UTC), time.monotonic()
    job, parameters = body.__name__.replace("_", "-"), signature(body).bind_partial(*args, **kwargs).arguments

    def record(state: str, message: str = "") -> None:
        seconds = round(time.monotonic() - clock, 1)
        entry = HistoryEntry(began.isoformat(timespec="seconds"), job, state, seconds, recorder.stages, message)
        add_entry(parameters.get("out") or parameters.get("run") or parameters.get("folder"), entry)

    try:
        yield
    except KeyboardInterrupt:
        record("interrupted")
        raise
    except PrefectIsNeeded:
        raise
    except Exception as error:
        explained, state = explain_s3_failure(error), state_of(error)
        record(state, str(explained))
        if not isinstance(error, HeldBack):  # days held back are reported once a day, by the job
            post_message(build_message(job, run_name(parameters, began), state, str(explained)), recorder.say)
        if explained is error:
            raise
        raise explained from error
    record("complete")
