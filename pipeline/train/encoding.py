"""Vectors of a run's texts, made ahead of the stage that needs them, as shards: texts that follow one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import key_of
from darklode.pipeline.base.memory.keys import KeyIndex, keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.spread import Pieces, Spread
from darklode.pipeline.retrieve.encoders.caching import HashedTexts, ensure_cached
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.train.sources import TrainingSource
from darklode.schemas.settings import CacheSettings

SHARD_ROWS = 1 << 16
"""Texts in a shard."""


@dataclass(frozen=True)
class Encoding:
    """A shard: a tenant's texts from `first` up to, not including, `last`, in their order.

    Attributes:
        source: has the texts.
        tenant: whose.
        encoder: of the texts.
        cache: takes the vectors.
        stage: that needs them.
        first, last: places of the texts.
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
        """See `Shard`."""
        return f"encode {self.tenant} texts {self.first} to {self.last - 1}"

    @property
    def folder(self) -> str:
        """See `Shard`."""
        return f"progress/{self.stage}/{key_of(self.source.content(), self.tenant, self.first, self.last)}"


def prefetch_vectors(encoding: Encoding, hashes: pa.ChunkedArray, spread: Spread) -> None:
    """Fill the cache with the vectors that a tenant's texts lack, if they lack any.

    Args:
        encoding: a shard of all the texts, whose cache all places reach.
        hashes: of the texts.
        spread: where the encoding is done.
    """
    shards = EmbeddingCache(encoding.cache.root, encoding.cache.dtype).open(encoding.encoder.encoder_id())
    if shards is not None and (shards.find(keys_of(hashes)) >= 0).all():
        return
    starts = range(0, len(hashes), SHARD_ROWS)
    every = [replace(encoding, first=first, last=min(first + SHARD_ROWS, len(hashes))) for first in starts]
    for pieces in spread(encode, every):
        for _ in pieces:
            pass


def encode(shard: Encoding) -> Pieces:
    """Encode what the cache lacks of a shard; there is nothing to give back."""
    cache = EmbeddingCache(shard.cache.root, shard.cache.dtype)
    ensure_cached(Deferred(shard.encoder, shard.cache.root), cache, _own_texts(shard))
    yield from ()


def _own_texts(shard: Encoding) -> Iterator[HashedTexts]:
    """The shard's texts, but those that an earlier shard has as well: no two shards encode the same."""
    seen_keys, row = KeyIndex(), 0
    for hashes, texts in shard.source.iterate_hashes(shard.tenant):
        if row >= shard.last:
            return
        new = np.flatnonzero(seen_keys.add_new(keys_of(hashes))) + row
        own_rows = pa.array(new[(new >= shard.first) & (new < shard.last)] - row)
        yield hashes.take(own_rows), texts.take(own_rows)
        row += len(hashes)
