"""From lists and replies to a positive and a negative, on documents of several chunks."""

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.doubtful_labels import TIED_REASON
from darklode.pipeline.mine.relevance import ranking
from darklode.pipeline.mine.relevance.ranking import (
    Candidates,
    DocumentIndex,
    RankedDocuments,
    negatives,
    positives,
    rank_candidates,
    scores,
    top_candidates,
)
from darklode.pipeline.retrieve.pool import RRF_K
from darklode.pipeline.retrieve.retrievers.port import Hits
from darklode.schemas.mining import RelevanceSettings
from helpers.scripted_stream import replies

DOCUMENTS = DocumentIndex(document_of_chunk=np.array([1, 0, 1, 2, 0]), chunk_id_rank=np.array([0, 1, 2, 3, 4]), n=3)
"""Chunks 0 and 2 are of document 1, 1 and 4 of document 0, 3 of document 2."""


class Fixed:
    """Finds the same rows for each query, and remembers how deep it was asked."""

    name, recall = "fixed", None

    def __init__(self, *rows: list[int]) -> None:
        self._rows = rows
        self.asked: list[tuple[int, int]] = []

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        self.asked.append((len(queries), depth))
        width = max(map(len, self._rows))
        found = np.full((len(queries), min(depth, width)), -1)
        for number, query in enumerate(queries):
            rows = self._rows[int(query)][:depth]
            found[number, : len(rows)] = rows
        return Hits(found, np.zeros(found.shape, np.float32))


def candidates(doc: list[int], fused: list[float] | None = None, query: list[int] | None = None) -> Candidates:
    n = len(doc)
    return Candidates(np.array(query or [0] * n), np.arange(n), np.array(doc), np.array(fused or [0.0] * n))


def test_first_chunks_of_documents() -> None:
    place, row = DOCUMENTS.first_chunks(np.array([2, 0, 1, 2]), max_chunks=1)
    assert (place.tolist(), row.tolist()) == ([0, 1, 2, 3], [3, 1, 0, 3])
    place, row = DOCUMENTS.first_chunks(np.array([0, -1, 1]), max_chunks=9)
    assert (place.tolist(), row.tolist()) == ([0, 0, 2, 2], [1, 4, 0, 2])


def test_a_document_is_nominated_by_its_best_chunk_and_its_rank_counts_documents() -> None:
    found = top_candidates([Fixed([0, 2, 1, 3])], ["0"], DOCUMENTS, top=2)
    assert (found.row.tolist(), found.doc.tolist()) == ([0, 1], [1, 0])
    np.testing.assert_allclose(found.fused, [1 / (RRF_K + 1), 1 / (RRF_K + 2)], atol=1e-12)


def test_retrievers_are_fused_by_document_and_each_chunk_is_there_once() -> None:
    found = top_candidates([Fixed([0, 3]), Fixed([2, 1]), Fixed([0, 1])], ["0"], DOCUMENTS, top=2)
    assert found.row.tolist() == [0, 1, 2, 3]
    of = dict(zip(found.doc.tolist(), found.fused.tolist(), strict=True))
    assert of[1] == pytest.approx(3 / (RRF_K + 1))
    assert of[0] == pytest.approx(2 / (RRF_K + 2))
    assert of[2] == pytest.approx(1 / (RRF_K + 2))


def test_lists_grow_for_those_queries_alone_that_have_too_few_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "CHUNKS_PER_DOCUMENT", 1)
    retriever = Fixed([0, 1, 2, 3, 4], [0, 2, 1, 4, 3], [-1])
    found = top_candidates([retriever], ["0", "1", "2"], DOCUMENTS, top=2)
    assert retriever.asked == [(3, 2), (1, 5)]
    assert [(q, d) for q, d in zip(found.query.tolist(), found.doc.tolist(), strict=True)] == [
        (0, 1),
        (0, 0),
        (1, 1),
        (1, 0),
    ]


