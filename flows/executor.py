"""Where the stages of a flow run: in this process alone, or as tasks of Prefect (`darklode.flows.orchestration`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from darklode.flows import interrupt
from darklode.flows.reporting import reporter

if TYPE_CHECKING:
    from types import ModuleType

    from darklode.flows.preflight import Check
    from darklode.pipeline.base.artifacts import Manifest, Run, Step

Progress = Callable[[int, int | None, str], None]


class Executor(Protocol):
    """Runs stages, and shows what came of them.

    Attributes:
        tells: how a flow ends is told to whoever waits for it, by Prefect's hooks.
        unchecked: no command looked for obstacles before the flow began, so the flow does.
    """

    @property
    def tells(self) -> bool: ...

    @property
    def unchecked(self) -> bool: ...

    def run(self, run: Run, step: Step, delays: Sequence[float]) -> None:
        """Run a step unless its result stands; `delays` are the seconds before each new try."""

    def show(self, run: Run, page: Callable[[], str]) -> None:
        """Show a page on the run, in Markdown, to whoever follows it from elsewhere; not made where there is nobody."""


class InProcess:
    """This process alone: nothing is tried again, and nobody looks on from elsewhere."""

    tells = False
    unchecked = False

    def run(self, run: Run, step: Step, _delays: Sequence[float]) -> None:
        """See `Executor`."""
        execute(run, step, lambda: reported(step.stage.name))

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

        def due() -> Progress:
            raise StageIsDue(step.stage.name)

        execute(run, step, due)


def preflight(checks: Callable[[ModuleType], Sequence[Check]]) -> None:
    """Find all that would stop a flow before it begins, unless the command that started it has done so.

    Args:
        checks: gives the checks; its argument is `darklode.flows.preflight`, which takes a moment to load.

    Raises:
        DarklodeError: something is in the way.
    """
    if not executor().unchecked:
        return
    from darklode.flows import preflight

    found = preflight.found_by(checks(preflight))
    for note in found.notes:
        reporter().say(note)
    found.insist()


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
    if plan.stands and manifest is not None:
        run.tidy(manifest)
        reporter().finish(name, manifest, redone=False)
        return manifest, False
    follow = progress()
    reporter().start(name, plan.reason or "")
    manifest = run.execute(plan, step.work, follow)
    reporter().finish(name, manifest, redone=True)
    return manifest, True


def reported(stage: str) -> Progress:
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
