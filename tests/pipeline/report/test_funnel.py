from pathlib import Path

from darklode.flows.config import load_settings
from darklode.flows.jobs.build_benchmark import steps
from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage
from darklode.pipeline.report.funnel import FUNNEL_STAGE, funnel, in_data_order
from darklode.schemas.tables import TABLES
from helpers.finished_run import finished_run
from helpers.runs import put, read

BUILD_ORDER = [step.stage.name for step in steps("docs", "queries", load_settings())]


def build(run: Run) -> list[dict[str, object]]:
    run.execute(run.plan(FUNNEL_STAGE, {}), lambda _tables, output: funnel(run, output, BUILD_ORDER))
    return read(run, "funnel")


def count(run: Run, stage: str, *steps: FunnelStep) -> None:
    def work(_tables: object, output: Output) -> None:
        for step in steps:
            output.count(step)

    run.execute(run.plan(Stage(stage, 1, (), ()), {}), work)


def test_every_step_is_there_in_the_order_of_the_build(tmp_path: Path) -> None:
    rows = build(finished_run(str(tmp_path / "run")))
    steps = list(dict.fromkeys(row["step"] for row in rows))
    assert steps == list(BUILD_ORDER)
    assert [row["position"] for row in rows] == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]


def test_a_step_has_a_row_per_reason_or_one_without(tmp_path: Path) -> None:
    rows = build(finished_run(str(tmp_path / "run")))
    clean = [(row["rows_in"], row["rows_out"], row["reason"], row["dropped"]) for row in rows if row["step"] == "clean"]
    assert clean == [(12, 8, "too long", 2), (12, 8, "not en", 2)]
    assert [(row["reason"], row["dropped"]) for row in rows if row["step"] == "split"] == [(None, 0)]
    assert all(len({row["rows_in"] for row in rows if row["position"] == place}) == 1 for place in range(10))


def test_a_stage_keeps_the_order_of_its_steps_and_strangers_come_last(run: Run) -> None:
    count(run, "aaa", FunnelStep("aaa", "rows", 1, "rows", 1))
    count(run, "judge", FunnelStep("judge", "pairs", 2, "pairs", 2))
    count(run, "clean", FunnelStep("z", "queries", 3, "queries", 2, {"x": 1}), FunnelStep("a", "q", 2, "q", 2))
    assert [row["step"] for row in build(run)] == ["z", "a", "judge", "aaa"]
    assert in_data_order(["b", "judge", "a", "split"], BUILD_ORDER) == ["split", "judge", "a", "b"]


def test_a_run_without_steps_has_an_empty_funnel(run: Run) -> None:
    put(run, "qrels", TABLES["qrels"].empty())
    assert build(run) == []
    assert run.tables("funnel").rows("funnel") == 0
