"""From settings to a neural retriever: what the cache lacks is encoded, then the cache is searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.encoders.cache import EmbeddingCache
from pipeline.encoders.caching import CachedQueries, ensure_cached
from pipeline.encoders.deferred import Deferred
from pipeline.encoders.keys import keys_of
from pipeline.encoders.port import ModelEncoder
from pipeline.encoders.registry import encoder_id
from pipeline.errors import ArtifactError
from pipeline.retrievers.blocks import CachedVectors
from pipeline.retrievers.corpus import Corpus, HashedChunks
from pipeline.retrievers.neural import Neural
from pipeline.retrievers.port import Retriever
from schemas.settings import CacheSettings, EncoderSettings, VectorSettings


@dataclass(frozen=True)
class Encoded:
    """Builds a neural retriever; plain data, so that it can travel to another machine.

    Attributes:
        name: the retriever's name in rankings.
        encoder: what encodes chunks and queries.
        vectors: how the cache is searched.
        cache: where vectors are kept.
    """

    name: str
    encoder: EncoderSettings
    vectors: VectorSettings
    cache: CacheSettings

    def __call__(self, corpus: Corpus) -> Retriever:
        """Open the corpus's vectors; chunks that have none are encoded first.

        Raises:
            MissingPart: a package, key, model or GPU is missing.
        """
        encoder, cache = Deferred(self.encoder), EmbeddingCache(self.cache.root, self.cache.dtype)
        found = _vectors(encoder, cache, corpus.hashed)
        return Neural(self.name, CachedQueries(encoder, cache), found, self.vectors)

    @property
    def identity(self) -> dict[str, Any]:
        """All that can change its lists besides texts and depth."""
        return {"encoder": encoder_id(self.encoder), "kept": self.cache.dtype, "index": self.vectors.index}


def _vectors(encoder: ModelEncoder, cache: EmbeddingCache, chunks: HashedChunks) -> CachedVectors:
    hashes = chunks.hashes()
    shards = cache.open(encoder.encoder_id)
    if shards is None or (shards.find(keys_of(hashes)) < 0).any():
        ensure_cached(encoder, cache, chunks.hashed())
        shards = cache.open(encoder.encoder_id)
    if shards is None:
        raise ArtifactError(f"the vectors of {encoder.encoder_id} were pruned while they were in use; start again")
    return CachedVectors(shards, hashes)
