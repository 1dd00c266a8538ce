"""Residual k-means: codes add up to what is reported, and figures of levels are what they say."""

import numpy as np
import pytest

from darklode.pipeline.index import residual_kmeans
from darklode.pipeline.index.faiss_io import MIN_POINTS_PER_CENTROID
from darklode.schemas.serving import SemanticIdSettings
from helpers.indexed import clustered

pytest.importorskip("faiss", reason="faiss-cpu is not installed")

SETTINGS = SemanticIdSettings(levels=3, codebook_size=16)


def test_codes_add_up_to_vectors_within_the_reported_error() -> None:
    vectors = clustered()
    books = residual_kmeans.fit_codebooks(vectors, SETTINGS, 3)
    codes, errors = residual_kmeans.encode_vectors(vectors, books)
    for level in range(3):
        summed = sum(books[one][codes[:, one]] for one in range(level + 1))
        np.testing.assert_allclose(((vectors - summed) ** 2).sum(), errors[level], rtol=1e-4)
    assert errors[0] > errors[1] > errors[2]


def test_the_same_sample_and_seed_give_the_same_centres() -> None:
    vectors = clustered()
    names = [residual_kmeans.codebook_id(residual_kmeans.fit_codebooks(vectors, SETTINGS, seed)) for seed in (3, 3, 4)]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("texts", "codes"), [(MIN_POINTS_PER_CENTROID * 4 + 1, 4), (MIN_POINTS_PER_CENTROID - 1, 1), (1, 1)]
)
def test_a_level_has_fewer_codes_where_texts_are_few(texts: int, codes: int) -> None:
    books = residual_kmeans.fit_codebooks(clustered(texts), SETTINGS, 0)
    assert [len(centres) for centres in books] == [codes] * 3


def test_centres_come_back_from_their_rows() -> None:
    books = residual_kmeans.fit_codebooks(clustered(300), SETTINGS, 0)
    rows = residual_kmeans.codebook_rows(1, books)
    again = residual_kmeans.read_codebooks(rows, 1)
    assert [np.array_equal(one, other) for one, other in zip(books, again, strict=True)] == [True] * 3
    assert residual_kmeans.read_codebooks(rows, 0) == []


def test_figures_of_levels() -> None:
    codes = np.array([[0, 0], [0, 1], [0, 1], [1, 0]], np.int32)
    first, both = residual_kmeans.groups(codes)
    assert first[0] == first[1] == first[2] != first[3]
    assert both[1] == both[2]
    assert len(set(both)) == 3
    group, unique = residual_kmeans.last_groups(codes)
    assert group.tolist() == both.tolist()
    assert unique == [0.25, 0.5]
    assert residual_kmeans.perplexity(np.array([0, 1, 2, 3])) == pytest.approx(4)
    assert residual_kmeans.perplexity(np.zeros(4, np.int32)) == pytest.approx(1)


def test_agreement_is_of_pairs_whatever_groups_are_called() -> None:
    one, renamed = np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])
    assert residual_kmeans.pair_agreement(one, renamed) == 1
    assert residual_kmeans.pair_agreement(one, np.array([0, 0, 0, 1])) == 1 / 4
    assert residual_kmeans.pair_agreement(np.arange(4), np.arange(4)) is None


def test_codes_of_too_many_bits_for_one_number_are_grouped_all_the_same() -> None:
    narrow = np.random.default_rng(0).integers(0, 4, (200, 6)).astype(np.int32)
    wide = narrow * 60_000
    for one, other in zip(residual_kmeans.groups(narrow), residual_kmeans.groups(wide), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_code_is_that_of_the_nearest_centre_whatever_the_centres_lengths() -> None:
    draws = np.random.default_rng(0)
    vectors = draws.normal(0, 1, (300, 4)).astype(np.float32)
    centres = (draws.normal(0, 1, (20, 4)) * draws.uniform(0.1, 3, (20, 1))).astype(np.float32)
    codes, _ = residual_kmeans.encode_vectors(vectors, [centres])
    distances = np.linalg.norm(vectors[:, None] - centres[None], axis=2)
    np.testing.assert_array_equal(codes[:, 0], distances.argmin(axis=1))
