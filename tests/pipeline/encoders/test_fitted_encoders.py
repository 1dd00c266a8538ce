"""The encoders fitted on a corpus: the port's promises, and what each method is for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pipeline.encoders.cca import fit_cca, split_counts
from pipeline.encoders.character_lsa import character_lsa, fit_character_map, ngrams
from pipeline.encoders.linear import TermVectors, unit_rows
from pipeline.encoders.lsa import entropy_weights, fit_lsa
from pipeline.encoders.ppmi import cooccurrence, fit_ppmi_idf, fit_ppmi_sif, fit_word_vectors, positive_pmi
from pipeline.terms import TermSpace

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


def test_positive_pmi_equals_its_definition() -> None:
    counts = TermSpace([["red blue", "red blue green", "green blue", "red"]]).counts
    present = (counts > 0).toarray().astype(float)
    meets = present.T @ (present / present.sum(axis=1, keepdims=True))
    np.fill_diagonal(meets, 0)
    contexts = meets.sum(axis=0) ** 0.75 / (meets.sum(axis=0) ** 0.75).sum()
    with np.errstate(divide="ignore"):
        expected = np.maximum(np.log(meets / (meets.sum(axis=1, keepdims=True) * contexts)), 0)
    np.testing.assert_allclose(positive_pmi(cooccurrence(counts)).toarray(), expected, rtol=1e-5)


def test_a_split_loses_and_invents_no_word(terms: TermSpace) -> None:
    first, second = split_counts(terms.counts, 0.35, np.random.default_rng(0))
    assert ((first + second) != terms.counts).nnz == 0
    assert 0.2 < first.sum() / terms.counts.sum() < 0.5
    assert min(first.data) >= 1


def test_unit_rows_keep_zero() -> None:
    np.testing.assert_allclose(unit_rows(np.array([[3, 4], [0, 0], [1e-9, 0]])), [[0.6, 0.8], [0, 0], [0, 0]])
