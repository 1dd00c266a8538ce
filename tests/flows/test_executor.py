"""Stages in this process: what stands is not run, what is due stops a dry run, and Ctrl-C is looked for."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from darklode.flows import interrupt
from darklode.flows.executor import DryRun, InProcess, StageIsDue, execute, executing, executor, report_progress
from darklode.flows.prefect.progress import SilentReporter, reporting
from darklode.pipeline.base.artifacts import Manifest, Output, Run, Stage, Step, Tables, call
from helpers import shaky_stage

STAGE = Stage("work", 1, (), ())


class Told(SilentReporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def start(self, stage: str, reason: str) -> None:
        self.told.append((stage, reason))

    def progress(self, stage: str, done: int, total: int | None, note: str) -> None:
        self.told.append((stage, done, total, note))

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        self.told.append((stage, redone))


def step(worked: list[int], seed: int = 1) -> Step:
    def work(_tables: Tables, output: Output, seed: int) -> None:
        worked.append(seed)
        output.progress(1, 2, "half")

    return Step(STAGE, call(work, seed=seed))


def test_a_step_is_run_once_and_told_each_time(run: Run) -> None:
    worked: list[int] = []
    told = Told()
    with reporting(told):
        for seed in (1, 1, 2):
            InProcess().run(run, step(worked, seed), ())
    assert worked == [1, 2]
    assert [one for one in told.told if len(one) == 2 and isinstance(one[1], bool)] == [  # type: ignore[arg-type,index]
        ("work", True),
        ("work", False),
        ("work", True),
    ]
    assert ("work", 1, 2, "half") in told.told
    assert ("work", "seed: 1 → 2") in told.told


@pytest.mark.parametrize("case", list(shaky_stage.CASES))
def test_a_temporary_failure_is_retried_as_on_prefect(run: Run, case: str) -> None:
    errors = shaky_stage.CASES[case]
    work, told = shaky_stage.Shaky(errors), shaky_stage.Told()
    is_retried = case in {"once", "twice"}
    shaky = Step(shaky_stage.STAGE, call(work))
    with reporting(told), nullcontext() if is_retried else pytest.raises(type(errors[0])):
        InProcess().run(run, shaky, shaky_stage.SOON)
    n_retries = len(shaky_stage.SOON) if case == "too often" else len(errors) if is_retried else 0
    assert told.sentences == [f"judge: {error}; retrying" for error in errors[:n_retries]]
    assert work.worked == ["first", "second", *["second"] * n_retries], "finished units are kept"
    assert bool(run.manifests()) is is_retried


def test_a_dry_run_goes_through_what_stands_and_stops_before_what_is_due(run: Run) -> None:
    worked: list[int] = []
    InProcess().run(run, step(worked), ())
    before = run.manifests()
    DryRun().run(run, step(worked), ())
    with pytest.raises(StageIsDue, match="work"):
        DryRun().run(run, step(worked, seed=2), ())
    assert (worked, run.manifests()) == ([1], before)


def test_what_ran_and_what_came_of_it(run: Run) -> None:
    worked: list[int] = []
    manifest, ran = execute(run, step(worked), lambda: report_progress("work"))
    assert (manifest.stage, ran) == ("work", True)
    again, ran = execute(run, step(worked), lambda: pytest.fail("nothing has to run"))
    assert (again, ran) == (manifest, False)


def test_a_flow_finds_the_executor_of_its_block(run: Run) -> None:
    class Showing(InProcess):
        def __init__(self) -> None:
            self.shown: list[str] = []

        def show(self, run: Run, page: Callable[[], str]) -> None:
            self.shown.append(f"{page()} of {run.store.url}")

    mine = Showing()
    with executing(mine):
        executor().show(run, lambda: "the page")
    executor().show(run, lambda: pytest.fail("nobody looks on here: no page is made"))
    assert mine.shown == [f"the page of {run.store.url}"]


def test_ctrl_c_that_a_library_swallowed_stops_the_next_step(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []
    monkeypatch.setattr(interrupt, "check", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        InProcess().run(run, step(worked), ())
    with pytest.raises(KeyboardInterrupt):
        report_progress("work")(1, 2, "")
    assert worked == []
