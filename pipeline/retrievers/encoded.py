"""From settings to a neural retriever: what the cache lacks is encoded, then the cache is searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.encoders.cache import EmbeddingCache
from pipeline.encoders.registry import encoder_id, load_encoder
from pipeline.errors import ArtifactError
from pipeline.retrievers.blocks import CachedVectors
from pipeline.retrievers.corpus import Corpus
from pipeline.retrievers.neural import Neural, ensure_cached
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
        """Encode the corpus's chunks that the cache lacks.

        Raises:
            MissingPart: a package, key, model or GPU is missing.
        """
        encoder = load_encoder(self.encoder)
        cache = EmbeddingCache(self.cache.root, self.cache.dtype)
        ensure_cached(encoder, cache, corpus.hashed())
        shards = cache.open(encoder.encoder_id)
        if shards is None:
            raise ArtifactError(f"the embedding cache lost what {self.name} just put there; was it pruned meanwhile?")
        hashes = pa.concat_arrays([hashes for hashes, _ in corpus.hashed()])
        return Neural(self.name, encoder, CachedVectors(shards, hashes), self.vectors)

    @property
    def identity(self) -> dict[str, Any]:
        """All that can change its lists besides texts and depth."""
        return {"encoder": encoder_id(self.encoder), "kept": self.cache.dtype, "index": self.vectors.index}
