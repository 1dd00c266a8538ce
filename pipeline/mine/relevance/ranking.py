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

from darklode.pipeline.base.doubtful_labels import is_doubtful
from darklode.pipeline.base.types import Doubles, Ints
from darklode.pipeline.retrieve.pool import RRF_K
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.schemas.mining import RelevanceSettings

CHUNKS_PER_DOCUMENT = 4
"""Chunks retrieved per requested document in the first search: several chunks may belong to the same document. Fewer
need a second search more often."""
DEPTH_FACTOR = 4
"""Factor by which the search depth grows while the retrieved chunks belong to too few documents: a larger one repeats
fewer searches, but finds more chunks than needed."""
MAX_SEARCH_HITS = 1 << 23
"""Maximum hits (queries × depth) of one search, to bound its memory: deeper searches take fewer queries at once."""


@dataclass(frozen=True)
class DocumentIndex:
    """Mapping between a tenant's documents and chunks.

    Attributes:
        document_of_chunk: document number of each chunk row, shape (n_chunks,).
        chunk_id_rank: rank of each chunk row by chunk_id, shape (n_chunks,).
        n: number of documents.
    """

    document_of_chunk: Ints
    chunk_id_rank: Ints
    n: int

    def first_chunks(self, docs: Ints, max_chunks: int) -> tuple[Ints, Ints]:
        """Find the first chunks of documents.

        Args:
            docs: document numbers, shape (n_docs,); a document -1 has no chunks.
            max_chunks: maximum number of chunks per document.

        Returns:
            For each chunk the index of its document in `docs`, and its chunk row; both of shape (n_chunks,).
        """
        starts = np.searchsorted(self._sorted_documents, docs)
        ends = np.searchsorted(self._sorted_documents, docs, side="right")
        counts = np.minimum(ends - starts, max_chunks)
        first_outputs = np.cumsum(counts) - counts
        chunk_within_document = np.arange(counts.sum()) - np.repeat(first_outputs, counts)
        chunk_rows = self._rows_by_document[np.repeat(starts, counts) + chunk_within_document]
        return np.repeat(np.arange(len(docs)), counts), chunk_rows

    @cached_property
    def _rows_by_document(self) -> Ints:
        """Chunk rows ordered by document; a stable sort keeps the chunks of a document in their order."""
        return np.argsort(self.document_of_chunk, kind="stable")

    @cached_property
    def _sorted_documents(self) -> Ints:
        """Document number of each of `_rows_by_document`, ascending."""
        return self.document_of_chunk[self._rows_by_document]


@dataclass(frozen=True)
class Candidates:
    """Pairs to judge, by query, then chunk_id; all of shape (n_pairs,).

    Attributes:
        query: number of the query in the block.
        row: row of the chunk.
        doc: number of its document.
        fused: the document's reciprocal rank fusion score, rounded so that float noise does not decide ties.
    """

    query: Ints
    row: Ints
    doc: Ints
    fused: Doubles

    def slice_queries(self, first: int, end: int) -> Candidates:
        """The candidates of queries `first` to `end` - 1."""
        start, stop = np.searchsorted(self.query, [first, end])
        pairs = slice(int(start), int(stop))
        return Candidates(self.query[pairs], self.row[pairs], self.doc[pairs], self.fused[pairs])


def top_candidates(
    retrievers: Sequence[Retriever], texts: Sequence[str], documents: DocumentIndex, top: int
) -> Candidates:
    """Find each retriever's `top` documents per query, and the chunks to judge for them.

    A document is represented by the chunk that a retriever ranks highest: by several chunks if the retrievers disagree.

    Args:
        retrievers: at least one retriever over the tenant's chunks.
        texts: the texts of the queries of a block.
        documents: the mapping between the tenant's chunks and documents.
        top: maximum number of documents per query and retriever.
    """
    results = [_search_documents(retriever, texts, documents, top) for retriever in retrievers]
    query, row, rank = (np.concatenate(columns) for columns in zip(*results, strict=True))
    doc = documents.document_of_chunk[row]
    _, document_pair = np.unique(query * documents.n + doc, return_inverse=True)
    fusion_scores: Doubles = np.bincount(document_pair, 1 / (RRF_K + rank)).astype(np.float64)
    fused: Doubles = fusion_scores.round(12)[document_pair]
    # Unique sorts: the pairs are ordered by query, then chunk_id.
    _, distinct = np.unique(query * len(documents.document_of_chunk) + documents.chunk_id_rank[row], return_index=True)
    return Candidates(query[distinct], row[distinct], doc[distinct], fused[distinct])


