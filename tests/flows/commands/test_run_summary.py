"""The end of `build` and `mine` on screen: the facts and commands of the report's first row."""

import pytest

from darklode.flows.commands.run_summary import show_next_steps, show_summary
from darklode.flows.config import load_settings
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.summary import header
from darklode.schemas.run_inputs import BenchmarkInputs
from helpers.finished_run import finished_run
from helpers.report_runs import opened


@pytest.fixture
def finished(run: Run) -> Run:
    finished_run(run.store.url)
    write_run(run, BenchmarkInputs(docs="/my docs", queries="q.csv"), load_settings())
    return run


def test_the_screen_has_the_facts_and_warnings_of_the_report(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    show_summary(finished)
    printed = " ".join(capsys.readouterr().out.split())
    with opened(finished) as source:
        head = header(source)
    assert len(head.facts) == 6
    for fact in head.facts:
        assert f"{fact.label} {fact.value} {fact.note}".strip() in printed
    assert "Weak labels from the embedded scorer: The labels come from the embedded scorer" in printed


def test_the_commands_have_the_paths_of_the_run(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    show_next_steps(finished)
    first, second = capsys.readouterr().out.split("Next:\n")[1].splitlines()[:2]
    assert first.startswith(f"  darklode report {finished.store.url} --open ")
    assert second.startswith("  darklode build --docs '/my docs' --queries ")
    assert f" --config {finished.store.url}/settings.yaml " in second, "the run has no funnel yet"
