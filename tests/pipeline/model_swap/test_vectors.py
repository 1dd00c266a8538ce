"""Pairs of vectors, and exact search."""

import numpy as np

from darklode.pipeline.model_swap.vectors import PairedVectors, search
from helpers.swapped import rotation, swap_vectors


def test_texts_that_one_encoder_cannot_represent_are_left_out() -> None:
    new, old = np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)
    new[0], old[2] = 0, 0
    encoded = PairedVectors(new, old).encoded_by_both()
    assert encoded.new.tolist() == [[0, 1, 0]] == encoded.old.tolist()


def test_search_orders_by_inner_product_and_a_zero_query_finds_nothing() -> None:
    documents = np.array([[1, 0], [0, 1], [0.8, 0.6]], np.float32)
    queries = np.array([[1, 0], [0, 0]], np.float32)
    assert search(queries, documents, 5).tolist() == [[0, 2, 1], [-1, -1, -1]]


def test_training_documents_are_the_first_fitted_ones() -> None:
    vectors = swap_vectors(rotation(4), documents=10)
    assert np.array_equal(vectors.training_documents(2).old, vectors.documents.old[:2])
