"""Reranking: candidates in the order of a pair scorer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.member_lists import ListedRetriever
from darklode.pipeline.retrieve.retrievers.port import Hits, Recall, Retriever
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


def reranked(words: Retriever, depth: int) -> Reranked:
    return Reranked("best", words, depth, ByRow(), len(TEXTS))


def test_candidates_come_in_the_scorers_order_and_no_other_chunk_does(words: SharedWords) -> None:
    assert words.search(["red green"], 9).rows.tolist() == [[1, 3, 0, 4, -1]]
    hits = reranked(words, 3).search(["red green", "blue", "nothing"], 9)
    assert hits.rows.tolist() == [[3, 1, 0, -1, -1], [3, 2, -1, -1, -1], [-1] * 5], "as wide as any retriever's"
    assert hits.scores[0, :3].tolist() == [3, 1, 0]
    assert np.isnan(hits.scores[2]).all()


def test_a_smaller_depth_is_the_beginning_and_equal_scores_rank_by_row(words: SharedWords) -> None:
    ours = reranked(words, 9)
    full = ours.search(["red green"], 9).rows
    assert full.tolist() == [[3, 1, 0, 4, -1]]
    assert ours.search(["red green"], 2).rows.tolist() == full[:, :2].tolist()
    assert ours.search([], 2).rows.shape == (0, 2)


def test_a_kept_list_serves_searches_deeper_than_the_candidates(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []
    words = SharedWords("words", Corpus(lambda: iter([TEXTS]), len(TEXTS), tmp_path), calls)
    kept = ListedRetriever(lambda: reranked(words, 3), tmp_path, "0" * 8, len(TEXTS))
    first = kept.search(["red green"], 5)
    assert kept.search(["red green"], 99).rows.tolist() == first.rows.tolist()
    assert len(calls) == 1


def test_its_recall_is_that_of_the_retriever_of_the_candidates() -> None:
    class Inexact(Retriever):
        name = "inexact"
        recall = Recall(1, 4, 3, 4)

        def search(self, queries: Sequence[str], depth: int) -> Hits:
            raise NotImplementedError

    ours = reranked(Inexact(), 3)
    assert ours.recall == Inexact.recall
