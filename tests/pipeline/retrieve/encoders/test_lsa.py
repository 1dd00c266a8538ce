"""The encoders fitted on a corpus: the port's promises, what each method is for; the SVD against NumPy's full one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.retrieve.encoders.cca import fit_cca
from darklode.pipeline.retrieve.encoders.lsa import (
    TermVectors,
    character_lsa,
    entropy_weights,
    fit_character_map,
    fit_lsa,
    ngrams,
    truncated_svd,
    unit_rows,
)
from darklode.pipeline.retrieve.encoders.ppmi import fit_ppmi_idf, fit_ppmi_sif, fit_word_vectors

CHUNKS = [
    f"{text} {i}"
    for i in range(8)
    for text in (
        "car engine motor oil",
        "automobile engine motor wheel",
        "banana apple fruit salad",
        "orange apple fruit juice",
    )
]
FITS: dict[str, Callable[[TermSpace], TermVectors]] = {
    "lsa": lambda terms: fit_lsa(terms, 2),
    "ppmi_sif": lambda terms: fit_ppmi_sif(terms, fit_word_vectors(terms, 6)),
    "ppmi_idf": lambda terms: fit_ppmi_idf(terms, fit_word_vectors(terms, 6)),
    "character": lambda terms: character_lsa(terms, fit_character_map(terms, 6), 4),
    "cca": lambda terms: fit_cca(terms, 2),
}


@pytest.fixture(scope="module")
def terms() -> TermSpace:
    return TermSpace([CHUNKS])


@pytest.mark.parametrize("kind", FITS)
def test_the_port_holds(kind: str, terms: TermSpace) -> None:
    encoder = FITS[kind](terms)
    texts = ["car engine", "", "unheardof", "fruit"]
    for vectors in (encoder.encode_queries(texts), encoder.encode_documents(texts)):
        assert vectors.shape == (4, encoder.dimensions)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 0, 1], atol=1e-5)
    assert encoder.encode_queries([]).shape == (0, encoder.dimensions)
    np.testing.assert_array_equal(encoder.encode_documents(CHUNKS), encoder.encode_counts(terms.counts))


@pytest.mark.parametrize("kind", FITS)
def test_the_id_names_the_method_and_the_corpus(kind: str, terms: TermSpace) -> None:
    one, two, other = (
        FITS[kind](terms),
        FITS[kind](TermSpace([CHUNKS])),
        FITS[kind](TermSpace([CHUNKS[::-1]])),
    )
    assert one.encoder_id == two.encoder_id != other.encoder_id
    np.testing.assert_array_equal(one.encode_queries(["car motor"]), two.encode_queries(["car motor"]))
    assert len({fit(terms).encoder_id for fit in FITS.values()}) == len(FITS)


@pytest.mark.parametrize("kind", ["lsa", "ppmi_sif", "ppmi_idf", "cca"])
def test_words_that_share_company_are_near(kind: str, terms: TermSpace) -> None:
    encoder = FITS[kind](terms)
    query = encoder.encode_queries(["car"])[0]
    kin, stranger = encoder.encode_documents(["automobile wheel", "orange juice"]) @ query
    assert kin > stranger + 0.2


def test_letters_tie_words_of_one_family() -> None:
    terms = TermSpace([["authentication failed", "authenticator token", "banana bread", "bread pudding"]])
    encoder = character_lsa(terms, fit_character_map(terms, 4), 4)
    query = encoder.encode_queries(["authentication"])[0]
    kin, stranger = encoder.encode_documents(["authenticator", "pudding"]) @ query
    assert kin > stranger + 0.2
    assert ngrams("ab") == ["^ab", "ab$", "^ab$"]


def test_entropy_weighs_a_term_by_its_spread() -> None:
    counts = TermSpace([["wing heat", "wing", "wing", "wing"]]).counts
    np.testing.assert_allclose(entropy_weights(counts), [0, 1], atol=1e-6)


def test_unit_rows_keep_zero() -> None:
    np.testing.assert_allclose(unit_rows(np.array([[3, 4], [0, 0], [1e-9, 0]])), [[0.6, 0.8], [0, 0], [0, 0]])


def low_rank(rank: int, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    left = np.linalg.qr(random.standard_normal((60, rank)))[0]
    right = np.linalg.qr(random.standard_normal((40, rank)))[0]
    return np.asarray(left * np.arange(rank, 0, -1) @ right.T, dtype=np.float32)


def test_leading_triplets_equal_the_full_decomposition() -> None:
    matrix = low_rank(8)
    left, values, right = truncated_svd(sparse.csr_matrix(matrix), 5)
    np.testing.assert_allclose(values, [8, 7, 6, 5, 4], rtol=1e-4)
    expected = np.linalg.svd(matrix)[2][:5]
    np.testing.assert_allclose(np.abs(np.sum(right * expected, axis=1)), 1, atol=1e-4)
    np.testing.assert_allclose(left.T @ left, np.eye(5), atol=1e-4)
    np.testing.assert_allclose(matrix @ right.T, left * values, atol=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_signs_are_settled_and_runs_agree(seed: int) -> None:
    matrix = sparse.csr_matrix(low_rank(6, seed))
    left, _, right = truncated_svd(matrix, 6)
    assert (right[np.arange(6), np.abs(right).argmax(axis=1)] > 0).all()
    again = truncated_svd(matrix, 6)
    np.testing.assert_array_equal(left, again[0])
    np.testing.assert_array_equal(right, again[2])


def test_no_more_triplets_than_the_rank() -> None:
    left, values, right = truncated_svd(sparse.csr_matrix(low_rank(3)), 20)
    assert (left.shape, values.shape, right.shape) == ((60, 3), (3,), (3, 40))


def test_an_empty_matrix_gives_one_triplet_of_zeros() -> None:
    for shape in ((4, 3), (4, 0), (0, 3)):
        left, values, right = truncated_svd(sparse.csr_matrix(shape, dtype=np.float32), 2)
        assert (left.shape, values.tolist(), right.shape) == ((shape[0], 1), [0.0], (1, shape[1]))
