"""Rocchio feedback against its formula, and the memory of its seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.retrievers.feedback import Feedback, Remembered
from pipeline.retrievers.port import Hits
from pipeline.retrievers.topk import fixed_point


class Axes:
    """An encoder of three words, one axis each."""

    encoder_id = "axes"
    dimensions = 3

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[text == word for word in "abc"] for text in texts], dtype=np.float32)

    encode_documents = encode_queries


class FixedSeeds:
    """Finds the same seeds for every query and counts how often it is asked."""

    name = "fixed"

    def __init__(self, rows: list[int], scores: list[float]) -> None:
        self.asked = 0
        self._hits = (np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float32))

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        self.asked += 1
        return Hits(*(np.tile(part, (len(queries), 1)) for part in self._hits))


VECTORS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.8, 0]], dtype=np.float32)


def test_the_query_moves_by_the_formula() -> None:
    seeds = FixedSeeds([1, 2, -1], [3.0, 1.0, np.nan])
    hits = Feedback("x", Axes(), fixed_point(VECTORS), seeds).search(["a"], 4)
    mean = np.array([0, 3, 1]) / np.sqrt(10)
    query = np.array([1, 0, 0]) + 2 * mean
    expected = VECTORS @ (query / np.linalg.norm(query))
    assert hits.rows[0].tolist() == np.argsort(-expected).tolist() == [3, 1, 0, 2]
    np.testing.assert_allclose(hits.scores[0], np.sort(expected)[::-1], atol=5e-4)


def test_without_seeds_the_query_stays_and_without_either_nothing_is_found() -> None:
    retriever = Feedback("x", Axes(), fixed_point(VECTORS), FixedSeeds([-1, -1], [np.nan, np.nan]))
    hits = retriever.search(["b", "unknown"], 2)
    assert hits.rows.tolist() == [[1, 3], [-1, -1]]


def test_the_last_chunk_is_no_stand_in_for_a_missing_seed() -> None:
    vectors = fixed_point(VECTORS[:3])
    found = [
        Feedback("x", Axes(), vectors, FixedSeeds(rows, scores)).search(["a"], 3).scores.tolist()
        for rows, scores in (([1], [2.0]), ([1, -1], [2.0, np.nan]))
    ]
    assert found[0] == found[1]


def test_a_remembered_answer_is_not_searched_again() -> None:
    source = FixedSeeds([0], [1.0])
    seeds = Remembered(source)
    for queries, depth, asked in ((["a"], 1, 1), (["a"], 1, 1), (["b"], 1, 2), (["a"], 2, 3)):
        seeds.search(queries, depth)
        assert source.asked == asked