def test_long_lists_are_asked_for_in_few_queries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "MAX_SEARCH_HITS", 10)
    retriever = Fixed([0, 1, 3], [3, 1, 0], [1, 0, 3])
    one = top_candidates([retriever], ["0", "1", "2"], DOCUMENTS, top=3)
    assert [n for n, _ in retriever.asked] == [2, 1]
    monkeypatch.undo()
    other = top_candidates([Fixed([0, 1, 3], [3, 1, 0], [1, 0, 3])], ["0", "1", "2"], DOCUMENTS, top=3)
    assert (one.query.tolist(), one.row.tolist()) == (other.query.tolist(), other.row.tolist())


def test_a_part_of_the_block() -> None:
    part = candidates([0, 1, 2, 0], query=[0, 1, 1, 3]).slice_queries(1, 3)
    assert (part.query.tolist(), part.doc.tolist()) == ([1, 1], [1, 2])


def test_a_reply_without_a_probability_counts_by_its_label() -> None:
    said = replies({"probability": 0.25, "relevant": True}, {"relevant": True}, {"relevant": False}, {"error": "?"})
    np.testing.assert_array_equal(scores(said), [0.25, 1.0, 0.0, np.nan])


def test_a_label_that_its_judge_doubts_counts_one_half() -> None:
    doubts: list[dict[str, Any]] = [{"contradicted": True}, {"no_probability": TIED_REASON}, {"contradicted": False}]
    said = replies(*({"relevant": True} | one for one in doubts), {"relevant": False, "contradicted": True})
    np.testing.assert_array_equal(scores(said), [0.5, 0.5, 1.0, 0.5])


def test_documents_are_ordered_by_best_chunk_then_fusion_then_id() -> None:
    found = rank_candidates(
        candidates([3, 3, 2, 1, 0], fused=[0.1, 0.1, 0.5, 0.5, 0.9]), np.array([0.2, 0.8, 0.8, 0.8, np.nan])
    )
    assert (found.doc.tolist(), found.score.tolist(), found.rank.tolist()) == ([1, 2, 3], [0.8] * 3, [1, 2, 3])


def test_ranks_begin_anew_with_each_query() -> None:
    found = rank_candidates(candidates([0, 1, 0], query=[0, 0, 2]), np.array([0.1, 0.2, 0.3]))
    assert (found.query.tolist(), found.doc.tolist(), found.rank.tolist()) == ([0, 0, 2], [1, 0, 0], [1, 2, 1])


def ranking_of(n: int, query: int = 0) -> RankedDocuments:
    return RankedDocuments(np.full(n, query), np.arange(n), np.linspace(0.9, 0.1, n), np.arange(1, n + 1))


def test_what_scores_nothing_is_no_positive() -> None:
    found = RankedDocuments(np.array([0, 0, 1]), np.arange(3), np.array([0.5, 0.4, 0.0]), np.array([1, 2, 1]))
    assert positives(found).tolist() == [0]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def drawn(
    connection: duckdb.DuckDBPyConnection,
    found: RankedDocuments,
    seed: int,
    settings: RelevanceSettings,
    tenant: str = "t",
) -> dict[int, int]:
    names = tenant, pa.array(["q0", "q1"]), pa.array([f"d{number:02}" for number in range(20)])
    query, place = negatives(connection, found, names, settings, seed)
    return dict(zip(query.tolist(), found.rank[place].tolist(), strict=True))


def test_a_negative_lies_after_k_and_up_to_t_and_hangs_on_seed_and_tenant(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    settings = RelevanceSettings(top_k=3, top_t=7)
    ranks = {drawn(connection, ranking_of(20), seed, settings)[0] for seed in range(60)}
    assert ranks == {4, 5, 6, 7}
    by_tenant = [[drawn(connection, ranking_of(20), seed, settings, name)[0] for seed in range(20)] for name in "tu"]
    assert by_tenant[0] != by_tenant[1]
    assert drawn(connection, ranking_of(20), 5, settings) == drawn(connection, ranking_of(20), 5, settings)


def test_a_query_with_no_more_than_k_documents_has_no_negative(connection: duckdb.DuckDBPyConnection) -> None:
    assert drawn(connection, ranking_of(3), 1, RelevanceSettings(top_k=3, top_t=7)) == {}
    assert drawn(connection, ranking_of(4, query=1), 1, RelevanceSettings(top_k=3, top_t=7)) == {1: 4}
