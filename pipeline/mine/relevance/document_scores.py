"""Verdicts on documents from a judge that reads chunks: a document is as relevant as its most relevant chunk."""

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

MAX_JUDGED_CHUNKS = 16
"""Maximum number of chunks of a document, from its beginning, that the judge sees: more find more, and cost more."""


@dataclass(frozen=True)
class JudgedDocuments:
    """Distinct (query, document) pairs, and their chunks to judge.

    A pair that is requested several times is judged once.

    Attributes:
        document_index: for each requested document, the index of its distinct pair, shape (n_requested,).
        pair_of_chunk: for each chunk to judge, the index of its distinct pair, shape (n_chunks,).
        shown: the chunks to judge, as rows of `PAIRS`, ordered by query, then chunk_id.
    """

    document_index: NDArray[np.int64]
    pair_of_chunk: NDArray[np.int64]
    shown: pa.Table

    @classmethod
    def from_queries(cls, opened: OpenTenant, queries: pa.Table, docs: pa.ChunkedArray) -> JudgedDocuments:
        """Look up the first `MAX_JUDGED_CHUNKS` chunks of each document.

        Args:
            opened: the tenant with the documents.
            queries: query_id, query and query_hash, one row per requested document.
            docs: doc_ids, null where a query has no document: one per row of `queries`, or several such lists
                concatenated.

        Raises:
            ArtifactError: a query has no text.
        """
        check_ids_exist(queries, opened.chunks.tenant, "query_id", queries["query"])
        # Document number -1: no document, or one that no longer exists.
        doc_numbers = pc.fill_null(pc.index_in(docs, opened.doc_ids, skip_nulls=True), -1).to_numpy().astype(np.int64)
        query_numbers = queries["query_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        n_lists = len(doc_numbers) // max(1, len(query_numbers))
        pair_keys = np.tile(query_numbers, n_lists) * (len(opened.doc_ids) + 1) + doc_numbers
        _, first_requests, document_index = np.unique(pair_keys, return_index=True, return_inverse=True)
        pair_of_chunk, chunk_rows = opened.documents.first_chunks(doc_numbers[first_requests], MAX_JUDGED_CHUNKS)
        query_rows = first_requests[pair_of_chunk] % max(1, queries.num_rows)
        order = np.lexsort((opened.documents.chunk_id_rank[chunk_rows], query_numbers[query_rows]))
        return cls(document_index, pair_of_chunk[order], opened.pairs(queries, query_rows[order], chunk_rows[order]))

    @property
    def is_read(self) -> NDArray[np.bool_]:
        """Whether each distinct pair has a document with chunks, shape (n_pairs,)."""
        n_pairs = int(self.document_index.max(initial=-1)) + 1
        return np.bincount(self.pair_of_chunk, minlength=n_pairs) > 0

    def label_documents(self, replies: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Combine the replies on chunks into labels of documents.

        Args:
            replies: the judge's replies to the rows of `shown`, in the same order.

        Returns:
            Whether each document is relevant, and its probability; both of shape (n_pairs,). The label is null if the
                document has no chunk, or if no chunk is relevant and a reply was unreadable.
        """
        chunk_labels = labels_as_floats(replies["relevant"])
        is_read = self.is_read
        n_pairs = len(is_read)
        has_relevant_chunk = np.bincount(self.pair_of_chunk, chunk_labels == 1, n_pairs) > 0
        has_unreadable_reply = np.bincount(self.pair_of_chunk, np.isnan(chunk_labels), n_pairs) > 0
        probability = np.full(n_pairs, np.nan)
        # fmax ignores NaN, the score of an unreadable reply.
        np.fmax.at(probability, self.pair_of_chunk, scores(replies))
        is_unknown = ~is_read | (~has_relevant_chunk & has_unreadable_reply)
        return pa.array(has_relevant_chunk, mask=is_unknown), pa.array(probability, mask=np.isnan(probability))
