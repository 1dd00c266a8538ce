"""Cells and codes: bytes as asked, no polysemous training, and vectors that leave without a rebuild."""

import numpy as np
import pytest

from darklode.pipeline.index.faiss_io import codebook_of, from_bytes, numbers_in, one_thread, selector_of, to_bytes
from darklode.pipeline.index.kinds import IvfKind
from darklode.schemas.serving import INDEXES
from helpers.indexed import clustered

faiss = pytest.importorskip("faiss", reason="faiss-cpu is not installed")


@pytest.mark.parametrize("kind", ["ivfpq", "ivfpq_fastscan"])
def test_an_update_finds_what_a_full_fill_of_the_same_codes_finds(kind: str) -> None:
    """Had faiss taken vectors out of the fast scan's lists, later ones would have had spoilt codes."""
    vectors, made = clustered(1500), INDEXES.load(kind)(code_size=8)
    went = np.arange(100, 300)
    with one_thread():
        index = made.train(vectors, 1500)
        full = from_bytes(bytes(to_bytes(index)), "")
        index.add_with_ids(vectors[:1200], np.arange(1200))
        codebook = codebook_of(index)
        if made.SUPPORTS_REMOVAL:
            index.remove_ids(went)
        index.add_with_ids(vectors[1200:], np.arange(1200, 1500))
        kept = np.concatenate([np.arange(100), np.arange(300, 1500)])
        full.add_with_ids(vectors[kept], kept)
        assert codebook_of(index) == codebook == codebook_of(full)
        np.testing.assert_array_equal(numbers_in(index), kept if made.SUPPORTS_REMOVAL else np.arange(1500))
        for one in (index, full):
            made.set_effort(one, made.search_efforts(one)[-1])
        selectors = [None if made.SUPPORTS_REMOVAL else selector_of(kept), None]
        found = [made.search(one, vectors[:50], 20, only) for one, only in zip((index, full), selectors, strict=True)]
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert (np.sort(found[0][1]) == np.sort(found[1][1])).mean() > 0.98  # of equal scores at the end either may come


@pytest.mark.slow
def test_codes_take_the_bytes_that_were_asked_for() -> None:
    for kind, parts in (("ivfpq", 8), ("ivfpq_fastscan", 16)):
        made: IvfKind = INDEXES.load(kind)(code_size=8)
        with one_thread():
            index = made.train(clustered(10_000), 10_000)
        inner = faiss.downcast_index(faiss.extract_index_ivf(index))
        assert (inner.pq.M, made.code_bytes(index)) == (parts, 8)
        assert not getattr(inner, "do_polysemous_training", False)


def test_fewer_vectors_have_shorter_codes() -> None:
    made: IvfKind = INDEXES.load("ivfpq")(code_size=8)
    with one_thread():
        index = made.train(clustered(made.MIN_VECTORS), made.MIN_VECTORS)
    assert faiss.downcast_index(faiss.extract_index_ivf(index)).pq.nbits == 4


@pytest.mark.parametrize(("kind", "code_bytes"), [("ivfpq", 32), ("ivfpq_fastscan", 16)])
def test_short_vectors_have_a_subquantizer_per_dimension(kind: str, code_bytes: int) -> None:
    made: IvfKind = INDEXES.load(kind)(code_size=64)
    with one_thread():
        index = made.train(clustered(10_000), 10_000)
    inner = faiss.downcast_index(faiss.extract_index_ivf(index))
    assert (inner.pq.M, made.code_bytes(index)) == (32, code_bytes)


def test_the_projection_keeps_the_order_of_inner_products() -> None:
    """As wide as the vectors, it is a rotation."""
    made: IvfKind = INDEXES.load("ivfpq")(code_size=8, projection_dim=32)
    vectors = clustered(1500)
    with one_thread():
        index = made.train(vectors, 1500)
    turned = faiss.downcast_VectorTransform(index.chain.at(0)).apply(vectors)
    np.testing.assert_allclose(turned @ turned.T, vectors @ vectors.T, atol=1e-5)
