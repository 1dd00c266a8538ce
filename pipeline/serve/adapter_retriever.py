"""An adapter as a retriever: its encoder for the query, the vectors of its base for what is searched."""

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
        base: the retriever of the encoder that it was made from.
        adapter: encodes the queries.
    """

    base: NeuralBuilder
    adapter: Adapter

    def __call__(self, corpus: Corpus) -> Retriever:
        """Open the base's vectors of the corpus; texts that have none are encoded first.

        Raises:
            MissingPart: the base is not on this machine, and a text has no vector.
        """
        cache = EmbeddingCache(self.base.cache.root, self.base.cache.vector_dtype)
        vectors = chunk_vectors(Deferred(self.base.encoder, self.base.cache.root), cache, corpus.hashed_chunks)
        return Neural(self.base.name, self.adapter.encode, vectors, self.base.vectors)

    @property
    def shares(self) -> str:
        """It fits nothing that another one does."""
        return self.base.name

    @property
    def identity(self) -> dict[str, Any]:
        """All that can change its lists besides texts and depth."""
        return self.base.identity | {"adapter": self.adapter.facts["weights"]}
