"""Run the stages of a flow: in this process, or as Prefect tasks (`darklode.flows.prefect.orchestration`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from darklode.flows import interrupt
from darklode.flows.prefect.progress import reporter

if TYPE_CHECKING:
    from types import ModuleType

    from darklode.flows.preflight import Check
    from darklode.pipeline.base.artifacts import Manifest, Run, Step

Progress = Callable[[int, int | None, str], None]


class Executor(Protocol):
    """Runs stages, and shows what came of them.

    Attributes:
        shows_progress: how a flow ends is told to whoever waits for it, by Prefect's hooks.
        skips_checks: no command looked for obstacles before the flow began, so the flow does.
    """

    @property
    def shows_progress(self) -> bool: ...

    @property
    def skips_checks(self) -> bool: ...

    def run(self, run: Run, step: Step, delays: Sequence[float]) -> None:
        """Run a step unless its result stands; `delays` are the seconds before each new try."""

    def show(self, run: Run, page: Callable[[], str]) -> None:
        """Show a page on the run, in Markdown, to whoever follows it from elsewhere; not made where there is nobody."""


class InProcess:
    """This process alone: nothing is tried again, and nobody looks on from elsewhere."""

    shows_progress = False
    skips_checks = False

    def run(self, run: Run, step: Step, _delays: Sequence[float]) -> None:
        execute(run, step, lambda: report_progress(step.stage.name))

    def show(self, run: Run, page: Callable[[], str]) -> None:
        """See `Executor`."""


class StageIsDue(Exception):
    """A stage has to run, where only standing ones were expected."""


class DryRun(InProcess):
    """Goes through stages whose results stand."""

    def run(self, run: Run, step: Step, _delays: Sequence[float]) -> None:
        """See `Executor`.

        Raises:
            StageIsDue: the step's result does not stand; nothing was done.
        """

        def has_work() -> Progress:
            raise StageIsDue(step.stage.name)

        execute(run, step, has_work)


def preflight(checks: Callable[[ModuleType], Sequence[Check]]) -> None:
    """Find all that would stop a flow before it begins, unless the command that started it has done so.

    Args:
        checks: gives the checks; its argument is `darklode.flows.preflight`, which takes a moment to load.

    Raises:
        DarklodeError: something is in the way.
    """
    if not executor().skips_checks:
        return
    from darklode.flows import preflight

    problems = preflight.run_checks(checks(preflight))
    for note in problems.notes:
        reporter().say(note)
    problems.insist()


def execute(run: Run, step: Step, progress: Callable[[], Progress]) -> tuple[Manifest, bool]:
    """Run a step unless its result stands, and report it.

    Args:
        progress: makes what the stage reports its progress to; called where it has to run.

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
    follow = progress()
    reporter().start(name, plan.reason or "")
    manifest = run.execute(plan, step.execute, follow)
    reporter().finish(name, manifest, redone=True)
    return manifest, True


def report_progress(stage: str) -> Progress:
    """Progress for the reporter; between two steps Ctrl-C is looked for."""

    def tell(done: int, total: int | None, note: str) -> None:
        interrupt.check()
        reporter().progress(stage, done, total, note)

    return tell


_current: ContextVar[Executor] = ContextVar("executor", default=InProcess())  # noqa: B039 (it holds no state)


def executor() -> Executor:
    """The executor of the running flow."""
    return _current.get()


@contextmanager
def executing(on: Executor) -> Iterator[None]:
    """Let flows that run inside the block run their stages on `on`."""
    token = _current.set(on)
    try:
        yield
    finally:
        _current.reset(token)
