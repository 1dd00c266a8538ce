"""What is trained on, as arrays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.labels import Labels
from darklode.schemas.tables import TABLES
from helpers.adapted import SIDES
from helpers.runs import put, read

from ..conftest import Adapted


def test_some_of_the_queries_are_numbered_anew_with_all_that_is_known_of_them() -> None:
    asked = QuerySet(
        pa.array(["a", "b", "c"]),
        np.eye(3, dtype=np.float32),
        np.zeros(3, np.int32),
        pa.table({"query_id": ["a", "c"]}),
        "xyz",
    )

    def of(query: list[int], position: list[int]) -> Labels:
        return Labels.from_pairs(np.array(query), np.array(position), 5)

    whole = Task(
        None,  # type: ignore[arg-type]
        asked,
        asked,
        np.array([0, 1, 2]),
        np.array([1, 2, 3]),
        labels=of([0, 1, 2], [1, 2, 3]),
        non_relevant=of([0, 1], [4, 0]),
        siblings=of([1, 2], [3, 4]),
        pair_weight=np.array([0.2, 0.3, 0.4], np.float32),
    )
    some = whole.with_queries(np.array([2, 0]))
    assert (some.pair_query.tolist(), some.pair_position.tolist()) == ([1, 0], [1, 3])
    assert some.pair_weight is not None
    assert some.pair_weight.tolist() == np.array([0.2, 0.4], np.float32).tolist()
    assert some.labels.keys.tolist() == of([0, 1], [3, 1]).keys.tolist()
    assert some.non_relevant.keys.tolist() == of([1], [4]).keys.tolist()
    assert some.siblings is not None
    assert some.siblings.keys.tolist() == of([0], [4]).keys.tolist()
    assert replace(whole, siblings=None).with_queries(np.array([1])).siblings is None


def weighted_task(query: list[int], weight: list[float] | None) -> Task:
    pairs: Any = [None] * 3, np.array(query), np.arange(len(query)), [None] * 3
    return Task(*pairs[0], pairs[1], pairs[2], *pairs[3], pair_weight=weight and np.array(weight, np.float32))


def test_relative_weights_have_the_mean_1_over_what_training_draws() -> None:
    task = weighted_task([0, 0, 1], [0.9, 0.3, 0.2])
    per_query, per_pair = (task.relative_weights(one_per_query=one) for one in (True, False))
    np.testing.assert_allclose(per_query, np.array([0.9, 0.3, 0.2]) / np.mean([0.6, 0.2]), rtol=1e-6)
    np.testing.assert_allclose(per_pair, np.array([0.9, 0.3, 0.2]) / np.mean([0.9, 0.3, 0.2]), rtol=1e-6)


@pytest.mark.parametrize("weight", [None, *np.linspace(0.03, 1, 30).tolist()])
@pytest.mark.parametrize("one_per_query", [True, False])
def test_equal_weights_are_exactly_1(weight: float | None, one_per_query: bool) -> None:
    query = [0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 3]
    task = weighted_task(query, None if weight is None else [weight] * len(query))
    assert task.relative_weights(one_per_query=one_per_query).tolist() == [1.0] * len(query)


def test_a_pair_has_the_weight_of_its_label(adapted: Adapted, tmp_path: Path) -> None:
    frozen = adapted.base.open(adapted.out.tables())
    tables = adapted.out.tables("adaptation_queries", "adaptation_labels")
    rows = tables.read("adaptation_labels").to_pylist()
    learned = [row for row in rows if row["learned"]]
    for number, row in enumerate(learned):
        row["weight"] = (number + 1) / len(learned)
    run = Run(str(tmp_path))
    put(run, "adaptation_queries", tables.read("adaptation_queries"))
    put(run, "adaptation_labels", pa.Table.from_pylist(rows, schema=TABLES["adaptation_labels"].schema))
    task = Task.from_tables(run.tables(), frozen, same_document=False)
    expected = {row["query_id"]: row["weight"] for row in learned}
    assert task.pair_weight is not None
    ids = task.train.ids.take(pa.array(task.pair_query)).to_pylist()
    assert dict(zip(ids, task.pair_weight.tolist(), strict=True)) == pytest.approx(expected)


def test_groups_stay_aligned_with_the_queries_of_two_sets() -> None:
    def query_set(query_id: str, group: str | None) -> QuerySet:
        groups = None if group is None else pa.array([group])
        labels = pa.table({"query_id": pa.array([], pa.string())})
        return QuerySet(pa.array([query_id]), np.eye(1, dtype=np.float32), np.zeros(1, np.int32), labels, "x", groups)

    groups = query_set("a", "1").concat(query_set("b", "2")).groups
    assert groups is not None
    assert groups.to_pylist() == ["1", "2"]
    assert query_set("a", "1").concat(query_set("b", None)).groups is None
    assert query_set("a", None).concat(query_set("b", None)).groups is None


def test_pairs_known_and_refused_are_those_of_the_labels(adapted: Adapted) -> None:
    frozen = adapted.base.open(adapted.out.tables())
    task = Task.from_tables(adapted.out.tables(), frozen, same_document=False)
    n = SIDES["train"] - 1
    assert len(task.train) == len(task.pair_query) == len(task.non_relevant.keys) == n
    assert task.labels.contains(task.pair_query, task.pair_position).all()
    assert not task.non_relevant.contains(task.pair_query, task.pair_position).any()
    assert task.siblings is not None
    assert task.siblings.contains(task.pair_query, task.pair_position).all()
    assert Task.from_tables(adapted.out.tables(), frozen, same_document=True).siblings is None


def test_what_validation_reaches_is_what_evaluate_measures_of_test(adapted: Adapted) -> None:
    frozen = adapted.base.open(adapted.out.tables())
    asked = QuerySet.from_tables(adapted.out.tables(), frozen, "test")
    rows = read(adapted.out, "evaluation_queries")
    mine = [float(str(row["value"])) for row in rows if row["measure"] == "nDCG@10" and row["system"] == "base"]
    assert np.isclose(asked.ndcg(frozen, asked.vectors), np.mean(mine))


def test_queries_without_labels_are_of_the_index_they_are_given(adapted: Adapted) -> None:
    texts = ["how badu", "how befi"]
    given = np.array([1, 0], np.int32)
    assert QuerySet.from_texts(texts, adapted.base, given).index.tolist() == [1, 0]
    asked = QuerySet.from_texts(texts, adapted.base)
    assert (asked.index.tolist(), len(asked.labels)) == ([0, 0], 0)
    np.testing.assert_array_equal(asked.vectors, adapted.base.queries(texts))


def test_a_text_with_an_uncertain_label_is_neither_a_pair_nor_a_negative(adapted: Adapted, tmp_path: Path) -> None:
    frozen = adapted.base.open(adapted.out.tables())
    tables = adapted.out.tables("adaptation_queries", "adaptation_labels")
    certain = Task.from_tables(tables, frozen, same_document=False)
    rows = tables.read("adaptation_labels").to_pylist()
    changed = [row | {"relevance": row["relevance"] or None} for row in rows]
    run = Run(str(tmp_path))
    put(run, "adaptation_queries", tables.read("adaptation_queries"))
    put(run, "adaptation_labels", pa.Table.from_pylist(changed, schema=TABLES["adaptation_labels"].schema))
    task = Task.from_tables(run.tables(), frozen, same_document=False)
    assert len(certain.non_relevant.keys)
    assert not len(task.non_relevant.keys)
    assert set(task.labels.keys) == {*certain.labels.keys, *certain.non_relevant.keys}, "never mined as negatives"
    assert np.array_equal(task.pair_position, certain.pair_position)
    assert task.validation.max_uncertain == 1
