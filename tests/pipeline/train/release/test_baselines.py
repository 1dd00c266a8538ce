"""Controls: what they are taught, and lists that nobody trains."""

from dataclasses import replace

import numpy as np
import pytest

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.labels import Labels
from darklode.pipeline.train.data.system_names import LABEL_FREE, TERMS
from darklode.pipeline.train.release.baselines import (
    baselines,
    derange,
    reference_systems,
    shuffle_labels,
)
from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings
from helpers.adapted import SIDES

from ..conftest import QUICK, Adapted


@pytest.fixture(scope="module")
def task(adapted: Adapted) -> Task:
    tables = adapted.out.tables()
    return Task.from_tables(tables, adapted.base.open(tables), same_document=False)


def test_the_controls_are_of_the_first_trained_method(adapted: Adapted, task: Task) -> None:
    words = Bm25Rankings(adapted.base, task.frozen)
    found = baselines(QUICK, ["closed_form", "ffn", "linear"], words, 16)
    assert [one.name for one in found] == [
        "closed_form",
        "ffn",
        "linear",
        "ffn, negatives never refreshed",
        "ffn, labels: BM25's first",
        "ffn, labels: sentences of the texts",
        "ffn, labels: shuffled",
    ]
    assert [one.is_random for one in found] == [False, True, True, True, True, True, True]
    assert {one.settings.method for one in found[3:]} == {"ffn"}
    assert found[3].settings.refresh_steps == QUICK.max_steps
    assert [one.is_random for one in baselines(QUICK, ["closed_form", "whitened"], words, 16)] == [False, False]


def test_shuffled_labels_are_the_same_texts_at_other_queries_and_the_true_ones_are_forgotten(task: Task) -> None:
    found = shuffle_labels(task, 3)
    assert sorted(found.pair_position) == sorted(task.pair_position)
    assert (found.pair_query == task.pair_query).all()
    assert not task.labels.contains(found.pair_query, found.pair_position).any()
    assert (found.pair_position == shuffle_labels(task, 3).pair_position).all()
    assert (found.pair_position != shuffle_labels(task, 4).pair_position).any()
    assert found.labels.contains(found.pair_query, found.pair_position).all()
    assert not found.labels.contains(task.pair_query, task.pair_position).all()
    assert (len(found.non_relevant.keys), found.siblings, found.probabilities) == (0, None, None), (
        "a judge's word is a label, too"
    )


def test_no_shuffled_label_is_a_true_one_however_few_there_are() -> None:
    for n in (2, 3, 4, 5, 8, 40):
        pairs = np.arange(n)
        for seed in range(40):
            known = Labels.from_pairs(pairs, pairs, n)
            found = derange(pairs, pairs, known, np.random.default_rng(seed))
            assert sorted(found) == pairs.tolist()
            assert not known.contains(pairs, found).any()
    query, position = np.array([0, 0, 1, 1, 2, 3, 4]), np.array([0, 1, 1, 2, 3, 4, 5])
    known = Labels.from_pairs(query, position, 6)
    found = [derange(query, position, known, np.random.default_rng(seed)) for seed in range(40)]
    assert not any(known.contains(query, one).any() for one in found)
    assert len({tuple(one) for one in found}) > 20, "the order is drawn"


def test_a_label_without_another_place_is_left_out_and_one_alone_is_refused(task: Task) -> None:
    query = task.pair_query[:3]
    alike = task.from_training_pairs(query, np.array([1, 1, 2]))
    alike = replace(alike, labels=Labels.from_pairs(np.r_[query, query[:1]], np.array([1, 1, 2, 2]), len(task.frozen)))
    for seed in range(20):
        found = shuffle_labels(alike, seed)
        assert not alike.labels.contains(found.pair_query, found.pair_position).any()
        assert len(found.pair_query) == 2
    with pytest.raises(ArtifactError, match="labels cannot be shuffled"):
        shuffle_labels(task.from_training_pairs(query[:1], np.array([1])), 0)


def test_lists_that_nobody_trains(adapted: Adapted, task: Task) -> None:
    asked = QuerySet.from_tables(adapted.out.tables(), task.frozen, "test")
    found = reference_systems(task, Bm25Rankings(adapted.base, task.frozen), task.validation, asked)
    lists = {name: rows.to_pandas().groupby("query_id")["text_id"].apply(list) for name, rows in found.items()}
    assert found.keys() == {*LABEL_FREE, "judge: labelled texts by its probability"} - {TERMS}
    assert {len(each) for name, each in lists.items()} == {SIDES["test"]}
    assert lists["judge: labelled texts by its probability"]["test-003"] == ["test-003#0", "test-003#1"]
