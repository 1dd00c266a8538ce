"""How the embedded retrievers search: exactly, in spaces that are fitted on the corpus itself.

Four of the six that are dense use pseudo-relevance feedback: the query moves towards the best chunks that BM25 found
for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.retrieve.encoders.lsa import unit_rows
from darklode.pipeline.retrieve.encoders.port import Encoder
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.pipeline.retrieve.retrievers.topk import fixed_point, search_vectors

_SEEDS = 5
_WEIGHT = np.float32(2)  # float32, lest the sums become float64


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
        """See `Retriever`. A query the encoder knows no word of has no hits; an empty chunk is never one."""
        return search_vectors(fixed_point(self._encoder.encode_queries(queries)), self._vectors, depth)


class Feedback(Retriever):
    """Rocchio (1971) without negatives.

    The query becomes query + 2 · (score-weighted mean of the 5 best seeds), both scaled to length 1 before.

    Args:
        name: the retriever's name in rankings.
        encoder: encodes the queries; the same that made `vectors`.
        vectors: the chunks' vectors, shape (n_chunks, encoder.dimensions).
        seeds: finds the seeds; its scores must be at least 0.
    """

    def __init__(self, name: str, encoder: Encoder, vectors: NDArray[np.int16], seeds: Retriever) -> None:
        self.name = name
        self._encoder = encoder
        self._vectors = vectors
        self._seeds = seeds

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A query without seeds is searched as it is."""
        own = self._encoder.encode_queries(queries)
        moved = unit_rows(own + _WEIGHT * self._seed_means(queries))
        return search_vectors(fixed_point(moved), self._vectors, depth)

    def _seed_means(self, queries: Sequence[str]) -> NDArray[np.float32]:
        hits = self._seeds.search(queries, _SEEDS)
        weights = np.where(hits.rows >= 0, hits.scores, 0).astype(np.float32)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), np.float32(1e-12))
        sums = np.zeros((len(hits.rows), self._vectors.shape[1]), dtype=np.float32)
        for rank in range(hits.rows.shape[1]):
            sums += weights[:, rank, None] * self._vectors[hits.rows[:, rank]]
        return unit_rows(sums)
