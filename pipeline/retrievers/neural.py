"""Dense retrieval with a real model: nearest neighbours among the chunks' cached vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.retrievers.approximate import Approximate, Recall
from pipeline.retrievers.blocks import CachedVectors
from pipeline.retrievers.exact import exact_search
from pipeline.retrievers.port import Hits
from schemas.settings import VectorSettings

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


class Neural:
    """Nearest neighbours of the query's vector by inner product.

    Args:
        name: the retriever's name in rankings.
        encode: gives the vectors of queries, shape (n_queries, dimensions), by the encoder that made `vectors`.
        vectors: the chunks' vectors in the embedding cache.
        settings: exact or approximate, device and memory.

    Raises:
        MissingPart: the settings name an approximate index and faiss is not installed.
    """

    def __init__(self, name: str, encode: Encode, vectors: CachedVectors, settings: VectorSettings) -> None:
        self.name = name
        self._encode, self._vectors, self._settings = encode, vectors, settings
        self._approximate = None if settings.index == "exact" else Approximate(vectors, settings)

    @property
    def recall(self) -> Recall | None:
        """Of the latest approximate search against an exact one; None where the search is exact."""
        return self._approximate.recall if self._approximate else None

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A query whose vector is zero has no hits."""
        encoded = self._encode(queries)
        if self._approximate:
            return self._approximate.search(encoded, depth)
        return exact_search(encoded, self._vectors, depth, self._settings)
