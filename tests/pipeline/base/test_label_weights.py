"""Labels stand for all pairs of the sample's strata."""

import numpy as np
import pytest

from darklode.pipeline.base.label_weights import nearest_labelled, weigh_labels


def test_strata_without_labels_are_represented_by_the_nearest_of_their_verdict() -> None:
    n_labelled, is_found = np.array([0, 3, 0, 0, 2, 0]), np.array([True, True, True, False, False, False])
    assert nearest_labelled(n_labelled, is_found).tolist() == [1, 1, 1, 4, 4, 4]
    assert nearest_labelled(np.array([0, 2, 0, 0]), np.array([True, True, False, False])).tolist() == [1, 1, -1, -1]


def test_weights_add_up_to_the_pairs_of_each_verdict() -> None:
    pairs, is_found = np.array([10, 20, 30, 400, 500]), np.array([True, True, True, False, False])
    stratum = np.array([0, 0, 2, 3, 3, 3, 3])
    weight = weigh_labels(stratum, pairs, is_found)
    assert weight[stratum < 3].sum() == pytest.approx(60)
    assert weight[stratum >= 3].sum() == pytest.approx(900)
    assert weight.tolist() == pytest.approx([15, 15, 30, 225, 225, 225, 225])
