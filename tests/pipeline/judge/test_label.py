"""The dataset's labels: the judge's, and people's where they overrule it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.base.artifacts import FunnelStep, Manifest, Run
from darklode.pipeline.base.doubtful_labels import TIED_REASON
from darklode.pipeline.judge import label as module
from darklode.pipeline.judge.label import LABEL, OVERRIDING_LABEL, precision_cut, write_labels
from darklode.schemas.judging import LabelSettings
from darklode.schemas.label_tables import JUDGED_CHUNKS, VERDICTS
from darklode.schemas.review_tables import CALIBRATION, HUMAN_LABELS
from darklode.schemas.settings import Settings
from darklode.schemas.tables import CHUNKS
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


COLUMNS = ("tenant", "query_id", "chunk_id", "relevance", "source")
SPLITS = ("train", "validation", "test")
TEXT = "Restart the cluster after the upgrade."
QUERIES = {"a": ("q1", "q2", "q3"), "b": ("q1", "q2")}


def chunks(texts: dict[tuple[str, str], str]) -> pa.Table:
    rows = [
        {"tenant": tenant, "chunk_id": chunk, "doc_id": "d", "position": 0, "start": 0, "end": 0, "content_hash": "h"}
        | {"text": text}
        for (tenant, chunk), text in texts.items()
    ]
    return pa.Table.from_pylist(rows, schema=CHUNKS.schema)


def verdicts_and_labels(
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
    put(run, "chunks", chunks({(of, name): TEXT for of in QUERIES for name in ("c1", "c2", "c3", "c9")}))
    human = [dict(zip(HUMAN_LABELS.schema.names, (*row, None), strict=True)) for row in labels or []]
    put(run, "human_labels", pa.Table.from_pylist(human, schema=HUMAN_LABELS.schema))
    return run


def labelled(run: Run, human_overrides: bool = False, binary: bool = False) -> Manifest:
    settings = LabelSettings(human_overrides=human_overrides, binary=binary)
    stage = OVERRIDING_LABEL if human_overrides else LABEL
    return execute(run, stage, lambda tables, output: write_labels(tables, output, settings))


def rows(run: Run) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in COLUMNS) for row in read(run, "qrels")]


JUDGE_SAYS = [
    ("a", "q1", "c1", 3, "judge"),
    ("a", "q1", "c3", 1, "judge"),
    ("a", "q2", "c1", 0, "judge"),
    ("b", "q1", "c1", 1, "judge"),
]


def test_every_readable_verdict_has_a_relevance(run: Run) -> None:
    manifest = labelled(verdicts_and_labels(run, [("a", "q1", "c1", 0)]))
    assert rows(run) == JUDGE_SAYS
    assert manifest.funnel[0] == FunnelStep("label", "verdicts", 5, "labels", 4, {"unreadable reply": 1})
    assert manifest.facts == {"uncertain": 0, "short_of_precision": []}


def test_people_overrule_the_judge_where_that_is_asked_for(run: Run) -> None:
    human = [("a", "q1", "c1", 0), ("a", "q1", "c2", 2), ("a", "q9", "c9", 1), ("b", "q1", "c1", 1)]
    manifest = labelled(verdicts_and_labels(run, human), human_overrides=True)
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
    assert manifest.facts.items() >= {"human": 4, "only_human": 2, "overruled": 1}.items()
    assert manifest.funnel[0] == FunnelStep("label", "verdicts", 5, "labels", 6, {"unreadable reply": 1})


def test_binary_labels_drop_the_grades_of_judge_and_people(run: Run) -> None:
    human = [("a", "q1", "c2", 2), ("a", "q2", "c1", 0)]
    labelled(verdicts_and_labels(run, human), human_overrides=True, binary=True)
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
    labelled(verdicts_and_labels(run, human, verdicts), human_overrides=True)
    assert rows(run) == [
        ("a", "q1", "c1", 3, "human"),
        ("a", "q1", "c2", 2, "human"),
        ("a", "q1", "c3", 0, "human"),
        ("a", "q2", "c1", 2, "human"),
    ]


def test_grades_of_people_replace_the_judges_grades(run: Run) -> None:
    verdicts: list[Verdict] = [("a", "q1", "c1", True, 3), ("a", "q1", "c3", True, 2)]
    labelled(verdicts_and_labels(run, [("a", "q1", "c1", 1), ("a", "q1", "c3", 3)], verdicts), human_overrides=True)
    assert [row[3] for row in rows(run)] == [1, 3]


def test_a_query_that_nothing_answers_is_an_outcome_of_its_own(run: Run) -> None:
    """Two have a positive; all candidates of a/q2 are not relevant; one of b/q2 was never judged; a/q3 has none."""
    outcomes = {
        "no candidate found": 1,
        "no positive among the labelled candidates": 1,
        "no positive found": 1,
    }
    asked = FunnelStep("answers", "queries", 5, "queries with a positive", 2, outcomes)
    assert labelled(verdicts_and_labels(run)).funnel[1] == asked


def test_people_may_answer_a_query_that_the_judge_leaves_without_an_answer(run: Run) -> None:
    step = labelled(verdicts_and_labels(run, [("a", "q2", "c1", 1)]), human_overrides=True).funnel[1]
    assert (step.rows_out, step.dropped.get("no positive found")) == (3, None)


def test_without_human_labels_nothing_is_overruled(run: Run) -> None:
    labelled(verdicts_and_labels(run), human_overrides=True)
    assert rows(run) == JUDGE_SAYS


def test_the_labels_of_a_large_run_come_in_parts_and_in_order(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 2)
    manifest = labelled(verdicts_and_labels(run))
    assert [part.rows for part in manifest.outputs["qrels"]] == [2, 2]
    assert rows(run) == JUDGE_SAYS


def test_overruling_needs_human_labels() -> None:
    with pytest.raises(ValueError, match=r"needs judge\.human_labels"):
        Settings.model_validate({"labels": {"human_overrides": True}})


def graded(run: Run, probabilities: dict[str, list[float | None]], texts: dict[str, str] | None = None) -> Run:
    """A run of tenant t: queries are named after their split; pairs are relevant from 0.4 on, or without a value."""
    names = sorted(probabilities)
    pairs = [(query, f"{query}-c{number}", p) for query in names for number, p in enumerate(probabilities[query])]
    verdict_rows = [
        {"tenant": "t", "query_id": query, "chunk_id": chunk, "judge_id": "j", "relevant": p is None or p >= 0.4}
        | {"probability": p}
        for query, chunk, p in pairs
    ]
    put(run, "verdicts", pa.Table.from_pylist(verdict_rows, schema=VERDICTS.schema))
    query_rows = queries("t", {name: name for name in names})
    splits = pa.array([next(split for split in SPLITS if name.startswith(split)) for name in names])
    column = query_rows.schema.get_field_index("split")
    put(run, "queries", query_rows.set_column(column, query_rows.schema.field("split"), splits))
    put(run, "pool", pool("t", [(query, chunk) for query, chunk, _ in pairs]))
    put(run, "chunks", chunks({("t", chunk): (texts or {}).get(chunk, TEXT) for _, chunk, _ in pairs}))
    return run


def written(run: Run, **settings: float) -> Manifest:
    stage = LABEL.reading("calibration") if "calibration" in run.parts() else LABEL
    return execute(run, stage, lambda tables, output: write_labels(tables, output, LabelSettings(**settings)))


def relevance(run: Run, table: str) -> dict[str, int | None]:
    return {row["chunk_id"]: row["relevance"] for row in read(run, table)}


def test_both_label_sets_reach_their_wanted_precision(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    graded(run, {"train": [0.9, 0.7, 0.5, 0.1], "validation": [0.8, None], "test": [0.9, 0.45]})
    monkeypatch.setattr(module, "MIN_TEST_QUERIES", 0)
    manifest = written(run, test_precision=0.85, training_precision=0.7)
    certain = {"train-c0": 1, "test-c0": 1, "validation-c0": 1, "validation-c1": 1, "train-c3": 0}
    uncertain = {"train-c1": None, "train-c2": None, "test-c1": None}
    assert relevance(run, "qrels") == certain | uncertain, "0.9, 0.9 and 0.8 have the mean 0.867, with 0.7 it is 0.825"
    assert manifest.facts["uncertain"] == 3
    training = relevance(run, "training_labels")
    assert training == {
        "train-c0": 1,
        "train-c1": 1,
        "train-c2": 1,
        "train-c3": 0,
        "validation-c0": 1,
        "validation-c1": 1,
    }
    weights = {row["chunk_id"]: row["weight"] for row in read(run, "training_labels")}
    assert weights["validation-c1"] is None
    assert weights["train-c2"] == pytest.approx(0.5)


def test_some_test_queries_keep_a_positive_if_the_precision_is_out_of_reach(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_TEST_QUERIES", 2)
    graded(run, {"test1": [0.5, 0.49], "test2": [0.6], "test3": [0.42], "train": [0.55]})
    manifest = written(run, test_precision=0.9)
    assert [chunk for chunk, label in relevance(run, "qrels").items() if label] == ["test1-c0", "test2-c0"]
    assert manifest.facts["short_of_precision"] == ["t"]
    assert manifest.funnel[1].dropped == {"only uncertain positives": 2}


SHORT = [
    "Inference",
    "## Training a model with several workers",
    "[Inference](serve/inference.md)",
    "- https://a.example/b",
]
LONG = [
    "Set num_gpus=1 here.",
    "## Inference\n\nServe a trained model.",
    "See [the guide](a.md) to serve models.",
    "推論を実行する",
]


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_bare_heading_or_link_is_an_uncertain_positive(run: Run, split: str) -> None:
    texts = {f"{split}-c{number}": text for number, text in enumerate([*LONG, *SHORT])}
    graded(run, {split: [0.99] * len(texts)}, texts)
    written(run)
    assert list(relevance(run, "qrels").values()) == [1] * len(LONG) + [None] * len(SHORT)
    written(run, min_letters=0)
    assert set(relevance(run, "qrels").values()) == {1}


def test_a_bare_heading_may_be_a_negative_and_peoples_positive(run: Run) -> None:
    graded(run, {"train": [0.99, 0.01]}, {"train-c0": SHORT[0], "train-c1": SHORT[1]})
    row = {"tenant": "t", "query_id": "train", "chunk_id": "train-c0", "relevance": 1, "weight": None}
    put(run, "human_labels", pa.Table.from_pylist([row], schema=HUMAN_LABELS.schema))
    labelled(run, human_overrides=True)
    assert relevance(run, "training_labels") == {"train-c0": 1, "train-c1": 0}


def test_a_bare_heading_is_no_last_resort_of_training(run: Run) -> None:
    """The best uncertain positive of a query may become its triplet; a text without content must not."""
    graded(run, {"train": [0.5, 0.45, 0.3]}, {"train-c0": SHORT[0], "train-c2": SHORT[1]})
    written(run, training_precision=0.9)
    rows = {row["chunk_id"]: (row["relevance"], row["weight"]) for row in read(run, "training_labels")}
    assert rows == {"train-c0": (None, 0), "train-c1": (None, pytest.approx(0.45)), "train-c2": (None, 0)}


def test_a_plausible_negative_is_uncertain_for_training_alone(run: Run) -> None:
    graded(run, {"train": [0.9, 0.39, 0.2, 0.19]})
    written(run)
    assert list(relevance(run, "training_labels").values()) == [1, None, None, 0]
    assert list(relevance(run, "qrels").values()) == [1, 0, 0, 0]


def test_a_label_that_its_log_probabilities_do_not_favour_is_uncertain(run: Run) -> None:
    graded(run, {"train": [None, None, None]})
    rows = run.tables("verdicts").read("verdicts").to_pylist()
    doubts = ({"contradicted": True}, {"no_probability": TIED_REASON}, {"contradicted": False})
    verdicts = [row | doubt for row, doubt in zip(rows, doubts, strict=True)]
    put(run, "verdicts", pa.Table.from_pylist(verdicts, schema=VERDICTS.schema))
    written(run)
    assert list(relevance(run, "training_labels").values()) == [None, None, 1]


def test_weights_are_corrected_by_peoples_labels(run: Run) -> None:
    graded(run, {"train": [0.9, 0.6]})
    row = {"tenant": "t", "judge_id": "j", "labels": 100, "unreadable": 0, "probabilities": 100}
    row |= {"slope": 1.0, "intercept": -2.0}
    counts = dict.fromkeys(("true_positives", "false_positives", "false_negatives", "true_negatives"), 25)
    put(run, "calibration", pa.Table.from_pylist([row | counts], CALIBRATION.schema))
    written(run, training_precision=0.5)
    weights = {row["chunk_id"]: row["weight"] for row in read(run, "training_labels")}
    assert weights["train-c0"] == pytest.approx(1 / (1 + np.exp(2 - np.log(9))), abs=1e-6)
    assert relevance(run, "training_labels") == {"train-c0": 1, "train-c1": None}


@given(st.lists(st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0]), max_size=12), st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]))
def test_the_cut_is_the_lowest_that_reaches_the_precision(probabilities: list[float], precision: float) -> None:
    values = np.array(probabilities, np.float64)
    reaching = [cut for cut in values if values[values >= cut].mean() >= precision]
    assert precision_cut(values, precision) == min(reaching, default=np.inf)


def test_other_chunks_of_a_relevant_document_are_neither_positive_nor_negative(run: Run) -> None:
    verdicts_and_labels(run, [("a", "q1", "c1", 2)], verdicts=[])
    judged = [("a", "q1", "c1", 2), ("a", "q1", "c2", None), ("a", "q2", "c9", None)]
    judged_rows = [dict(zip(JUDGED_CHUNKS.schema.names, row, strict=True)) for row in judged]
    put(run, "judged_chunks", pa.Table.from_pylist(judged_rows, schema=JUDGED_CHUNKS.schema))
    settings = LabelSettings(human_overrides=True)
    stage = OVERRIDING_LABEL.reading("judged_chunks")
    execute(run, stage, lambda tables, output: write_labels(tables, output, settings))
    assert rows(run) == [
        ("a", "q1", "c1", 2, "human"),
        ("a", "q1", "c2", None, "human"),
        ("a", "q2", "c9", None, "human"),
    ]