def _search_documents(
    retriever: Retriever, texts: Sequence[str], documents: DocumentIndex, top: int
) -> tuple[Ints, Ints, Ints]:
    """Find a retriever's `top` documents for each query, with their best chunks.

    The search is repeated with a greater depth only for queries whose chunks belong to too few documents.

    Returns:
        Query number, row of the document's best chunk, and rank of the document (from 1); all of shape (n_documents,).
    """
    n_chunks = len(documents.document_of_chunk)
    depth = min(n_chunks, CHUNKS_PER_DOCUMENT * top)
    pending_queries = np.arange(len(texts))
    complete_results = []
    while len(pending_queries):
        incomplete_queries = []
        block_size = max(1, MAX_SEARCH_HITS // depth)
        for start in range(0, len(pending_queries), block_size):
            block = pending_queries[start : start + block_size]
            rows = retriever.search([texts[number] for number in block], depth).rows
            query, row, rank = _first_chunk_per_document(rows, documents, top)
            has_too_few = np.bincount(query, minlength=len(block)) < top
            can_find_more = (rows[:, -1] >= 0) & (depth < n_chunks)  # a list that ends with -1 is exhausted
            needs_deeper_search = has_too_few & can_find_more
            is_complete = ~needs_deeper_search[query]
            complete_results.append((block[query[is_complete]], row[is_complete], rank[is_complete]))
            incomplete_queries.append(block[needs_deeper_search])
        pending_queries = np.concatenate(incomplete_queries)
        depth = min(n_chunks, DEPTH_FACTOR * depth)
    query, row, rank = (np.concatenate(columns) for columns in zip(*complete_results, strict=True))
    return query, row, rank


def _first_chunk_per_document(rows: Ints, documents: DocumentIndex, top: int) -> tuple[Ints, Ints, Ints]:
    """Reduce ranked lists of chunks to ranked lists of documents.

    Args:
        rows: chunk rows by rank, -1 after the last hit, shape (n_queries, depth).
        documents: the mapping between chunks and documents.
        top: maximum number of documents per query.

    Returns:
        Index of the query, row of the document's first chunk, and rank of the document (from 1); all of shape
            (n_documents,), by query, then rank.
    """
    query, column = np.nonzero(rows >= 0)
    row = rows[query, column]
    _, first_hits = np.unique(query * documents.n + documents.document_of_chunk[row], return_index=True)
    first_hits.sort()
    query = query[first_hits]
    row = row[first_hits]
    # `query` ascends, so the first occurrence of a value is the first document of that query.
    rank = np.arange(len(query)) - np.searchsorted(query, query) + 1
    is_in_top = rank <= top
    return query[is_in_top], row[is_in_top], rank[is_in_top]


# `ranking_index`: index of a document in the ranking that `negatives` gets. Order by hash: the same random order on
# every machine, independent of other samples.
SHUFFLED_CANDIDATES_SQL = """
    SELECT query, ranking_index FROM negative_candidates
    ORDER BY query, sha256(concat_ws(chr(0), $seed, $tenant, query_id, doc_id)), ranking_index
"""


@dataclass(frozen=True)
class RankedDocuments:
    """Documents with a score, by query, best first; all of shape (n_documents,).

    Attributes:
        query: number of the query in the block.
        doc: number of the document.
        score: score of the document's best chunk, 0 to 1.
        rank: rank of the document for its query, from 1.
    """

    query: Ints
    doc: Ints
    score: Doubles
    rank: Ints


def scores(replies: pa.Table) -> Doubles:
    """Convert the judge's replies to scores, shape (n_replies,).

    The score is the reply's probability; if missing, 1 or 0 by its label, 0.5 if the label is doubtful, NaN without a
    label.
    """
    label_score = pc.if_else(is_doubtful(replies), 0.5, replies["relevant"].cast(pa.float64()))
    score = pc.coalesce(replies["probability"].cast(pa.float64()), label_score)
    return np.asarray(pc.fill_null(score, float("nan")).to_numpy())


def rank_candidates(candidates: Candidates, score: Doubles) -> RankedDocuments:
    """Order documents by their best chunk's score, then fused retrieval score, then doc_id.

    A document without any readable reply has no rank.

    Args:
        candidates: the pairs judged; documents are numbered in the order of their ids.
        score: score of each pair, shape (n_pairs,), see `scores`; NaN: no readable reply.
    """
    readable = np.flatnonzero(~np.isnan(score))
    query, doc = candidates.query[readable], candidates.doc[readable]
    fused, score = candidates.fused[readable], score[readable]
    # Sorted by query, document and descending score, the first row of a document is its best chunk.
    by_document = np.lexsort((-score, doc, query))
    query, doc, fused, score = query[by_document], doc[by_document], fused[by_document], score[by_document]
    best_rows = np.flatnonzero((np.diff(query, prepend=-1) != 0) | (np.diff(doc, prepend=-1) != 0))
    order = best_rows[np.lexsort((doc[best_rows], -fused[best_rows], -score[best_rows], query[best_rows]))]
    query = query[order]
    return RankedDocuments(query, doc[order], score[order], np.arange(len(query)) - np.searchsorted(query, query) + 1)


def positives(ranking: RankedDocuments) -> Ints:
    """Indices of the documents ranked first with a score above 0; at most one per query."""
    return np.flatnonzero((ranking.rank == 1) & (ranking.score > 0))


def negatives(
    connection: duckdb.DuckDBPyConnection,
    ranking: RankedDocuments,
    names: tuple[str, pa.Array, pa.Array],
    settings: RelevanceSettings,
    seed: int,
) -> tuple[Ints, Ints]:
    """Find each query's negative candidates, the documents ranked K + 1 to T, in random order.

    The first candidate of a query becomes its negative; the others replace it if it turns out relevant.

    Args:
        connection: any DuckDB connection; the order is computed in it.
        ranking: the ranking of the block's queries.
        names: the tenant, the query ids by query number, and the doc ids by document number.
        settings: K (`top_k`) and T (`top_t`).
        seed: seed of the random order.

    Returns:
        Query numbers, ascending, and indices of their documents in the ranking; both of shape (n_negatives,).
    """
    candidates = np.flatnonzero((ranking.rank > settings.top_k) & (ranking.rank <= settings.top_t))
    tenant, query_ids, doc_ids = names
    columns = {
        "query": pa.array(ranking.query[candidates]),
        "ranking_index": pa.array(candidates),
        "query_id": query_ids.take(pa.array(ranking.query[candidates])),
        "doc_id": doc_ids.take(pa.array(ranking.doc[candidates])),
    }
    connection.register("negative_candidates", pa.table(columns))
    shuffled = connection.sql(SHUFFLED_CANDIDATES_SQL, params={"seed": str(seed), "tenant": tenant}).to_arrow_table()
    return shuffled["query"].to_numpy(), shuffled["ranking_index"].to_numpy()
