"""Every vector is looked at: lists are exact."""

import numpy as np
import pytest

from darklode.pipeline.index.faiss_io import numbers_in, one_thread
from darklode.schemas.serving import INDEXES
from helpers.indexed import clustered

pytest.importorskip("faiss", reason="faiss-cpu is not installed")


def test_lists_are_exact_after_vectors_left() -> None:
    vectors, made = clustered(300), INDEXES.load("flat")()
    with one_thread():
        index = made.train(vectors[:1], 300)
        index.add_with_ids(vectors, np.arange(300) + 1000)
        index.remove_ids(np.arange(1000, 1010))
        scores, numbers = made.search(index, vectors[:20], 5)
    np.testing.assert_array_equal(numbers_in(index), np.arange(1010, 1300))
    best = np.argsort(-(vectors[:20] @ vectors[10:].T), axis=1)[:, :5]
    np.testing.assert_array_equal(numbers, best + 1010)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert (made.search_efforts(index), made.code_bytes(index)) == ([0], 128)
