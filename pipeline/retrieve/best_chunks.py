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
    bm25 = Bm25(TermSpace(chunks.batches()))
    return [
        document_chunks.best(query, ids, bm25) if len(ids) else np.empty(0, np.int64)
        for query, ids in zip(queries, documents, strict=True)
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

    def all_of(self, documents: Sequence[str]) -> tuple[Ints, Ints]:
        """All chunks of some documents, ascending within a document.

        Returns:
            Index in `documents` and chunk row of each chunk, in the order of `documents`; a document without chunks
            has none.
        """
        numbers = self._numbers(documents)
        known = np.flatnonzero(numbers >= 0)
        lengths = self._lengths[numbers[known]]
        document = np.repeat(known, lengths)
        offset = np.arange(len(document)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return document, self._order[self._starts[numbers[document]] + offset]

    def best(self, query: str, documents: Sequence[str], bm25: Bm25) -> Ints:
        """Each document's chunk with the highest BM25 score for a query, at equal scores the first one.

        So a document without any query term is represented by its first chunk.

        Args:
            query: text of the query.
            documents: document ids.
            bm25: BM25 over the same chunks.

        Returns:
            Chunk rows, shape (len(documents),); -1 for a document without chunks.
        """
        document, row = self.all_of(documents)
        best = np.full(len(documents), -1, np.int64)
        by_score = np.lexsort((row, -bm25.scores(query)[row], document))
        first = by_score[np.diff(document[by_score], prepend=-1) > 0]
        best[document[first]] = row[first]
        return best

    def _numbers(self, documents: Sequence[str]) -> Ints:
        """Number of each document in `_ids`; -1 for an unknown one."""
        positions = pc.index_in(pa.array(documents, pa.string()), self._ids)
        return np.asarray(positions.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
