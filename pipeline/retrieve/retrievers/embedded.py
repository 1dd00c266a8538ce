"""Exact search in vector spaces that are fitted on the corpus itself, without a neural model.

Four of the six dense retrievers use pseudo-relevance feedback: the query vector is moved towards its best BM25 chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.retrieve.encoders.lsa import unit_rows
from darklode.pipeline.retrieve.encoders.port import Encoder
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.pipeline.retrieve.retrievers.topk import fixed_point, search_vectors

_FEEDBACK_CHUNKS = 5  # chunks per query for feedback
_FEEDBACK_WEIGHT = np.float32(2)  # weight of the feedback; float32, so that sums stay float32


class Dense(Retriever):
    """Exact nearest neighbours of the query's vector by inner product.

    Args:
        name: the retriever's name in rankings.
        encoder: encodes the queries; the same that made `vectors`.
        vectors: the chunks' vectors from `store_vectors`, shape (n_chunks, encoder.dimensions).
    """

    def __init__(self, name: str, encoder: Encoder, vectors: NDArray[np.int16]) -> None:
        self.name = name
        self._encoder = encoder
        self._vectors = vectors

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. Queries without known words have no hits; empty chunks are never hits."""
        return search_vectors(fixed_point(self._encoder.encode_queries(queries)), self._vectors, depth)


class Feedback(Retriever):
    """Pseudo-relevance feedback: Rocchio (1971) without negatives.

    The query becomes query + 2 · (score-weighted mean of the 5 best seeds), both scaled to length 1 before.

    Args:
        name: the retriever's name in rankings.
        encoder: encodes the queries; the same that made `vectors`.
        vectors: the chunks' vectors, shape (n_chunks, encoder.dimensions).
        seeds: retriever that finds the feedback chunks; its scores must be at least 0.
    """

    def __init__(self, name: str, encoder: Encoder, vectors: NDArray[np.int16], seeds: Retriever) -> None:
        self.name = name
        self._encoder = encoder
        self._vectors = vectors
        self._seeds = seeds

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A query without feedback chunks is searched unchanged."""
        query_vectors = self._encoder.encode_queries(queries)
        expanded = unit_rows(query_vectors + _FEEDBACK_WEIGHT * self._seed_means(queries))
        return search_vectors(fixed_point(expanded), self._vectors, depth)

    def _seed_means(self, queries: Sequence[str]) -> NDArray[np.float32]:
        """Score-weighted mean vector of each query's feedback chunks, as unit vectors (or zero)."""
        hits = self._seeds.search(queries, _FEEDBACK_CHUNKS)
        weights = np.where(hits.rows >= 0, hits.scores, 0).astype(np.float32)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.float32(1e-12))
        sums = np.zeros((len(hits.rows), self._vectors.shape[1]), dtype=np.float32)
        for rank in range(hits.rows.shape[1]):
            sums += weights[:, rank, None] * self._vectors[hits.rows[:, rank]]
        return unit_rows(sums)
