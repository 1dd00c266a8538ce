"""Labels and judge probabilities of (query, position) pairs."""

import numpy as np

from darklode.pipeline.train.data.labels import Labels, Probabilities


def test_labels_know_their_pairs() -> None:
    labels = Labels.from_pairs(np.array([2, 0, 2]), np.array([5, 1, 5]), 10)
    assert len(labels.keys) == 2
    asked = labels.contains(np.array([[0], [2]]), np.array([[1, 5, -1], [1, 5, 9]]))
    assert asked.tolist() == [[True, False, False], [False, True, False]]
    assert (
        not Labels.from_pairs(np.array([], np.int64), np.array([], np.int64), 10)
        .contains(np.array([0]), np.array([1]))
        .any()
    )


def test_of_several_probabilities_of_a_pair_the_largest_counts_and_none_that_is_unknown() -> None:
    query, position = np.array([1, 0, 1, 1, 0, 2]), np.array([3, 2, 3, 3, 2, 1])
    values = np.array([0.4, 0.1, 0.9, np.nan, 0.3, np.nan], np.float32)
    found = Probabilities.from_pairs(query, position, values, 5)
    np.testing.assert_allclose(found.look_up(np.array([0, 1, 2]), np.array([2, 3, 1])), [0.3, 0.9, np.nan])
