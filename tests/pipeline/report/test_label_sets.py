"""What a benchmark's labels and triplets yield, and how right they are said to be."""

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.types import Row
from darklode.pipeline.report.label_sets import label_sets
from darklode.schemas.tables import TABLES
from helpers.runs import put


def written(run: Run, table: str, rows: list[Row]) -> None:
    """Rows in which columns that are not named are empty or null."""
    schema = TABLES[table].schema
    blank = {field.name: None if field.nullable else _blank(field.type) for field in schema}
    put(run, table, pa.Table.from_pylist([blank | row for row in rows], schema=schema))


def _blank(kind: pa.DataType) -> object:
    return "" if pa.types.is_string(kind) else [] if pa.types.is_list(kind) else 0


@pytest.fixture
def labelled(run: Run) -> Run:
    """Two test queries, one with two positives, one of them people's; two training queries, one with a triplet."""
    splits = {"t1": "test", "t2": "test", "a": "train", "b": "validation"}
    written(run, "queries", [{"tenant": "x", "query_id": name, "split": split} for name, split in splits.items()])
    pairs = [
        ("t1", "c1", "judge", 0.6),
        ("t1", "c2", "human", 0.1),
        ("a", "c1", "judge", 0.9),
        ("b", "c1", "judge", 0.2),
    ]
    key = [{"tenant": "x", "query_id": query, "chunk_id": chunk} for query, chunk, *_ in pairs]
    written(run, "qrels", [row | {"relevance": 1, "source": pair[2]} for row, pair in zip(key, pairs, strict=True)])
    verdicts = [row | {"relevant": True, "probability": pair[3]} for row, pair in zip(key, pairs, strict=True)]
    written(run, "verdicts", verdicts)
    triplet = {"tenant": "x", "query_id": "a", "positive_id": "c1", "source": "pooled", "split": "train"}
    written(run, "triplets", [triplet])
    return run


def rows_of(run: Run) -> dict[str, Row]:
    return {row["labels"]: row for row in label_sets(run, all_tables(run)).to_pylist()}


def test_yield_and_mean_probability_are_those_of_the_positives(labelled: Run) -> None:
    found = rows_of(labelled)
    test, training = found["test labels"], found["training triplets"]
    assert (test["queries"], test["with_positive"], test["share"], test["positives"]) == (2, 1, 0.5, 2)
    assert test["precision"] == pytest.approx((0.6 + 1) / 2)
    assert (training["queries"], training["with_positive"], training["positives"]) == (2, 1, 1)
    assert training["precision"] == pytest.approx(0.9)
    assert {row["basis"] for row in found.values()} == {"judge's probabilities"}
    assert {row["precision_low"] for row in found.values()} == {None}


def test_a_positive_without_a_probability_leaves_the_precision_unknown(labelled: Run) -> None:
    key = {"tenant": "x", "query_id": "t2", "chunk_id": "c9"}
    rows = labelled.tables("qrels").read("qrels").to_pylist()
    written(labelled, "qrels", [*rows, key | {"relevance": 1, "source": "judge"}])
    assert (rows_of(labelled)["test labels"]["precision"], rows_of(labelled)["test labels"]["basis"]) == (None, None)


def test_a_review_replaces_the_estimate(labelled: Run) -> None:
    measured = {"precision": 0.7, "precision_low": 0.6, "precision_high": 0.8}
    written(
        labelled, "validation", [measured, {"tenant": "x", "precision": 0.1}, {"retriever": "bm25", "precision": 0.1}]
    )
    for row in rows_of(labelled).values():
        assert (row["precision"], row["precision_low"], row["precision_high"]) == (0.7, 0.6, 0.8)
        assert row["basis"] == "review"


def test_a_run_without_labels_has_no_label_sets(run: Run) -> None:
    assert rows_of(run) == {}
