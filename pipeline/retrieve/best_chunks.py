"""From documents to chunks: the chunk of a document that represents it for a query is its best one by BM25."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.base.types import Ints
from darklode.pipeline.retrieve.retrievers.bm25 import Bm25


def best_chunks(queries: Sequence[str], documents: Sequence[Sequence[str]], chunks: TenantChunks) -> list[Ints]:
    """The best chunk of each document for each query, see `DocumentChunks.best`.

    Args:
        queries: texts of the queries.
        documents: document ids of each query, one list per query.
        chunks: the tenant's chunks; BM25 is fitted on all of them.

    Returns:
        For each query the row in `chunks` of each of its documents' best chunk, -1 for a document without chunks.
    """
    document_chunks = DocumentChunks(chunks.doc_ids)
    numbers = document_chunks.numbers(pa.array([doc_id for ids in documents for doc_id in ids], pa.string()))
    ends = np.cumsum([len(ids) for ids in documents], dtype=np.int64)
    bm25 = Bm25(TermSpace(chunks.batches()))
    return [
        document_chunks.best(query, ids, bm25)
        for query, ids in zip(queries, np.split(numbers, ends[:-1]) if len(ends) else [], strict=True)
    ]


class DocumentChunks:
    """The rows of each document's chunks.

    Args:
        doc_ids: the document of each chunk, by chunk row.
    """

    def __init__(self, doc_ids: pa.StringArray) -> None:
        encoded = doc_ids.dictionary_encode()
        self._ids, numbers = encoded.dictionary, np.asarray(encoded.indices.to_numpy(), np.int64)
        self._order = np.argsort(numbers, kind="stable")
        self._lengths = np.bincount(numbers, minlength=len(self._ids))
        self._starts = np.cumsum(self._lengths) - self._lengths

    def numbers(self, documents: pa.StringArray) -> Ints:
        """The number of each document, which the other methods take; -1 for a document without chunks.

        Look up many at once: each call builds a table of all documents.
        """
        positions = pc.index_in(documents, self._ids, skip_nulls=True)
        return np.asarray(positions.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)

    def all_of(self, numbers: Ints) -> tuple[Ints, Ints]:
        """All chunks of some documents, ascending within a document.

        Args:
            numbers: see `numbers`.

        Returns:
            Index in `numbers` and chunk row of each chunk, in the order of `numbers`; -1 has none.
        """
        with_chunks = np.flatnonzero(numbers >= 0)
        lengths = self._lengths[numbers[with_chunks]]
        document = np.repeat(with_chunks, lengths)
        offset = np.arange(len(document)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return document, self._order[self._starts[numbers[document]] + offset]

    def best(self, query: str, numbers: Ints, bm25: Bm25) -> Ints:
        """Each document's chunk with the highest BM25 score for a query, at equal scores the first one.

        So a document without any query term is represented by its first chunk.

        Args:
            query: text of the query.
            numbers: see `numbers`.
            bm25: BM25 over the same chunks.

        Returns:
            Chunk rows, shape (len(numbers),); -1 for a document without chunks.
        """
        document, row = self.all_of(numbers)
        best_rows = np.full(len(numbers), -1, np.int64)
        if len(document):
            by_score = np.lexsort((row, -bm25.scores(query)[row], document))
            first = by_score[np.diff(document[by_score], prepend=-1) > 0]
            best_rows[document[first]] = row[first]
        return best_rows
