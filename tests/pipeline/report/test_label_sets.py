"""What a benchmark's labels and triplets yield, and how right they are said to be."""

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.types import Row
from darklode.pipeline.judge.calibration import wilson
from darklode.pipeline.report.label_sets import label_sets
from helpers.runs import written


@pytest.fixture
def labelled(run: Run) -> Run:
    """Two test queries, one with two positives, one of them people's; two training queries, one with a triplet."""
    splits = {"t1": "test", "t2": "test", "a": "train", "b": "validation"}
    written(run, "queries", [{"tenant": "x", "query_id": name, "split": split} for name, split in splits.items()])
    pairs = [
        ("t1", "c1", "judge", 0.6),
        ("t1", "c2", "human", 1.0),
        ("a", "c1", "judge", 0.9),
        ("b", "c1", "judge", 0.2),
    ]
    key = [{"tenant": "x", "query_id": query, "chunk_id": chunk} for query, chunk, *_ in pairs]
    labels = [
        row | {"relevance": 1, "source": source, "weight": weight}
        for row, (*_, source, weight) in zip(key, pairs, strict=True)
    ]
    uncertain = {"tenant": "x", "query_id": "t2", "chunk_id": "c1", "relevance": None, "source": "judge", "weight": 0.4}
    written(run, "qrels", [*labels, uncertain])
    triplet = {"tenant": "x", "query_id": "a", "positive_id": "c1", "source": "pooled", "split": "train", "weight": 0.9}
    written(run, "triplets", [triplet])
    return run


def rows_of(run: Run) -> dict[str, Row]:
    return {row["labels"]: row for row in label_sets(all_tables(run)).to_pylist()}


def test_yield_and_mean_probability_are_those_of_the_positives(labelled: Run) -> None:
    found = rows_of(labelled)
    test, training = found["test labels"], found["training triplets"]
    assert (test["queries"], test["with_positive"], test["share"], test["positives"]) == (2, 1, 0.5, 2)
    assert test["precision"] == pytest.approx((0.6 + 1) / 2)
    assert (training["queries"], training["with_positive"], training["positives"]) == (2, 1, 1)
    assert training["precision"] == pytest.approx(0.9)
    assert {row["basis"] for row in found.values()} == {"judge's probabilities"}
    assert {row["precision_low"] for row in found.values()} == {None}
    assert (test["uncertain"], training["uncertain"]) == (1, None)


def test_a_positive_without_a_probability_leaves_the_precision_unknown(labelled: Run) -> None:
    key = {"tenant": "x", "query_id": "t2", "chunk_id": "c9"}
    rows = labelled.tables("qrels").read("qrels").to_pylist()
    written(labelled, "qrels", [*rows, key | {"relevance": 1, "source": "judge"}])
    assert (rows_of(labelled)["test labels"]["precision"], rows_of(labelled)["test labels"]["basis"]) == (None, None)


def reviewed(run: Run, relevance: list[int], weights: list[float]) -> Run:
    """A run with as many test positives, all of them reviewed."""
    key = [{"tenant": "x", "query_id": f"t{number}", "chunk_id": "c"} for number in range(len(relevance))]
    written(run, "queries", [{"tenant": "x", "query_id": row["query_id"], "split": "test"} for row in key])
    written(run, "qrels", [row | {"relevance": 1, "source": "judge", "weight": 0.9} for row in key])
    written(run, "triplets", [])
    answers = zip(key, relevance, strict=True)
    written(run, "reviews", [row | {"reviewer": "ann", "relevance": label} for row, label in answers])
    written(run, "review_sample", [row | {"weight": weight} for row, weight in zip(key, weights, strict=True)])
    return run


def test_a_review_of_the_set_replaces_the_estimate(run: Run) -> None:
    row = rows_of(reviewed(run, [1] * 6 + [0] * 4, [1.0] * 10))["test labels"]
    assert (row["precision"], row["basis"]) == (0.6, "10 reviewed")
    low, high = (float(bound[0]) for bound in wilson(np.array([6]), np.array([10])))
    assert (row["precision_low"], row["precision_high"]) == pytest.approx((low, high), abs=1e-4)


def test_sampling_weights_count_and_widen_the_interval(run: Run) -> None:
    row = rows_of(reviewed(run, [1] * 6 + [0] * 4, [1.0] * 6 + [3.0] * 4))["test labels"]
    assert row["precision"] == pytest.approx(6 / 18)
    even = rows_of(reviewed(run, [1] * 6 + [0] * 12, [1.0] * 18))["test labels"]
    assert row["precision_high"] - row["precision_low"] > even["precision_high"] - even["precision_low"]


def test_few_reviews_do_not_replace_it(run: Run) -> None:
    row = rows_of(reviewed(run, [1] * 9, [1.0] * 9))["test labels"]
    assert (row["precision"], row["precision_low"], row["basis"]) == (pytest.approx(0.9), None, "judge's probabilities")


def test_a_run_without_labels_has_no_label_sets(run: Run) -> None:
    assert rows_of(run) == {}


def test_reviews_outside_of_the_sample_do_not_count(run: Run) -> None:
    reviewed(run, [1] * 12, [1.0] * 12)
    key = [{"tenant": "x", "query_id": f"t{number}", "chunk_id": "c", "weight": 1.0} for number in range(9)]
    written(run, "review_sample", key)
    assert rows_of(run)["test labels"]["basis"] == "judge's probabilities"
