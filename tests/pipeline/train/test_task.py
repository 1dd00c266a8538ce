"""What is trained on, as arrays."""

import numpy as np

from darklode.pipeline.train.task import Labels, Probabilities, Questions, Task
from helpers.adapted import SIDES
from helpers.runs import read

from .conftest import Adapted


def test_labels_know_their_pairs() -> None:
    labels = Labels.of(np.array([2, 0, 2]), np.array([5, 1, 5]), 10)
    assert len(labels.keys) == 2
    asked = labels.have(np.array([[0], [2]]), np.array([[1, 5, -1], [1, 5, 9]]))
    assert asked.tolist() == [[True, False, False], [False, True, False]]
    assert not Labels.of(np.array([], np.int64), np.array([], np.int64), 10).have(np.array([0]), np.array([1])).any()


def test_of_several_probabilities_of_a_pair_the_largest_counts_and_none_that_is_unknown() -> None:
    query, position = np.array([1, 0, 1, 1, 0, 2]), np.array([3, 2, 3, 3, 2, 1])
    values = np.array([0.4, 0.1, 0.9, np.nan, 0.3, np.nan], np.float32)
    found = Probabilities.of(query, position, values, 5)
    np.testing.assert_allclose(found.look_up(np.array([0, 1, 2]), np.array([2, 3, 1])), [0.3, 0.9, np.nan])


def test_pairs_known_and_refused_are_those_of_the_labels(adapted: Adapted) -> None:
    frozen = adapted.base.open(adapted.out.tables())
    task = Task.of(adapted.out.tables(), frozen, same_document=False)
    n = SIDES["train"] - 1
    assert len(task.train) == len(task.pair_query) == len(task.refused.keys) == n
    assert task.known.have(task.pair_query, task.pair_position).all()
    assert not task.refused.have(task.pair_query, task.pair_position).any()
    assert task.siblings is not None
    assert task.siblings.have(task.pair_query, task.pair_position).all()
    assert Task.of(adapted.out.tables(), frozen, same_document=True).siblings is None


def test_what_validation_reaches_is_what_evaluate_measures_of_test(adapted: Adapted) -> None:
    frozen = adapted.base.open(adapted.out.tables())
    asked = Questions.of(adapted.out.tables(), frozen, "test")
    rows = read(adapted.out, "evaluation_queries")
    mine = [float(str(row["value"])) for row in rows if row["measure"] == "nDCG@10" and row["system"] == "base"]
    assert np.isclose(asked.reached(frozen, asked.vectors), np.mean(mine))
