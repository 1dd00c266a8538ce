"""Fuse the retrievers' candidates, rank documents by the judge's scores, and choose each query's positive and
negatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.doubtful_labels import is_doubtful
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.schemas.mining import RelevanceSettings

FIRST_DEPTH = 4
"""Chunks retrieved per requested document; where their documents are too few, `FURTHER` times as many."""
FURTHER = 4
CELLS = 1 << 23
"""Maximum hits (queries × depth) of one search: deeper searches take fewer queries at once."""
FUSION = 60
"""Constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009)."""

_Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DocumentIndex:
    """Mapping between a tenant's documents and chunks.

    Attributes:
        document_of_chunk: document number of each chunk row, shape (n_chunks,).
        places: rank of each chunk row by chunk_id, shape (n_chunks,).
        n: number of documents.
    """

    document_of_chunk: _Ints
    places: _Ints
    n: int

    def first_chunks(self, docs: _Ints, max_chunks: int) -> tuple[_Ints, _Ints]:
        """Index into `docs` and chunk row of the first chunks of documents; document -1 has none."""
        starts = np.searchsorted(self._chunks_by_document, docs)
        counts = np.minimum(np.searchsorted(self._chunks_by_document, docs, side="right") - starts, max_chunks)
        begins = np.cumsum(counts) - counts
        within = np.arange(counts.sum()) - np.repeat(begins, counts)
        return np.repeat(np.arange(len(docs)), counts), self._order[np.repeat(starts, counts) + within]

    @cached_property
    def _order(self) -> _Ints:
        return np.argsort(self.document_of_chunk, kind="stable")

    @cached_property
    def _chunks_by_document(self) -> _Ints:
        return self.document_of_chunk[self._order]


@dataclass(frozen=True)
class Candidates:
    """Pairs to judge, by query, then chunk_id; all of shape (n_pairs,).

    Attributes:
        query: number of the query in the block.
        row: row of the chunk.
        doc: number of its document.
        fused: the document's reciprocal rank fusion score, rounded so that float noise does not decide ties.
    """

    query: _Ints
    row: _Ints
    doc: _Ints
    fused: NDArray[np.float64]

    def slice_queries(self, first: int, end: int) -> Candidates:
        """The candidates of queries `first` to `end` - 1."""
        start, stop = np.searchsorted(self.query, [first, end])
        own = slice(int(start), int(stop))
        return Candidates(self.query[own], self.row[own], self.doc[own], self.fused[own])


def top_candidates(
    retrievers: Sequence[Retriever], texts: Sequence[str], documents: DocumentIndex, top: int
) -> Candidates:
    """Each retriever's `top` documents per query, represented by the chunks that the retrievers rank highest.

    Args:
        retrievers: at least one, over the tenant's chunks.
        texts: of the queries of a block.
        documents: of the chunks.
        top: documents per retriever; fewer if it finds fewer.
    """
    lists = [_best(retriever, texts, documents, top) for retriever in retrievers]
    query, row, rank = (np.concatenate(columns) for columns in zip(*lists, strict=True))
    doc = documents.document_of_chunk[row]
    _, member = np.unique(query * documents.n + doc, return_inverse=True)
    sums: NDArray[np.float64] = np.bincount(member, 1 / (FUSION + rank)).astype(np.float64)
    fused: NDArray[np.float64] = sums.round(12)[member]
    _, once = np.unique(query * len(documents.document_of_chunk) + documents.places[row], return_index=True)
    return Candidates(query[once], row[once], doc[once], fused[once])


def _best(retriever: Retriever, texts: Sequence[str], documents: DocumentIndex, top: int) -> tuple[_Ints, _Ints, _Ints]:
    """Query, best chunk's row and rank (from 1) of a retriever's `top` documents.

    The search is repeated with a greater depth only for queries whose chunks belong to too few documents.
    """
    n_chunks = len(documents.document_of_chunk)
    depth, query_rows = min(n_chunks, FIRST_DEPTH * top), np.arange(len(texts))
    blocks = []
    while len(query_rows):
        short = []
        step = max(1, CELLS // depth)
        for own in (query_rows[start : start + step] for start in range(0, len(query_rows), step)):
            rows = retriever.search([texts[number] for number in own], depth).rows
            query, row, rank = _first_of_each(rows, documents, top)
            more = (np.bincount(query, minlength=len(own)) < top) & (rows[:, -1] >= 0) & (depth < n_chunks)
            is_complete = ~more[query]
            blocks.append((own[query[is_complete]], row[is_complete], rank[is_complete]))
            short.append(own[more])
        query_rows, depth = np.concatenate(short), min(n_chunks, FURTHER * depth)
    query, row, rank = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
    return query, row, rank


def _first_of_each(rows: _Ints, documents: DocumentIndex, top: int) -> tuple[_Ints, _Ints, _Ints]:
    """Query, first chunk's row and rank of each document, from lists of chunk rows of shape (n_queries, depth)."""
    query, column = np.nonzero(rows >= 0)
    row = rows[query, column]
    _, first = np.unique(query * documents.n + documents.document_of_chunk[row], return_index=True)
    first.sort()
    query, row = query[first], row[first]
    rank = np.arange(len(query)) - np.searchsorted(query, query) + 1
    within = rank <= top
    return query[within], row[within], rank[within]


