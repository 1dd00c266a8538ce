"""An adapter as a retriever: queries by the adapter, texts by the vectors of its base encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.neural import Neural, NeuralBuilder, chunk_vectors
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.pipeline.train.release.adapter import Adapter


@dataclass(frozen=True)
class AdaptedBuilder:
    """Builds the retriever of an adapter.

    Attributes:
        base: builds the retriever of its base encoder.
        adapter: encodes the queries.
    """

    base: NeuralBuilder
    adapter: Adapter

    def __call__(self, corpus: Corpus) -> Retriever:
        """Open the base's vectors of the corpus; missing ones are computed first.

        Raises:
            ArtifactError: the adapter's files do not match its record.
            MissingPart: a text has no vector, and the base encoder is not available.
        """
        self.adapter.require_intact()
        cache = EmbeddingCache(self.base.cache.root, self.base.cache.vector_dtype)
        vectors = chunk_vectors(Deferred(self.base.encoder, self.base.cache.root), cache, corpus.hashed_chunks)
        return Neural(self.base.name, self.adapter.encode, vectors, self.base.vectors)

    @property
    def shares(self) -> str:
        """Nothing is shared with other retrievers."""
        return self.base.name

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change its results besides texts and depth."""
        return self.base.identity | {"adapter": self.adapter.facts["weights"]}
