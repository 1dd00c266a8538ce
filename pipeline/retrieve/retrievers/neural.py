"""Dense retrieval with a neural encoder: missing vectors are encoded and cached, then the cache is searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, ensure_cached
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.port import ModelEncoder
from darklode.pipeline.retrieve.retrievers.approximate import Approximate
from darklode.pipeline.retrieve.retrievers.blocks import CachedVectors
from darklode.pipeline.retrieve.retrievers.corpus import Corpus, HashedChunks
from darklode.pipeline.retrieve.retrievers.exact import exact_search
from darklode.pipeline.retrieve.retrievers.port import Hits, Recall, Retriever
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


class Neural(Retriever):
    """Nearest neighbours of the query's vector by inner product.

    Args:
        name: the retriever's name in rankings.
        encode: encodes queries, shape (n_queries, dimensions), with the encoder of `vectors`.
        vectors: the chunks' vectors in the embedding cache.
        settings: exact or approximate, device and memory.

    Raises:
        MissingPart: the settings name an approximate index and faiss is not installed.
    """

    def __init__(self, name: str, encode: Encode, vectors: CachedVectors, settings: VectorSearchSettings) -> None:
        self.name = name
        self._encode, self._vectors, self._settings = encode, vectors, settings
        self._approximate = None if settings.index == "exact" else Approximate(vectors, settings)

    @property
    def recall(self) -> Recall | None:
        """Recall of the latest approximate search against exact search; None if the search is exact."""
        return self._approximate.recall if self._approximate else None

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A query whose vector is zero has no hits."""
        encoded = self._encode(queries)
        if self._approximate:
            return self._approximate.search(encoded, depth)
        return exact_search(encoded, self._vectors, depth, self._settings)


@dataclass(frozen=True)
class NeuralBuilder:
    """Builds a neural retriever; plain data, so that it can travel to another machine.

    Attributes:
        name: the retriever's name in rankings.
        encoder: what encodes chunks and queries.
        vectors: how the cache is searched.
        cache: where vectors are kept.
    """

    name: str
    encoder: EncoderKind
    vectors: VectorSearchSettings
    cache: CacheSettings

    def __call__(self, corpus: Corpus) -> Retriever:
        """Open the corpus's vectors; chunks that have none are encoded first.

        Raises:
            MissingPart: a package, key, model or GPU is missing.
        """
        encoder = Deferred(self.encoder, self.cache.root)
        cache = EmbeddingCache(self.cache.root, self.cache.vector_dtype)
        vectors = chunk_vectors(encoder, cache, corpus.hashed_chunks)
        return Neural(self.name, CachedQueries(encoder, cache), vectors, self.vectors)

    @property
    def shares(self) -> str:
        """Its own name: it shares no fitted data with other retrievers."""
        return self.name

    @property
    def identity(self) -> dict[str, Any]:
        """Everything besides texts and depth that can change the hits; part of the stage's fingerprint."""
        return {"encoder": self.encoder.encoder_id(), "kept": self.cache.vector_dtype, "index": self.vectors.index}


def chunk_vectors(encoder: ModelEncoder, cache: EmbeddingCache, chunks: HashedChunks) -> CachedVectors:
    """Open the chunks' vectors in the cache; missing ones are encoded first.

    Raises:
        ArtifactError: the vectors were pruned in the meantime.
    """
    hashes = chunks.hashes()
    shards = cache.open(encoder.encoder_id)
    if shards is None or (shards.find(keys_of(hashes)) < 0).any():
        ensure_cached(encoder, cache, chunks.iterate_hashes())
        shards = cache.open(encoder.encoder_id)
    if shards is None:
        raise ArtifactError(f"the vectors of {encoder.encoder_id} were pruned while they were in use; start again")
    return CachedVectors(shards, hashes)