_Floats = NDArray[np.float64]

# Order by hash: the same random order on every machine, independent of other samples.
DRAWN = """
    SELECT query, place FROM between_k_and_t
    ORDER BY query, sha256(concat_ws(chr(0), $seed, $tenant, query_id, doc_id)), place
"""


@dataclass(frozen=True)
class RankedDocuments:
    """Documents with a score, by query, best first; all of shape (n_documents,).

    Attributes:
        query: number of the query in the block.
        doc: number of the document.
        score: of its best chunk, 0 to 1.
        rank: from 1.
    """

    query: _Ints
    doc: _Ints
    score: _Floats
    rank: _Ints


def scores(replies: pa.Table) -> _Floats:
    """Each reply's probability; if missing, 1 or 0 by its label, 0.5 if the label is doubtful, NaN without a label."""
    label = pc.if_else(is_doubtful(replies), 0.5, replies["relevant"].cast(pa.float64()))
    score = pc.coalesce(replies["probability"].cast(pa.float64()), label)
    return np.asarray(pc.fill_null(score, float("nan")).to_numpy())


def rank_candidates(candidates: Candidates, score: _Floats) -> RankedDocuments:
    """Order documents by their best chunk's score, then fused retrieval score, then doc_id.

    A document without any readable reply has no rank.

    Args:
        candidates: the pairs judged; documents are numbered in the order of their ids.
        score: of each pair, see `scores`.
    """
    read = np.flatnonzero(~np.isnan(score))
    query, doc, fused, score = candidates.query[read], candidates.doc[read], candidates.fused[read], score[read]
    by_document = np.lexsort((-score, doc, query))
    query, doc, fused, score = query[by_document], doc[by_document], fused[by_document], score[by_document]
    best_rows = np.flatnonzero((np.diff(query, prepend=-1) != 0) | (np.diff(doc, prepend=-1) != 0))
    order = best_rows[np.lexsort((doc[best_rows], -fused[best_rows], -score[best_rows], query[best_rows]))]
    query = query[order]
    return RankedDocuments(query, doc[order], score[order], np.arange(len(query)) - np.searchsorted(query, query) + 1)


def positives(ranking: RankedDocuments) -> _Ints:
    """Indices of the documents ranked first with a score above 0; at most one per query."""
    return np.flatnonzero((ranking.rank == 1) & (ranking.score > 0))


def negatives(
    connection: duckdb.DuckDBPyConnection,
    ranking: RankedDocuments,
    names: tuple[str, pa.Array, pa.Array],
    settings: RelevanceSettings,
    seed: int,
) -> tuple[_Ints, _Ints]:
    """Documents ranked K + 1 to T, in random order; the first of a query is its negative.

    Args:
        connection: any.
        ranking: the ranking.
        names: tenant, query_ids and doc_ids by number.
        settings: K and T.
        seed: of the random order.

    Returns:
        Query numbers, ascending, and indices of their documents in the ranking; both of shape (n_negatives,).
    """
    places = np.flatnonzero((ranking.rank > settings.top_k) & (ranking.rank <= settings.top_t))
    tenant, query_ids, doc_ids = names
    rows = {
        "query": pa.array(ranking.query[places]),
        "place": pa.array(places),
        "query_id": query_ids.take(pa.array(ranking.query[places])),
        "doc_id": doc_ids.take(pa.array(ranking.doc[places])),
    }
    connection.register("between_k_and_t", pa.table(rows))
    drawn = connection.sql(DRAWN, params={"seed": str(seed), "tenant": tenant}).to_arrow_table()
    return drawn["query"].to_numpy(), drawn["place"].to_numpy()
