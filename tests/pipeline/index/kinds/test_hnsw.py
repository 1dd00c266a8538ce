"""A graph from which nothing leaves: what went is not found, and what is there is found as before."""

import numpy as np
import pytest

from darklode.pipeline.index.faiss_io import one_thread, selector_of
from darklode.schemas.serving import INDEXES
from helpers.indexed import clustered

pytest.importorskip("faiss", reason="faiss-cpu is not installed")


def test_what_went_is_left_out_and_lists_stay_full() -> None:
    vectors, made = clustered(1500), INDEXES.load("hnsw")()
    with one_thread():
        index = made.train(vectors, 1500)
        index.add_with_ids(vectors, np.arange(1500))
        made.set_effort(index, 512)
        scores, numbers = made.search(index, vectors[:40], 100, selector_of(np.arange(300, 1500)))
    assert (numbers >= 300).all()
    exact = np.sort(vectors[:40] @ vectors[300:].T, axis=1)[:, ::-1][:, :100]
    assert (np.abs(scores - exact) < 1e-5).mean() > 0.99
    assert made.search_efforts(index) == sorted(made.search_efforts(index))
