"""The dataset's labels: the judge's, and people's where they overrule it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import FunnelStep, Manifest, Run
from darklode.pipeline.judge import label as module
from darklode.pipeline.judge.label import LABEL, OVERRIDING_LABEL, write_qrels
from darklode.schemas.judging import LabelSettings
from darklode.schemas.review_tables import HUMAN_LABELS
from darklode.schemas.settings import Settings
from darklode.schemas.tables import VERDICTS
from helpers.judge_tables import pool, queries
from helpers.runs import execute, put, read

Verdict = tuple[str, str, str, bool | None, int | None]
VERDICTS_GIVEN: list[Verdict] = [
    ("b", "q1", "c1", True, None),
    ("a", "q2", "c1", False, 1),
    ("a", "q1", "c2", None, 2),
    ("a", "q1", "c1", True, 3),
    ("a", "q1", "c3", True, 0),
]


QUERIES = {"a": ("q1", "q2", "q3"), "b": ("q1", "q2")}


def given(
    run: Run, labels: list[tuple[str, str, str, int]] | None = None, verdicts: list[Verdict] = VERDICTS_GIVEN
) -> Run:
    names = ("tenant", "query_id", "chunk_id", "relevant", "grade")
    rows = [dict(zip(names, row, strict=True)) | {"judge_id": "j"} for row in verdicts]
    put(run, "verdicts", pa.Table.from_pylist(rows, schema=VERDICTS.schema))
    put(run, "queries", pa.concat_tables(queries(of, {name: name for name in names}) for of, names in QUERIES.items()))
    asked = {of: [*[row[1:3] for row in VERDICTS_GIVEN if row[0] == of]] for of in QUERIES}
    put(
        run,
        "pool",
        pa.concat_tables(pool(of, [*pairs, ("q2", "c9")] if of == "b" else pairs) for of, pairs in asked.items()),
    )
    human = [dict(zip(HUMAN_LABELS.schema.names, row, strict=True)) for row in labels or []]
    put(run, "human_labels", pa.Table.from_pylist(human, schema=HUMAN_LABELS.schema))
    return run


def labelled(run: Run, human_overrides: bool = False, binary: bool = False) -> Manifest:
    settings = LabelSettings(human_overrides=human_overrides, binary=binary)
    stage = OVERRIDING_LABEL if human_overrides else LABEL
    return execute(run, stage, lambda tables, output: write_qrels(tables, output, settings))


def rows(run: Run) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in read(run, "qrels")]


JUDGE_SAYS = [
    ("a", "q1", "c1", 3, "judge"),
    ("a", "q1", "c3", 1, "judge"),
    ("a", "q2", "c1", 0, "judge"),
    ("b", "q1", "c1", 1, "judge"),
]


def test_every_readable_verdict_has_a_relevance(run: Run) -> None:
    manifest = labelled(given(run, [("a", "q1", "c1", 0)]))
    assert rows(run) == JUDGE_SAYS
    assert manifest.funnel[0] == FunnelStep("label", "verdicts", 5, "labels", 4, {"unreadable reply": 1})
    assert manifest.facts == {}


def test_people_overrule_the_judge_where_that_is_asked_for(run: Run) -> None:
    human = [("a", "q1", "c1", 0), ("a", "q1", "c2", 2), ("a", "q9", "c9", 1), ("b", "q1", "c1", 1)]
    manifest = labelled(given(run, human), human_overrides=True)
    assert rows(run) == [
        ("a", "q1", "c1", 0, "human"),
        ("a", "q1", "c2", 2, "human"),
        ("a", "q1", "c3", 1, "judge"),
        ("a", "q2", "c1", 0, "judge"),
        ("b", "q1", "c1", 1, "human"),
        ("a", "q9", "c9", 1, "human"),
    ]
    folders = [part.file.removeprefix("tables/qrels/").rpartition("/")[0] for part in run.parts()["qrels"]]
    assert folders == ["train", ""], "of a query without a split"
    assert manifest.facts == {"human": 4, "only_human": 2, "overruled": 1}
    assert manifest.funnel[0] == FunnelStep("label", "verdicts", 5, "labels", 6, {"unreadable reply": 1})


def test_binary_labels_drop_the_grades_of_judge_and_people(run: Run) -> None:
    human = [("a", "q1", "c2", 2), ("a", "q2", "c1", 0)]
    labelled(given(run, human), human_overrides=True, binary=True)
    assert rows(run) == [
        ("a", "q1", "c1", 1, "judge"),
        ("a", "q1", "c2", 1, "human"),
        ("a", "q1", "c3", 1, "judge"),
        ("a", "q2", "c1", 0, "human"),
        ("b", "q1", "c1", 1, "judge"),
    ]


def test_human_labels_without_grades_keep_the_judges_grade_or_get_its_lowest(run: Run) -> None:
    """A 1 that means "relevant" must not gain a third of the judge's 3; nor half of its lowest relevant grade."""
    verdicts: list[Verdict] = [("a", "q1", "c1", True, 3), ("a", "q1", "c3", True, 2), ("a", "q2", "c1", False, 1)]
    human = [("a", "q1", "c1", 1), ("a", "q1", "c2", 1), ("a", "q1", "c3", 0), ("a", "q2", "c1", 1)]
    labelled(given(run, human, verdicts), human_overrides=True)
    assert rows(run) == [
        ("a", "q1", "c1", 3, "human"),
        ("a", "q1", "c2", 2, "human"),
        ("a", "q1", "c3", 0, "human"),
        ("a", "q2", "c1", 2, "human"),
    ]


def test_grades_of_people_replace_the_judges_grades(run: Run) -> None:
    verdicts: list[Verdict] = [("a", "q1", "c1", True, 3), ("a", "q1", "c3", True, 2)]
    labelled(given(run, [("a", "q1", "c1", 1), ("a", "q1", "c3", 3)], verdicts), human_overrides=True)
    assert [row[3] for row in rows(run)] == [1, 3]


def test_a_query_that_nothing_answers_is_an_outcome_of_its_own(run: Run) -> None:
    """Two have a positive; all candidates of a/q2 are not relevant; one of b/q2 was never judged; a/q3 has none."""
    outcomes = {
        "no candidate found": 1,
        "no positive among the labelled candidates": 1,
        "no positive found": 1,
    }
    asked = FunnelStep("answers", "queries", 5, "queries with a positive", 2, outcomes)
    assert labelled(given(run)).funnel[1] == asked


def test_people_may_answer_a_query_that_the_judge_leaves_without_an_answer(run: Run) -> None:
    step = labelled(given(run, [("a", "q2", "c1", 1)]), human_overrides=True).funnel[1]
    assert (step.rows_out, step.dropped.get("no positive found")) == (3, None)


def test_without_human_labels_nothing_is_overruled(run: Run) -> None:
    labelled(given(run), human_overrides=True)
    assert rows(run) == JUDGE_SAYS


def test_the_labels_of_a_large_run_come_in_parts_and_in_order(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 2)
    manifest = labelled(given(run))
    assert [part.rows for part in manifest.outputs["qrels"]] == [2, 2]
    assert rows(run) == JUDGE_SAYS


def test_overruling_needs_human_labels() -> None:
    with pytest.raises(ValueError, match=r"needs judge\.human_labels"):
        Settings.model_validate({"labels": {"human_overrides": True}})
