"""Holes go to the very judge of the labels, both sides' alike, and within a budget."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.judge.cascade import Cascade, CascadeBand
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.train.data.pairs import PAIRS_STAGE, adaptation_pairs
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.release.headroom import HEADROOM_STAGE
from darklode.pipeline.train.release.unjudged import (
    NO_JUDGES,
    UNJUDGED_STAGE,
    UnjudgedJudges,
    format_unjudged,
    judge_unjudged,
)
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.adapted import TENANT, build_to_adapt
from helpers.fake_chat import FakeChat
from helpers.runs import execute, put, read
from helpers.scripted_judge import RELEVANT, ScriptedJudge

LISTS = {
    ("base", "test-001"): ["test-001#0", "test-001#2", "test-002#0"],
    ("base", "test-002"): ["test-002#2"],
    ("adapted", "test-001"): ["train-003#0", "test-001#2"],
    ("adapted", "test-002"): ["test-002#0", "test-002#1"],
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> TrainingSource:
    return TrainingSource(build_to_adapt(tmp_path_factory.mktemp("holes") / "run"), 0, mined=False, text_characters=100)


@pytest.fixture
def judges(source: TrainingSource) -> UnjudgedJudges:
    return UnjudgedJudges(((source, Judges.from_settings(Settings())),))


def asked(folder: Path, source: TrainingSource, lists: dict[tuple[str, str], list[str]] = LISTS) -> Run:
    """What is there when the test queries were asked."""
    run = Run(str(folder))
    execute(run, PAIRS_STAGE, lambda _, output: adaptation_pairs([source], output, AdaptSettings()))
    rows = [
        {"tenant": TENANT, "system": system, "query_id": query, "rank": rank, "text_id": text, "score": 1 / rank}
        for (system, query), texts in lists.items()
        for rank, text in enumerate(texts, 1)
    ]
    put(run, "test_rankings", pa.Table.from_pylist(rows, schema=TABLES["test_rankings"].schema))
    return run


def filled(run: Run, judges: UnjudgedJudges, budget: int = 100) -> dict[tuple[str, str], dict[str, Any]]:
    execute(run, UNJUDGED_STAGE, lambda tables, output: judge_unjudged(tables, output, budget, judges))
    return {(str(row["query_id"]), str(row["text_id"])): row for row in read(run, "unjudged_verdicts")}


def test_new_labels_have_the_judges_grades_unless_the_runs_labels_are_binary(
    tmp_path: Path, source: TrainingSource
) -> None:
    with FakeChat(labels=("3", "2", "1", "0")) as server:
        chosen = {"kind": "llm", "model": server.model, "base_url": server.url, "prompt": "graded", "retry_timeout": 5}
        settings = Settings.model_validate({"judge": chosen, "cache": {"root": str(tmp_path / "cache")}})
        graded = UnjudgedJudges(((source, Judges.from_settings(settings)),))
        labels, verdicts = {}, {}
        for name, judges in (("graded", graded), ("binary", replace(graded, binary=(0,)))):
            run = asked(tmp_path / name, source)
            verdicts[name] = filled(run, judges)
            labels[name] = {(row["query_id"], row["text_id"]): row["relevance"] for row in read(run, "test_labels")}
    expected = {pair: row["grade"] if row["grade"] > 1 else 0 for pair, row in verdicts["graded"].items()}
    assert {pair: labels["graded"][pair] for pair in expected} == expected
    assert max(expected.values()) > 1
    assert labels["binary"] == {pair: min(relevance, 1) for pair, relevance in labels["graded"].items()}
    assert replace(graded, binary=(0,)).identity != graded.identity


def test_both_sides_holes_are_judged_once_and_become_labels(
    tmp_path: Path, source: TrainingSource, judges: UnjudgedJudges
) -> None:
    run = asked(tmp_path, source)
    found = filled(run, judges)
    assert set(found) == {
        ("test-001", "test-001#2"), ("test-001", "test-002#0"), ("test-001", "train-003#0"), ("test-002", "test-002#2"),
    }  # fmt: skip
    assert found["test-001", "test-001#2"]["rank"] == 2
    assert found["test-001", "test-001#2"]["relevant"], "it speaks of the query's topic"
    assert not found["test-001", "test-002#0"]["relevant"]
    labels = {(row["query_id"], row["text_id"]): row["relevance"] for row in read(run, "test_labels")}
    assert {one: labels[one] for one in found} == {one: int(row["relevant"]) for one, row in found.items()}
    before = {(row["query_id"], row["text_id"]) for row in read(run, "adaptation_labels")}
    assert set(labels) - set(found) == {one for one in before if str(one[0]).startswith("test")}
    sides = {row["system"]: row for row in read(run, "unjudged_results")}
    assert [sides["base"][name] for name in ("places", "labelled", "judged", "relevant")] == [4, 1, 3, 2]
    assert [sides["adapted"][name] for name in ("places", "labelled", "judged", "relevant")] == [4, 2, 2, 1]
    manifest = run.manifests()["unjudged_results"]
    assert manifest.facts["judge_ids"] == [found["test-002", "test-002#2"]["judge_id"]]
    (step,) = manifest.funnel
    assert (step.rows_in, step.rows_out) == (4, 4)


def test_they_are_the_verdicts_that_the_build_would_have(
    tmp_path: Path, source: TrainingSource, judges: UnjudgedJudges
) -> None:
    """The same pair, judged among others or alone, by the run's own judge."""
    few = filled(asked(tmp_path / "few", source), judges)
    more = filled(asked(tmp_path / "more", source, {("base", "test-001"): ["test-001#2"]}), judges)
    pair = "test-001", "test-001#2"
    assert {**few[pair], "rank": 0} == {**more[pair], "rank": 0}


