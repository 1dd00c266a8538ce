"""Document verdicts from a judge of chunks: a document is as relevant as its best chunk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.judge.pairs import check_ids_exist
from darklode.pipeline.judge.session import labels_as_floats
from darklode.pipeline.mine.relevance.ranker import OpenTenant
from darklode.pipeline.mine.relevance.ranking import scores

CHUNKS_SEEN = 16
"""Maximum number of chunks of a document, from its beginning, that the judge sees."""


@dataclass(frozen=True)
class JudgedDocuments:
    """Distinct (query, document) pairs, and their chunks to judge.

    Attributes:
        document_index: index of the pair for each requested document, shape (n_requested,).
        member: index of the pair for each chunk, shape (n_chunks,).
        shown: the chunks as rows of `PAIRS`, by query, then chunk.
    """

    document_index: NDArray[np.int64]
    member: NDArray[np.int64]
    shown: pa.Table

    @classmethod
    def from_queries(cls, opened: OpenTenant, queries: pa.Table, docs: pa.ChunkedArray) -> JudgedDocuments:
        """Look up the documents' first chunks.

        Args:
            opened: the tenant.
            queries: query_id, query and query_hash, one row per requested document.
            docs: doc_ids, null for none: one per row of `queries`, or several such lists concatenated.

        Raises:
            ArtifactError: a query has no text.
        """
        check_ids_exist(queries, opened.chunks.tenant, "query_id", queries["query"])
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
        """Which of the pairs have a document with chunks, shape (n_pairs,)."""
        return np.bincount(self.member, minlength=int(self.document_index.max(initial=-1)) + 1) > 0

    def label_documents(self, replies: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Whether each document is relevant, and its probability; null if unknown."""
        labels, is_read = labels_as_floats(replies["relevant"]), self.is_read
        yes, unread = (
            np.bincount(self.member, member_mask, len(is_read)) > 0 for member_mask in (labels == 1, np.isnan(labels))
        )
        probability = np.full(len(is_read), np.nan)
        np.fmax.at(probability, self.member, scores(replies))
        unknown = ~is_read | (~yes & unread)
        return pa.array(yes, mask=unknown), pa.array(probability, mask=np.isnan(probability))
