"""Fill the embedding cache ahead of a stage, in shards of consecutive texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import key_of
from darklode.pipeline.base.memory.keys import KeyIndex, keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.sharding import Pieces, Spread
from darklode.pipeline.retrieve.encoders.caching import HashedTexts, ensure_cached
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.settings import CacheSettings

SHARD_ROWS = 1 << 16
"""Texts per shard."""


@dataclass(frozen=True)
class Encoding:
    """A shard of the encoding work: a tenant's texts from `first` up to but excluding `last`.

    Attributes:
        source: the run that has the texts.
        tenant: tenant whose texts are encoded.
        encoder: the encoder.
        cache: the embedding cache that receives the vectors.
        stage: name of the stage that needs them.
        first, last: range of text numbers, in the order of the source.
    """

    source: TrainingSource
    tenant: str
    encoder: EncoderKind
    cache: CacheSettings
    stage: str
    first: int = 0
    last: int = 0

    @property
    def name(self) -> str:
        return f"encode {self.tenant} texts {self.first} to {self.last - 1}"

    @property
    def folder(self) -> str:
        return f"progress/{self.stage}/{key_of(self.source.content(), self.tenant, self.first, self.last)}"


def prefetch_vectors(encoding: Encoding, hashes: pa.ChunkedArray, spread: Spread) -> None:
    """Encode the texts of a tenant that are missing in the cache.

    Args:
        encoding: a shard of all the texts; its cache must be reachable by all workers.
        hashes: content hash of each text, in the order of the source.
        spread: where the encoding runs.
    """
    shards = EmbeddingCache(encoding.cache.root, encoding.cache.vector_dtype).open(encoding.encoder.encoder_id())
    if shards is not None and (shards.find(keys_of(hashes)) >= 0).all():
        return
    starts = range(0, len(hashes), SHARD_ROWS)
    shards_to_encode = [replace(encoding, first=first, last=min(first + SHARD_ROWS, len(hashes))) for first in starts]
    for pieces in spread(encode, shards_to_encode):
        for _ in pieces:  # the work is done while iterating; there are no results
            pass


def encode(shard: Encoding) -> Pieces:
    """Encode the missing texts of a shard; there is no result besides the cache."""
    cache = EmbeddingCache(shard.cache.root, shard.cache.vector_dtype)
    ensure_cached(Deferred(shard.encoder, shard.cache.root), cache, _own_texts(shard))
    yield from ()


def _own_texts(shard: Encoding) -> Iterator[HashedTexts]:
    """The shard's texts without those that also occur in an earlier shard, so that none is encoded twice."""
    seen_keys = KeyIndex()
    first_row = 0  # number of the first text of the current table
    for hashes, texts in shard.source.iterate_hashes(shard.tenant):
        if first_row >= shard.last:
            return
        new_texts = np.flatnonzero(seen_keys.add_new(keys_of(hashes))) + first_row
        in_shard = (new_texts >= shard.first) & (new_texts < shard.last)
        own_rows = pa.array(new_texts[in_shard] - first_row)
        yield hashes.take(own_rows), texts.take(own_rows)
        first_row += len(hashes)
