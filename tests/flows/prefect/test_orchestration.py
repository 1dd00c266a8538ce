"""A stage that a network file system or S3 lets down is tried again; what will not pass by itself is not."""

from pathlib import Path
from typing import Any

import pytest

from darklode.flows.jobs.job import Job
from darklode.flows.prefect.orchestration import as_flow
from darklode.flows.stage_runner import RETRY_SECONDS, run_step
from darklode.pipeline.base.artifacts import Output, Run, Stage, Step, Tables, call
from darklode.pipeline.base.errors import StageUnfinished
from helpers import shaky_stage
from helpers.commands import Environment, server_of

pytestmark = pytest.mark.server

Ended = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def ended(served: Environment, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """How each case of `shaky_stage` ended, on a real server."""
    folder = tmp_path_factory.mktemp("shaky")
    with server_of(served):
        return {name: shaky_stage.ended(folder / name, errors) for name, errors in shaky_stage.CASES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["once", "twice"])
def test_what_may_pass_is_tried_again_and_finished_units_are_kept(ended: Ended, case: str) -> None:
    errors = shaky_stage.CASES[case]
    assert ended[case] == {
        "said": [f"judge: {error}; retrying" for error in errors],
        "worked": ["first", "second", *["second"] * len(errors)],
        "raised": "",
        "rows": 2,
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", ["an error of ours", "a mistake", "no such file", "nobody listens", "Ctrl-C"])
def test_what_will_not_pass_is_raised_at_once(ended: Ended, case: str) -> None:
    (error,) = shaky_stage.CASES[case]
    assert ended[case] == {
        "said": [],
        "worked": ["first", "second"],
        "raised": f"{type(error).__name__}: {error}",
        "rows": 0,
    }


@pytest.mark.slow
def test_what_does_not_pass_in_the_end_is_raised(ended: Ended) -> None:
    assert ended["too often"]["raised"] == "OSError: [Errno 5] number 2"
    assert ended["too often"]["worked"] == ["first", "second", "second", "second"]
    assert len(ended["too often"]["said"]) == len(shaky_stage.SOON) == len(RETRY_SECONDS) == 2


@pytest.mark.slow
def test_a_job_may_run_further_stages_after_an_unfinished_one(served: Environment, tmp_path: Path) -> None:
    run, written = Run(str(tmp_path / "run")), list[str]()

    def stop(_tables: Tables, output: Output) -> None:
        output.write("qrels", shaky_stage.row("first"))
        raise StageUnfinished("the judge stopped")

    def finish_anyway() -> None:
        with pytest.raises(StageUnfinished, match="the judge stopped"):
            run_step(run, Step(shaky_stage.STAGE, call(stop)))
        run_step(run, Step(Stage("later", 1, ("qrels",), ()), call(lambda tables, _: written.append(tables.url))))

    with server_of(served):
        as_flow(Job("finish-anyway", finish_anyway))()
    assert written == [str(tmp_path / "run")]
    assert run.tables("qrels").rows("qrels") == 1
    plan = Step(shaky_stage.STAGE, call(stop)).plan(run)
    assert plan.reason == "it did not finish"
