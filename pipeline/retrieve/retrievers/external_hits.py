"""Rankings of another system as hits: its ids are those of chunks, or of documents, which count for their chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.port import Hits

MapDocuments = Literal["best", "all"]


@dataclass(frozen=True)
class Ranking:
    """One query's ranking by another system, best first.

    Attributes:
        ids: ids of chunks and documents, each once.
        scores: same shape.
    """

    ids: pa.StringArray
    scores: Floats


class HitMapper:
    """Maps ids of another system to rows of a tenant's chunks.

    An id is a chunk's or, if there is no such chunk, a document's; percent-encoded ids, and those with `tenant/` in
    front, are those of exports.

    Args:
        corpus: the tenant's chunks.
        map_documents: `best`: a document counts for its best chunk by BM25; `all`: for all its chunks, in their order.
    """

    def __init__(self, corpus: Corpus, map_documents: MapDocuments) -> None:
        self._corpus, self._map_documents = corpus, map_documents
        self._chunks = corpus.tenant_chunks
        self._documents = pc.unique(self._chunks.doc_ids)

    @property
    def tenant(self) -> str:
        """The tenant of the chunks."""
        return self._chunks.tenant

    def resolve(self, ids: pa.StringArray) -> tuple[pa.StringArray, pa.BooleanArray]:
        """Look up ids.

        Returns:
            The ids as chunks and documents have them, null for unknown ones, and whether each is a document's; both
            of shape (len(ids),).
        """
        encoded = ids.dictionary_encode()
        spellings = encoded.dictionary
        decoded = pa.array([unquote(name) for name in spellings.to_pylist()], pa.string())
        prefix = f"{self._chunks.tenant}/"
        bare = pa.array([name.removeprefix(prefix) for name in decoded.to_pylist()], pa.string())
        known_as = pa.nulls(len(spellings), pa.string())
        is_document = pa.nulls(len(spellings), pa.bool_())
        for known_ids, is_of_document in ((self._chunks.chunk_ids, False), (self._documents, True)):
            for spelling in (spellings, decoded, bare):
                is_match = pc.and_(pc.is_null(known_as), pc.is_in(spelling, known_ids))
                is_document = pc.if_else(is_match, is_of_document, is_document)
                known_as = pc.if_else(is_match, spelling, known_as)
        return known_as.take(encoded.indices), pc.fill_null(is_document, False).take(encoded.indices)

    def hits(self, queries: Sequence[str], rankings: Sequence[Ranking], depth: int) -> Hits:
        """Hits of the queries; unknown ids, and chunks that are ranked already, are left out.

        Args:
            queries: texts of the queries.
            rankings: one per query.
            depth: number of hits per query.
        """
        k = min(depth, self._corpus.n_chunks)
        rows, scores = np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), np.nan, np.float32)
        ids = pa.concat_arrays([pa.array([], pa.string()), *(ranking.ids for ranking in rankings)])
        known_as, is_document = self.resolve(ids)
        chunk_rows = pc.fill_null(pc.index_in(known_as, self._chunks.chunk_ids, skip_nulls=True), -1)
        chunk_row = np.asarray(chunk_rows.to_numpy(zero_copy_only=False), np.int64)
        is_chunk = ~is_document.to_numpy(zero_copy_only=False)
        number = np.full(len(ids), -1)
        if not is_chunk.all():
            number = np.where(is_chunk, -1, self._corpus.document_chunks.numbers(known_as))
        chunk_row = np.where(is_chunk, chunk_row, -1)
        start = 0
        for position, (query, ranking) in enumerate(zip(queries, rankings, strict=True)):
            block = slice(start, start + len(ranking.ids))
            row, source = self._rows(query, number[block], chunk_row[block])
            _, first = np.unique(row, return_index=True)
            first = np.sort(first)[:k]
            rows[position, : len(first)], scores[position, : len(first)] = row[first], ranking.scores[source[first]]
            start = block.stop
        return Hits(rows, scores)

    def _rows(self, query: str, number: Ints, chunk_row: Ints) -> tuple[Ints, Ints]:
        """Chunk rows of a ranking in its order, and the position in the ranking that each comes from.

        Args:
            query: text of the query.
            number: number of each id's document, see `DocumentChunks`; -1 if it is no document.
            chunk_row: row of each id's chunk; -1 if it is no chunk.
        """
        row, position = chunk_row, np.arange(len(chunk_row))
        if (number >= 0).any():
            documents = self._corpus.document_chunks
            if self._map_documents == "best":
                row = np.where(number >= 0, documents.best(query, number, self._corpus.fixed_bm25), row)
            else:
                document, document_rows = documents.all_of(number)
                row, position = np.append(row, document_rows), np.append(position, document)
                order = np.argsort(position, kind="stable")
                row, position = row[order], position[order]
        return row[row >= 0], position[row >= 0]
