"""How stages are run: in this process, or as Prefect tasks (`darklode.flows.prefect.orchestration`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from darklode.flows import interrupt
from darklode.flows.prefect.progress import reporter
from darklode.pipeline.base.artifacts.store import s3_failure
from darklode.pipeline.base.errors import DarklodeError, MissingPart

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Manifest, Run, Step

Progress = Callable[[int, int | None, str], None]
"""Receives the units done, the units in total (None: unknown), and a note on the current work."""


class Executor(Protocol):
    """Runs stages and publishes their results.

    Attributes:
        shows_progress: progress and the result are visible outside this process, on a Prefect server.
        needs_preflight: no command checked the inputs before the flow started, so the flow has to.
    """

    @property
    def shows_progress(self) -> bool: ...

    @property
    def needs_preflight(self) -> bool: ...

    def run(self, run: Run, step: Step, delays: Sequence[float]) -> None:
        """Run a step unless it is up to date; `delays` are the seconds before each retry."""

    def show(self, run: Run, page: Callable[[], str]) -> None:
        """Publish a Markdown page on the run; `page` is not called if nobody can see it."""


PERMANENT_OS_ERRORS = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
    BrokenPipeError,
)
"""Errors of the operating system that a retry does not fix."""


def is_temporary(error: object) -> bool:
    """Whether a retry may succeed: a failure of a network file system or S3, never one of Darklode's own errors."""
    return isinstance(error, OSError) and not isinstance(error, (*PERMANENT_OS_ERRORS, DarklodeError))


def explain_s3_failure(error: Exception) -> Exception:
    """The error itself, or an explanation if S3 failed."""
    is_unexplained = isinstance(error, OSError) and not isinstance(error, DarklodeError)
    return MissingPart(sentence) if is_unexplained and (sentence := s3_failure(error)) else error


class InProcess:
    """Runs stages in this process."""

    shows_progress = False

    def __init__(self, *, needs_preflight: bool = False) -> None:
        self.needs_preflight = needs_preflight

    def run(self, run: Run, step: Step, delays: Sequence[float]) -> None:
        """Run a step; a retry does not repeat finished units."""
        for delay in delays:
            try:
                execute(run, step, lambda: report_progress(step.stage.name))
            except OSError as error:
                if not is_temporary(error):
                    raise
                reporter().say(f"{step.stage.name}: {error}; retrying")
                time.sleep(delay)
            else:
                return
        execute(run, step, lambda: report_progress(step.stage.name))

    def show(self, run: Run, page: Callable[[], str]) -> None:
        pass


class StageIsDue(Exception):
    """A dry run reached a stage that is not up to date."""


class PrefectIsNeeded(Exception):
    """A job needs Prefect: its shards run on a Ray cluster."""


class DryRun(InProcess):
    """Passes over stages that are up to date."""

    def run(self, run: Run, step: Step, _delays: Sequence[float]) -> None:
        """Report the step.

        Raises:
            StageIsDue: the step is not up to date; nothing was done.
        """

        def raise_due() -> Progress:
            raise StageIsDue(step.stage.name)

        execute(run, step, raise_due)


def execute(run: Run, step: Step, progress: Callable[[], Progress]) -> tuple[Manifest, bool]:
    """Run a step unless it is up to date, and report it.

    Args:
        progress: makes the progress callback; called only if the step has to run.

    Returns:
        Its manifest, and whether it ran.
    """
    interrupt.check()
    plan, name = step.plan(run), step.stage.name
    manifest = run.manifest(step.stage)
    if plan.is_up_to_date and manifest is not None:
        run.delete_old_parts(manifest)
        reporter().finish(name, manifest, redone=False)
        return manifest, False
    on_progress = progress()
    reporter().start(name, plan.reason or "")
    manifest = run.execute(plan, step.execute, on_progress)
    reporter().finish(name, manifest, redone=True)
    return manifest, True


def report_progress(stage: str) -> Progress:
    """A callback that reports a stage's progress, and stops on Ctrl-C."""

    def report(done: int, total: int | None, note: str) -> None:
        interrupt.check()
        reporter().progress(stage, done, total, note)

    return report


_current: ContextVar[Executor] = ContextVar("executor", default=InProcess())  # noqa: B039 (it holds no state)


def executor() -> Executor:
    """The executor of the running flow."""
    return _current.get()


@contextmanager
def executing(on: Executor) -> Iterator[None]:
    """Run the stages of all flows inside the block on `on`."""
    token = _current.set(on)
    try:
        yield
    finally:
        _current.reset(token)
