"""What all flows do with a stage, in this process: the funnel's place, plain rows, and what is written at the end."""

import re
from collections.abc import Callable
from html import escape

import pytest

from darklode.flows.config import load_settings
from darklode.flows.executor import InProcess, executing
from darklode.flows.jobs.build_benchmark import steps
from darklode.flows.jobs.job import stages
from darklode.flows.jobs.mine_logs import steps as mine_steps
from darklode.flows.runs import write_run
from darklode.flows.stage_runner import RETRY_SECONDS, finish, funnel_step, publish, run_step, write_pages
from darklode.pipeline.base.artifacts import Output, Run, Stage, Step, Tables, call
from darklode.pipeline.report.card import NO_TABLES_NOTE
from darklode.schemas.run_inputs import BenchmarkInputs, MinedInputs
from darklode.schemas.tables import TABLES
from helpers.finished_run import finished_run
from helpers.runs import put


class Showing(InProcess):
    """Keeps what is shown, and the delays of each step."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.delays: list[object] = []

    def run(self, run: Run, step: Step, delays: object) -> None:
        self.delays.append(delays)
        super().run(run, step, ())

    def show(self, run: Run, page: Callable[[], str]) -> None:
        self.shown.append(page())


def test_the_funnel_is_the_last_stage_and_those_not_asked_for_are_marked() -> None:
    order = stages(steps("docs", "queries", load_settings()))
    assert (next(iter(order)), list(order)[-1]) == ("ingest_documents", "funnel")
    assert all(order.values())
    mined = stages(mine_steps(Run("run"), "logs", "docs", load_settings()))
    assert (mined["funnel"], mined["verify"]) == (True, False), "the embedded judge verifies nothing unless asked"


@pytest.mark.parametrize(
    ("assignments", "wanted"),
    [
        (["judge.kind=cross_encoder", "judge.model=m"], True),
        (["judge.kind=cross_encoder", "judge.model=m", "mining.verify_share=0"], False),
        (["mining.verify_share=0.1"], True),
    ],
)
def test_a_judge_other_than_the_embedded_one_verifies_unless_told_otherwise(
    assignments: list[str], wanted: bool
) -> None:
    settings = load_settings(assignments=assignments)
    assert stages(mine_steps(Run("run"), "logs", "docs", settings))["verify"] is wanted


def test_a_step_is_run_by_the_executor_of_the_flow(run: Run) -> None:
    def work(_tables: Tables, _output: Output) -> None:
        """A stage's function."""

    showing = Showing()
    with executing(showing):
        manifest = run_step(run, Step(Stage("work", 1, (), ()), call(work)))
    assert manifest.stage == "work"
    assert showing.delays == [RETRY_SECONDS]


def test_the_funnel_is_due_when_another_stage_counted_anew(run: Run) -> None:
    finished_run(run.store.url)
    order = list(run.manifests())
    with executing(InProcess()):
        run_step(run, funnel_step(run, order))
    assert funnel_step(run, order).plan(run).is_up_to_date
    run.store.delete("manifests/clean.json")
    assert "the other stages changed" in str(funnel_step(run, order).plan(run).reason)


def test_without_a_report_the_card_has_no_figures_until_the_pages_are_written(run: Run) -> None:
    finished_run(run.store.url)
    write_run(run, MinedInputs(logs="logs", docs="docs"), load_settings())
    finish(run)
    assert b"## Funnel" in (run.store.read("README.md") or b"")
    assert run.store.read("report.html")
    put(run, "log_days", TABLES["log_days"].empty())
    finish(run, report=False)
    assert NO_TABLES_NOTE.encode() in (run.store.read("README.md") or b"")
    assert run.store.read("report.html") is None, "it would be out of date"
    written = {name: run.store.stamp(name) for name in ("README.md", "views.sql", "inputs.json")}
    finish(run, report=False)
    assert {name: run.store.stamp(name) for name in written} == written
    write_pages(run)
    assert b"## Funnel" in (run.store.read("README.md") or b"")
    assert run.store.read("report.html")


def test_a_finished_run_has_card_views_and_report_and_shows_one_page(run: Run) -> None:
    finished_run(run.store.url)
    settings = load_settings()
    write_run(run, BenchmarkInputs(docs="docs", queries="queries"), settings)
    showing = Showing()
    with executing(showing):
        finish(run)
    for file in ("README.md", "views.sql", "report.html"):
        assert run.store.read(file), file
    (page,) = showing.shown
    assert f"`{run.store.url}/report.html`" in page
    titles = re.findall(r"^## (.+)$", page, re.M)
    assert {"Recall of each retriever, and of the pool without it", "Funnel", "Time per stage"} <= set(titles)
    report = (run.store.read("report.html") or b"").decode()
    assert all(escape(title) in report for title in titles)


def test_a_page_is_written_and_shown_beside_the_views(run: Run) -> None:
    finished_run(run.store.url)
    showing = Showing()
    with executing(showing):
        publish(run)
        publish(run, b"# Laws", "laws.md")
    assert (showing.shown, run.store.read("laws.md")) == (["# Laws"], b"# Laws")
    assert b"queries" in (run.store.read("views.sql") or b"")
