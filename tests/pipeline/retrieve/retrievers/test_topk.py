"""Exact top-k: against a full sort, for every block size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.retrieve.retrievers.topk import RunningTopK, fixed_point, search_vectors, stack_hits, top_k


def sorted_out(scores: np.ndarray, depth: int) -> np.ndarray:
    """Rows by descending score, then ascending row, NaN never; the plain way."""
    k = min(depth, scores.shape[1])
    rows = np.full((len(scores), k), -1)
    for query, row in enumerate(scores):
        order = [i for i in np.lexsort((np.arange(len(row)), -row)) if not np.isnan(row[i])][:k]
        rows[query, : len(order)] = order
    return rows


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), block=st.integers(1, 40), depth=st.integers(1, 50))
def test_blocks_in_any_size_and_order_equal_a_sort(seed: int, block: int, depth: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.integers(-3, 4, size=(3, 33)).astype(np.float32)
    scores[random.random(scores.shape) < 0.2] = np.nan
    best = RunningTopK(3, min(depth, 33))
    for first in random.permutation(np.arange(0, 33, block)):
        best.update(scores[:, first : first + block], int(first))
    hits = best.hits()
    expected = sorted_out(scores, depth)
    np.testing.assert_array_equal(hits.rows, expected)
    taken = np.take_along_axis(scores, np.maximum(expected, 0), axis=1)
    np.testing.assert_array_equal(hits.scores, np.where(expected < 0, np.nan, taken))


def test_minus_zero_ties_with_zero() -> None:
    hits = top_k(np.array([[-0.0, 0.0, -0.0]], dtype=np.float32), 3)
    assert hits.rows.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("block_rows", [1, 7, 64, 1000, None])
def test_vector_search_is_exact_for_every_block_size(block_rows: int | None) -> None:
    random = np.random.default_rng(4)
    vectors = random.standard_normal((300, 48))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = fixed_point(vectors)
    documents[250:] = documents[:50]  # exact duplicates: ties
    documents[7] = 0
    queries = fixed_point(vectors[:9])
    queries[3] = 0
    exact = (queries.astype(np.int64) @ documents.astype(np.int64).T) / 4000**2
    exact[3] = np.nan
    exact[:, 7] = np.nan
    hits = search_vectors(queries, documents, 60, block_rows)
    np.testing.assert_array_equal(hits.rows, sorted_out(exact.astype(np.float32), 60))
    assert hits.rows[3].tolist() == [-1] * 60
    assert np.isnan(hits.scores[3]).all()


def test_fixed_point_moves_a_score_by_less_than_a_thousandth() -> None:
    vectors = np.random.default_rng(5).standard_normal((200, 300))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rounded = fixed_point(vectors).astype(np.float64) / 4000
    assert np.abs(rounded @ rounded.T - vectors @ vectors.T).max() < 1e-3


def test_stacking_nothing_keeps_the_shape() -> None:
    hits = stack_hits([], 5)
    assert hits.rows.shape == hits.scores.shape == (0, 5)
