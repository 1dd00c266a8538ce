"""Embedding ahead of the search, as shards: each fills the embedding cache with some parts of the chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa

from pipeline.artifacts import Tables, key_of
from pipeline.corpora import view
from pipeline.encoders.cache import EmbeddingCache, default_root
from pipeline.encoders.keys import KeySet, keys_of
from pipeline.encoders.registry import load_encoder
from pipeline.retrievers.neural import HashedTexts, ensure_cached
from pipeline.spread import Pieces, Spread
from schemas.settings import CacheSettings, EncoderSettings


@dataclass(frozen=True)
class Embedding:
    """A shard: the chunks of the parts from `first` up to, not including, `last`. Needs `runner.gpus_per_task`."""

    tables: Tables
    first: int
    last: int
    encoder: EncoderSettings
    cache: CacheSettings

    @property
    def name(self) -> str:
        """See `Shard`."""
        return f"embed {self.encoder.model} parts {self.first} to {self.last - 1}"

    @property
    def place(self) -> str:
        """See `Shard`."""
        parts = [part.sha256 for part in self.tables.parts("chunks")[: self.last]]
        return f"progress/search/{key_of(self.encoder.model_dump(mode='json'), self.first, parts)}"


def embed_all(tables: Tables, encoder: EncoderSettings, cache: CacheSettings, *, rows: int, spread: Spread) -> None:
    """Fill the cache with every chunk's vector, in shards of about `rows` chunks."""
    settled = cache.model_copy(update={"root": cache.root or default_root()})
    for result in spread(embed, [Embedding(tables, *cut, encoder, settled) for cut in _cuts(tables, rows)]):
        for _ in result:
            pass


def embed(shard: Embedding) -> Pieces:
    """Encode what the cache lacks of a shard; there is no result but the cache's."""
    cache = EmbeddingCache(shard.cache.root, shard.cache.dtype)
    ensure_cached(load_encoder(shard.encoder), cache, _own_texts(shard))
    yield from ()


def _cuts(tables: Tables, rows: int) -> list[tuple[int, int]]:
    parts = tables.parts("chunks")
    ends = list(accumulate(part.rows for part in parts))
    full = [number for number in range(1, len(parts)) if ends[number - 1] // rows < ends[number] // rows]
    return list(zip([0, *full], [*full, len(parts)], strict=True))


def _own_texts(shard: Embedding) -> Iterator[HashedTexts]:
    """The shard's texts, but those that an earlier shard has as well: no two shards encode the same."""
    seen, before = KeySet(), sum(part.rows for part in shard.tables.parts("chunks")[: shard.first])
    for batch in shard.tables.batches("chunks", ["content_hash"]) if before else ():
        seen.add(keys_of(batch["content_hash"][:before]))
        before -= batch.num_rows
        if before <= 0:
            break
    for part in shard.tables.parts("chunks")[shard.first : shard.last]:
        rows = shard.tables.part(part)
        mine = rows.take(pa.array(np.flatnonzero(seen.add(keys_of(rows["content_hash"])))))
        yield mine["content_hash"].combine_chunks(), view(mine).combine_chunks()
