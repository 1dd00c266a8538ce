"""Partial re-embedding: two indexes, one list."""

import numpy as np
import pytest

from darklode.pipeline.model_swap.maps import random_orthogonal
from darklode.pipeline.model_swap.partial import SHARES, ScoreLine, fit_line, merged_search, partial_recalls
from darklode.pipeline.model_swap.vectors import PairedVectors, search
from darklode.pipeline.train.fit.heads import apply_layers
from helpers.swapped import rotation, swap_vectors


def test_the_line_predicts_new_scores() -> None:
    vectors = swap_vectors(rotation(8))
    documents = PairedVectors(vectors.documents.new, vectors.documents.old / 2)
    line = fit_line(vectors.train.old, vectors.train.new, documents)
    assert (line.slope, line.intercept) == (pytest.approx(2, abs=1e-3), pytest.approx(0, abs=1e-3))
    assert line.predict(np.array([0.5], np.float32)).tolist() == [pytest.approx(1, abs=1e-3)]


def test_a_falling_line_does_not_turn_the_old_index_around() -> None:
    vectors = swap_vectors(rotation(8))
    scale = np.array([[1], [0.1]], np.float32)
    same = PairedVectors(vectors.documents.old, vectors.documents.old)
    queries = vectors.train.old[:2]
    assert fit_line(queries * scale, queries * scale[::-1], same).slope == 1.0
    nothing = np.zeros((2, 8), np.float32)
    assert fit_line(nothing, nothing, vectors.documents) == ScoreLine(0.0, 1.0)


def test_all_texts_new_is_re_embedding_and_none_is_the_mapped_search() -> None:
    vectors, line = swap_vectors(rotation(8)), ScoreLine(0.0, 1.0)
    queries, documents = vectors.validation, vectors.documents
    mapped = apply_layers(random_orthogonal(8, 8, 1), queries.new)
    everything = merged_search(mapped, queries.new, documents, np.ones(300, np.bool_), line, 10)
    assert np.array_equal(everything, search(queries.new, documents.new, 10))
    nothing = merged_search(mapped, queries.new, documents, np.zeros(300, np.bool_), line, 10)
    assert np.array_equal(nothing, search(mapped, documents.old, 10))


def test_recall_grows_with_the_share_and_hot_texts_help_more() -> None:
    vectors = swap_vectors(rotation(8))
    queries, documents = vectors.validation, vectors.documents
    results = search(queries.new, documents.new, 10)
    heat = np.bincount(results.ravel(), minlength=300).astype(np.float64)
    mapped = apply_layers(random_orthogonal(8, 8, 1), queries.new)
    line = ScoreLine(-1.0, 1.0)
    hottest = partial_recalls(mapped, queries.new, documents, heat, line)
    coldest = partial_recalls(mapped, queries.new, documents, -heat, line)
    assert [row.share for row in hottest] == list(SHARES)
    assert [row.texts for row in hottest] == [0, 3, 6, 15, 30, 60, 150]
    assert hottest[-1].recall_10 > hottest[0].recall_10
    assert hottest[-2].recall_10 > coldest[-2].recall_10
