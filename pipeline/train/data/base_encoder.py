"""The encoder to adapt, with the head that training starts from, and its cached vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, CachedTexts, ensure_cached
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.retrievers.blocks import CachedVectors
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import FrozenIndex
from darklode.pipeline.train.types import Layers
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings


@dataclass(frozen=True)
class InitialHead:
    """The released adapter that a warm start continues.

    Attributes:
        url: the adapter's folder.
        weights: hash of its files.
        layers: layers of its head; None: the adapter changes no vector.
        learned: queries that it and its predecessors were trained on; its successors must not be tested with them.
    """

    url: str
    weights: str
    layers: Layers | None
    learned: Sequence[str]


@dataclass(frozen=True)
class BaseEncoder:
    """The encoder to adapt, with its cached vectors.

    Attributes:
        encoder: settings of the encoder.
        cache: the embedding cache.
        search: settings of the exact search.
        sources: the runs; their texts are read only if a vector is missing.
        start: head that training starts from; None: training starts from the encoder itself.
    """

    encoder: EncoderKind
    cache: CacheSettings
    search: VectorSearchSettings
    sources: tuple[TrainingSource, ...]
    start: InitialHead | None = None

    @cached_property
    def model(self) -> Deferred:
        """The encoder model, loaded once and only if a vector is missing."""
        return Deferred(self.encoder, self.cache.root)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a vector."""
        start_key = {"begun with": self.start.weights} if self.start else {}
        return {"encoder": self.encoder.encoder_id(), "kept": self.cache.vector_dtype} | start_key

    def queries(self, texts: Sequence[str]) -> Floats:
        """Base vectors of queries, shape (len(texts), dimensions)."""
        cache = EmbeddingCache(self.cache.root, self.cache.vector_dtype)
        return CachedQueries(self.model, cache)(texts)

    def documents(self, hashes: pa.Array, texts: pa.Array) -> Floats:
        """Vectors of texts by content hash, shape (len(texts), dimensions); missing ones are computed."""
        return CachedTexts(self.model, EmbeddingCache(self.cache.root, self.cache.vector_dtype))((hashes, texts))

    def open(self, tables: Tables) -> FrozenIndex:
        """Open the vectors of all texts of `adaptation_texts`."""
        return self.index_of_texts(tables.read("adaptation_texts"))

    def index_of_texts(self, texts: pa.Table) -> FrozenIndex:
        """Open the vectors of rows of `adaptation_texts`; missing ones are encoded first."""
        encoder, cache = self.model, EmbeddingCache(self.cache.root, self.cache.vector_dtype)
        tenant = texts["tenant"][0].as_py()
        shards = cache.open(encoder.encoder_id)
        if shards is None or (shards.find(keys_of(texts["content_hash"])) < 0).any():
            for source in self.sources:
                ensure_cached(encoder, cache, source.iterate_hashes(tenant))
            shards = cache.open(encoder.encoder_id)
        if shards is None:
            raise ArtifactError(f"the vectors of {encoder.encoder_id} were pruned while they were in use; start again")
        texts_by_run = [texts.filter(pc.equal(texts["index"], number)) for number in range(len(self.sources))]
        texts_by_run = [run_texts for run_texts in texts_by_run if run_texts.num_rows]
        indexes = [CachedVectors(shards, run_texts["content_hash"]) for run_texts in texts_by_run]
        return FrozenIndex(indexes, pa.concat_tables(texts_by_run), CachedQueries(encoder, cache), self.search)
