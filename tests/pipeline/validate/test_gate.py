"""The release gate, the answers as a table, and the labels as a CSV."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import FunnelStep, Run
from darklode.pipeline.base.errors import DarklodeError, NotPublishable
from darklode.pipeline.judge.human_labels import read_labels
from darklode.pipeline.validate.gate import GATE, demand, gate, outcome, release
from darklode.pipeline.validate.labels import REVIEWS_STAGE, answers_fingerprint, labels_csv, write_reviews
from darklode.pipeline.validate.review.journal import Journal
from darklode.schemas.review_tables import VALIDATION
from darklode.schemas.settings import ValidationSettings
from helpers.reviewed_run import answer, answered
from helpers.runs import execute, put, read


def decided(run: Run, found: dict[str, float | None], **asked: float) -> list[dict[str, object]]:
    rows = []
    for tenant in (None, "a"):
        row = {field.name: 0 for field in VALIDATION.schema if not field.nullable}
        rows.append(row | {"tenant": tenant, **(found if tenant is None else dict.fromkeys(found, 0.5))})
    put(run, "validation", pa.Table.from_pylist(rows, schema=VALIDATION.schema))
    settings = ValidationSettings.model_validate(asked)
    execute(run, GATE, lambda tables, output: gate(tables, output, settings))
    return release(run.tables("release"))


FOUND = {"kappa": 0.71, "null_rate": 0.02, "recall": 0.8}


def test_nothing_asked_nothing_decided(run: Run) -> None:
    rows = decided(run, FOUND)
    assert {row["figure"]: (row["value"], row["asked"], row["passed"]) for row in rows} == {
        name: (value, None, None) for name, value in FOUND.items()
    }
    assert outcome(rows) == "not asked"
    demand(rows, "RUN")


def test_what_is_reached_passes_and_the_bound_itself_is_reached(run: Run) -> None:
    rows = decided(run, FOUND, min_kappa=0.71, max_null_rate=0.02, min_recall=0.8)
    assert [row["passed"] for row in rows] == [True] * 3
    assert outcome(rows) == "published"
    demand(rows, "RUN")


def test_each_figure_that_is_missed_is_named_with_what_was_asked(run: Run) -> None:
    rows = decided(run, FOUND | {"recall": None}, min_kappa=0.72, max_null_rate=0.01, min_recall=0.1)
    assert outcome(rows) == "held back"
    with pytest.raises(NotPublishable) as caught:
        demand(rows, "runs/first")
    message = str(caught.value)
    assert message.startswith("runs/first may not be published: kappa is 0.710, and min_kappa asks for at least 0.72; ")
    assert "null_rate is 0.020, and max_null_rate asks for at most 0.01" in message
    assert "recall is unknown, since too little is labelled, and min_recall asks for at least 0.1" in message
    assert (NotPublishable.code, DarklodeError.code) == (3, 1)


def test_one_that_is_reached_does_not_make_up_for_another(run: Run) -> None:
    rows = decided(run, FOUND, min_kappa=0.1, min_recall=0.9)
    assert [row["passed"] for row in rows] == [True, None, False]
    with pytest.raises(NotPublishable, match=r"recall is 0\.8") as caught:
        demand(rows, "RUN")
    assert "kappa" not in str(caught.value)


def test_a_run_without_validation_is_unknown(run: Run) -> None:
    put(run, "validation", VALIDATION.empty())
    execute(run, GATE, lambda tables, output: gate(tables, output, ValidationSettings(min_kappa=0.0)))
    assert {row["figure"]: row["passed"] for row in read(run, "release")} == {
        "kappa": False,
        "null_rate": None,
        "recall": None,
    }


def test_the_standing_answers_become_a_table(run: Run) -> None:
    journal, before = Journal(run.store), answers_fingerprint(run.store)
    for one in (
        answer(("t", "q", "c"), 0),
        answer(("t", "q", "c"), 1),
        answer(("t", "q", "d"), 1),
        answer(("t", "q", "d"), None, undone=True),
        answer(("t", "q", "c"), None, "bob"),
    ):
        journal.append(one)
    manifest = execute(run, REVIEWS_STAGE, lambda _, output: write_reviews(run.store, output))
    rows = [(row["chunk_id"], row["reviewer"], row["relevance"]) for row in read(run, "reviews")]
    assert rows == [("c", "ann", 1), ("c", "bob", None)]
    assert manifest.funnel == [
        FunnelStep("reviews", "answers", 5, "standing answers", 2, {"replaced or taken back": 3})
    ]
    after = answers_fingerprint(run.store)
    assert before != after == answers_fingerprint(Run(run.store.url).store)


def test_the_labels_are_a_csv_that_a_build_takes(run: Run, tmp_path: Path) -> None:
    hostile = ("te,nant", 'q"1"', "=cmd()\nc")
    answers = [answer(hostile, 2), answer(hostile, 3, "bob"), answer(("t", "q", "tied"), 1)]
    answers += [answer(("t", "q", "tied"), 0, "bob"), answer(("t", "q", "no"), 0), answer(("t", "q", "skip"), None)]
    answered(run, answers)
    file = tmp_path / "labels.csv"
    file.write_text(labels_csv(run.tables("reviews")), encoding="utf-8", newline="")
    rows = read_labels(file, "default").to_pylist()
    said = [(row["tenant"], row["query_id"], row["chunk_id"], row["relevance"]) for row in rows]
    assert said == [("t", "q", "no", "0"), (*hostile, "2")] or said == [(*hostile, "2"), ("t", "q", "no", "0")]