def test_verdicts_of_a_cascade_name_the_judge_that_answered(
    tmp_path: Path, source: TrainingSource, judges: UnjudgedJudges, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ScriptedJudge(lambda pair: RELEVANT if pair["chunk_id"] == "test-001#2" else {"relevant": True}, "small")
    cascade = Cascade(small, ScriptedJudge(judge_id="large"), CascadeBand(0.2, 0.8))
    monkeypatch.setattr(UnjudgedJudges, "judge", lambda *_: cascade)
    run = asked(tmp_path, source)
    verdicts = filled(run, judges)
    judge_ids = {text: row["judge_id"] for (query, text), row in verdicts.items() if query == "test-001"}
    assert judge_ids == {"test-001#2": "small", "test-002#0": "large", "train-003#0": "large"}
    assert run.manifests()["unjudged_results"].facts["judge_ids"] == ["large", "small"]


def test_the_budget_goes_by_rank_whichever_side_has_it(
    tmp_path: Path, source: TrainingSource, judges: UnjudgedJudges
) -> None:
    run = asked(tmp_path, source)
    found = filled(run, judges, budget=2)
    assert {row["rank"] for row in found.values()} == {1}
    assert set(found) == {("test-001", "train-003#0"), ("test-002", "test-002#2")}
    (step,) = run.manifests()["unjudged_results"].funnel
    assert step.dropped == {"beyond the budget": 2}


def test_the_budget_goes_first_to_the_systems_that_the_decision_compares(
    tmp_path: Path, source: TrainingSource, judges: UnjudgedJudges
) -> None:
    """Also where another system has an unlabelled text further up."""
    lists = LISTS | {("BM25", "test-001"): ["test-003#0"], ("BM25", "test-002"): ["test-003#1", "test-002#2"]}
    run = asked(tmp_path, source, lists)
    execute(
        run,
        UNJUDGED_STAGE,
        lambda tables, output: judge_unjudged(tables, output, 5, judges, first=("base", "adapted")),
    )
    found = [(row["query_id"], row["text_id"]) for row in read(run, "unjudged_verdicts")]
    of_first = {
        ("test-001", "test-001#2"), ("test-001", "test-002#0"), ("test-001", "train-003#0"), ("test-002", "test-002#2"),
    }  # fmt: skip
    assert set(found) == of_first | {("test-001", "test-003#0")}


def test_nobody_is_asked_where_the_budget_is_0_or_no_judge_labelled_the_run(
    tmp_path: Path, source: TrainingSource, judges: UnjudgedJudges
) -> None:
    human = TrainingSource(build_to_adapt(tmp_path / "run"), 0, mined=False, text_characters=100)
    rows = human.run.tables("qrels").read("qrels")
    place = rows.schema.get_field_index("source")
    put(human.run, "qrels", rows.set_column(place, rows.schema.field(place), pa.repeat("human", rows.num_rows)))
    people = UnjudgedJudges(((human, Judges.from_settings(Settings())),))
    log = UnjudgedJudges(((replace(source, mined=True), Judges.from_settings(Settings())),))
    for number, (who, budget) in enumerate([(judges, 0), (people, 9), (log, 9), (NO_JUDGES, 9)]):
        run = asked(tmp_path / f"out{number}", source)
        assert filled(run, who, budget) == {}
        before = [row for row in read(run, "adaptation_labels") if str(row["query_id"]).startswith("test")]
        assert len(read(run, "test_labels")) == len(before)
        assert run.manifests()["unjudged_results"].funnel[0].rows_out == 0


def test_a_hole_that_training_learned_moves_its_query_to_those_that_share(
    tmp_path: Path, source: TrainingSource, judges: UnjudgedJudges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged relevant, a train positive is no longer one that training never saw of this query."""

    yes = ScriptedJudge(lambda _pair: RELEVANT)
    monkeypatch.setattr(UnjudgedJudges, "judge", lambda *_: yes)
    run = asked(tmp_path, source)
    shared = {row["query_id"]: row["shares_positive"] for row in read(run, "adaptation_queries")}
    assert (shared["test-001"], shared["test-002"]) == (False, False)
    filled(run, judges)
    now = {row["query_id"]: row["shares_positive"] for row in read(run, "test_queries")}
    assert (now["test-001"], now["test-002"]) == (True, False)


@pytest.mark.parametrize(("unlabelled", "told"), [(2.0, "about 32 pairs"), (10.0, "about 100 pairs"), (0.0, "")])
def test_what_it_will_take_is_told_before_training(
    tmp_path: Path, source: TrainingSource, judges: UnjudgedJudges, unlabelled: float, told: str
) -> None:
    run = asked(tmp_path, source)
    put(run, "term_queries", TABLES["term_queries"].schema.empty_table())
    execute(run, HEADROOM_STAGE, lambda _, output: output.facts.update(unlabelled=unlabelled))
    assert told in format_unjudged(run, judges, 100)
    assert format_unjudged(run, judges, 0) == format_unjudged(run, NO_JUDGES, 100) == ""
