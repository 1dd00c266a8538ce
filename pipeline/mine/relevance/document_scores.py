"""What a judge of chunks says of whole documents: each is worth its best chunk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.judge.pairs import check_chunks_exist
from darklode.pipeline.judge.session import as_numbers
from darklode.pipeline.mine.relevance.ranker import OpenTenant
from darklode.pipeline.mine.relevance.ranking import scores

CHUNKS_SEEN = 16
"""So much of a document, from its beginning, the judge looks at."""


@dataclass(frozen=True)
class JudgedDocuments:
    """Some queries' documents, each query and document once, and the chunks to judge.

    Attributes:
        document_index: which of them each document that was asked for is, shape (n_asked,).
        member: which of them each chunk belongs to, shape (n_chunks,).
        shown: the chunks as rows of `PAIRS`, by query, then chunk.
    """

    document_index: NDArray[np.int64]
    member: NDArray[np.int64]
    shown: pa.Table

    @classmethod
    def from_queries(cls, opened: OpenTenant, queries: pa.Table, docs: pa.ChunkedArray) -> JudgedDocuments:
        """Look up the documents' first chunks.

        Args:
            opened: whose they are.
            queries: query_id, query and query_hash, a row for each query and document.
            docs: doc_ids, null where there is none: one for each row, or one after the other several lists of these.

        Raises:
            ArtifactError: a query has no text.
        """
        check_chunks_exist(queries, opened.chunks.tenant, "query_id", queries["query"])
        doc = pc.fill_null(pc.index_in(docs, opened.doc_ids, skip_nulls=True), -1).to_numpy().astype(np.int64)
        query = queries["query_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        key = np.tile(query, len(doc) // max(1, len(query))) * (len(opened.doc_ids) + 1) + doc
        _, first, document_index = np.unique(key, return_index=True, return_inverse=True)
        member, row = opened.documents.first_chunks(doc[first], CHUNKS_SEEN)
        query_row = first[member] % max(1, queries.num_rows)
        order = np.lexsort((opened.documents.places[row], query[query_row]))
        return cls(document_index, member[order], opened.pairs(queries, query_row[order], row[order]))

    @property
    def is_read(self) -> NDArray[np.bool_]:
        """Which of the documents are there."""
        return np.bincount(self.member, minlength=int(self.document_index.max(initial=-1)) + 1) > 0

    def label_documents(self, replies: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Whether each document is relevant, and its probability; null where that is not known."""
        labels, is_read = as_numbers(replies["relevant"]), self.is_read
        yes, unread = (
            np.bincount(self.member, member_mask, len(is_read)) > 0 for member_mask in (labels == 1, np.isnan(labels))
        )
        probability = np.full(len(is_read), np.nan)
        np.fmax.at(probability, self.member, scores(replies))
        unknown = ~is_read | (~yes & unread)
        return pa.array(yes, mask=unknown), pa.array(probability, mask=np.isnan(probability))
