"""Reranking: candidates in the order of a pair scorer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.rerank import PairScorer, Reranked
from helpers.searching import SharedWords

TEXTS = ["red", "red green", "blue", "red green blue", "green"]


class ByRow(PairScorer):
    """Scores a chunk by its row: the last one first, even rows alike."""

    def scores(self, queries: Sequence[str], query: Ints, row: Ints) -> Floats:
        assert len(query) == len(row)
        assert not len(query) or query.max() < len(queries)
        return np.where(row % 2, row, 0).astype(np.float32)


@pytest.fixture
def words(tmp_path: Path) -> SharedWords:
    return SharedWords("words", Corpus(lambda: iter([TEXTS]), len(TEXTS), tmp_path), [])


def test_candidates_come_in_the_scorers_order_and_no_other_chunk_does(words: SharedWords) -> None:
    assert words.search(["red green"], 9).rows.tolist() == [[1, 3, 0, 4, -1]]
    hits = Reranked("best", words, 3, ByRow()).search(["red green", "blue", "nothing"], 9)
    assert hits.rows.tolist() == [[3, 1, 0], [3, 2, -1], [-1, -1, -1]]
    assert hits.scores[0].tolist() == [3, 1, 0]
    assert np.isnan(hits.scores[2]).all()


def test_a_smaller_depth_is_the_beginning_and_equal_scores_rank_by_row(words: SharedWords) -> None:
    ours = Reranked("best", words, 9, ByRow())
    full = ours.search(["red green"], 9).rows
    assert full.tolist() == [[3, 1, 0, 4, -1]]
    assert ours.search(["red green"], 2).rows.tolist() == full[:, :2].tolist()
    assert ours.search([], 2).rows.shape == (0, 2)
