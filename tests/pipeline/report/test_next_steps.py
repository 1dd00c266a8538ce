"""The next command: that of the state a run is in."""

from datetime import timedelta

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.test_queries import BUILD_STAGE, of_a_build
from darklode.pipeline.report.next_steps import NextStep, next_steps
from darklode.pipeline.report.source import STATE_OUTDATED, ReportSource, outdated_by_other_jobs, valid_stages
from darklode.pipeline.report.summary import header
from darklode.pipeline.validate.gate import GATE_STAGE, gate
from darklode.pipeline.validate.review.journal import AnswerJournal
from darklode.pipeline.validate.stage import VALIDATE_STAGE
from darklode.schemas.settings import Settings, ValidationSettings
from darklode.schemas.tables import TABLES
from helpers.adapted import adapted_tables
from helpers.days import days, garbage, judged
from helpers.finished_run import finished_run
from helpers.report_runs import opened, rewrite
from helpers.reviewed_run import answer, pairs, reviewed
from helpers.runs import execute, put
from helpers.small_log import FIRST, mine, random_log


def commands(run: Run, settings: Settings | None = None, *, complete: bool = True) -> list[str]:
    """The commands for a run; `complete`: as if the stages that a test left out were disabled."""
    with opened(run, settings) as source:
        written = {stage: stage in source.manifests for stage in source.stages}
        shown = ReportSource(**(vars(source) | {"stages": written})) if complete else source
        assert not complete or "incomplete" not in valid_stages(shown).values()
        return [step.command_line() for step in next_steps(shown)]


def test_labels_that_nobody_reviewed_are_reviewed_first_and_then_evaluated(run: Run) -> None:
    finished_run(run.store.url)
    review, adapt, export = commands(run)
    assert review == "darklode review RUN"
    assert adapt == "darklode adapt RUN --encoder ENCODER --out ADAPTED --set adapt.tenant=acme", (
        "there are two tenants"
    )
    assert export.startswith("darklode export RUN --format beir ")
    AnswerJournal(run.store).append(answer(("acme", "q 1", "plain#4"), 1))
    assert commands(run)[0] == "darklode validate RUN"


def test_an_incomplete_build_is_continued(run: Run) -> None:
    finished_run(run.store.url)
    run.store.delete("manifests/audit.json")
    assert commands(run, complete=False) == [
        "darklode build --docs DOCS --queries QUERIES --out RUN --config RUN/settings.yaml"
    ]


def test_a_run_whose_queries_are_all_for_testing_is_evaluated_and_exported(run: Run) -> None:
    finished_run(run.store.url)
    given = Settings.model_validate({"judge": {"kind": "none"}})
    rewrite(run, "triplets", lambda name, rows: [] if name == "triplets" else rows)
    assert commands(run, given)[0] == "darklode browse RUN"
    rewrite(run, "split", lambda name, rows: [row | {"split": "test"} for row in rows] if name == "queries" else rows)
    assert commands(run, given)[:2] == ["darklode evaluate RUN", "darklode export RUN --format beir --to OUT"]


def test_an_evaluation_of_other_labels_is_repeated_and_the_build_is_not(run: Run) -> None:
    finished_run(run.store.url)
    execute(run, BUILD_STAGE, of_a_build)
    assert "darklode evaluate RUN" not in commands(run)
    rewrite(run, "label", lambda name, rows: rows[:-1] if name == "qrels" else rows)
    assert "darklode evaluate RUN" in commands(run)
    with opened(run) as source:
        assert outdated_by_other_jobs(source) == {"test_queries": STATE_OUTDATED}
        assert "Some figures are outdated" in [warning.headline for warning in header(source).warnings]


def test_given_labels_are_trained_on(run: Run) -> None:
    given = Settings.model_validate({"judge": {"kind": "none"}})
    assert commands(finished_run(run.store.url), given)[0].startswith("darklode adapt ")


@pytest.fixture
def reviewed_run(run: Run) -> Run:
    """A reviewed run with a triplet."""
    triplets = finished_run(f"{run.store.url}/finished").tables("triplets").read("triplets")
    reviewed(run, pairs({"a": 30, "b": 10}), max_pairs=300)
    put(run, "triplets", triplets)
    return run


def test_good_labels_are_trained_on(reviewed_run: Run) -> None:
    assert commands(reviewed_run)[0].startswith("darklode adapt ")


@pytest.mark.parametrize(("limit", "held_back"), [(0.01, False), (0.999, True)])
def test_labels_below_a_limit_are_improved_and_not_trained_on(reviewed_run: Run, limit: float, held_back: bool) -> None:
    settings = ValidationSettings(min_kappa=limit)
    execute(reviewed_run, GATE_STAGE, lambda tables, output: gate(tables, output, settings))
    first, *others = commands(reviewed_run)
    improvements = ('darklode query RUN "FROM disagreements"', "darklode build ")
    assert first.startswith(improvements) == held_back
    assert (others == []) == held_back


@pytest.mark.parametrize(("fitted_kappa", "is_better"), [(-0.2, False), (0.2, True)])
def test_a_threshold_below_chance_agreement_is_not_proposed(
    reviewed_run: Run, fitted_kappa: float, is_better: bool
) -> None:
    rows = reviewed_run.tables("validation").read("validation").to_pylist()
    known = {"kappa": 0.0, "cross_validated_kappa": fitted_kappa, "threshold": 0.5, "fitted_threshold": 0.4}
    validation = pa.Table.from_pylist([row | known for row in rows], TABLES["validation"].schema)
    execute(reviewed_run, VALIDATE_STAGE, lambda _, output: output.write("validation", validation))
    settings = ValidationSettings(min_kappa=0.999)
    execute(reviewed_run, GATE_STAGE, lambda tables, output: gate(tables, output, settings))
    assert ("--set judge.threshold=0.4" in commands(reviewed_run)[0]) == is_better


def test_a_held_day_is_decided_with_the_whole_command(run: Run) -> None:
    log = days(12)
    log[FIRST + timedelta(10)] = garbage(10)
    judged(run, log)
    with opened(run) as source:
        shown = ReportSource(**(vars(source) | {"stages": {}}))
        decide, compare, *_ = next_steps(shown)
    date = FIRST + timedelta(10)
    assert decide.command_line({"RUN": "/a b/run", "LOGS": "s3://l", "DOCS": "d"}) == (
        "darklode mine --logs s3://l --docs d --out '/a b/run' --config '/a b/run/settings.yaml' "
        f"--accept-day {date} --reason …"
    )
    assert compare.command == "darklode nights RUN"


def test_a_mined_run_is_trained_on(run: Run) -> None:
    mine(run, random_log(7))
    adapt, export = commands(run)
    assert adapt.startswith("darklode adapt ")
    assert "--format sentence-transformers" in export


def test_placeholders_are_whole_words() -> None:
    step = NextStep("darklode x RUN --RUNS RUN/settings.yaml ENCODER", "", "--accept-day RUN:2026-01-01")
    assert step.command_line({"RUN": r"c:\1"}) == (
        r"darklode x 'c:\1' --RUNS 'c:\1/settings.yaml' ENCODER --accept-day RUN:2026-01-01"
    )


def test_other_folders_have_none(run: Run) -> None:
    assert commands(adapted_tables(run), complete=False) == []
