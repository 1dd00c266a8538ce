"""A codebook's name is what was fitted; numbers are marked as others sort them."""

import numpy as np
import pytest

from darklode.pipeline.index.faiss_io import codebook_of, is_member, one_thread
from darklode.schemas.serving import INDEXES
from helpers.indexed import clustered

pytest.importorskip("faiss", reason="faiss-cpu is not installed")


@pytest.mark.parametrize("kind", ["ivfpq", "ivfpq_fastscan"])
def test_a_codebook_is_named_by_its_fit_alone(kind: str) -> None:
    made = INDEXES.load(kind)(code_size=8)
    with one_thread():
        index, other = made.train(clustered(), 1500), made.train(clustered(seed=2), 1500)
        name = codebook_of(index)
        index.add_with_ids(clustered(), np.arange(1500))
    made.set_effort(index, 4)
    assert codebook_of(index) == name != codebook_of(other)


def test_what_is_not_fitted_has_its_kind_and_width() -> None:
    flat, graph = INDEXES.load("flat")(), INDEXES.load("hnsw")()
    names = {codebook_of(kind.train(clustered()[:, :width].copy(), 9)) for kind in (flat, graph) for width in (8, 16)}
    assert len(names) == 4


def test_numbers_among_others_are_found_as_by_sorting() -> None:
    numbers, others = np.array([7, 0, 3, 99]), np.array([3, 5, 7])
    np.testing.assert_array_equal(is_member(numbers, others), np.isin(numbers, others))
    assert not is_member(numbers, np.empty(0, np.int64)).any()
