"""Fill the vector cache before the search, in shards of chunk parts, and one shard of queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Tables, key_of
from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.memory.keys import KeyIndex, keys_of
from darklode.pipeline.base.memory.parts import resolve_cache
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.sharding import Pieces, Spread, cuts, here
from darklode.pipeline.retrieve.encoders.caching import HashedTexts, Work, encode_missing, hash_queries
from darklode.pipeline.retrieve.encoders.deferred import Deferred, release
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.schemas.settings import CacheSettings

SHARD_ROWS = 1 << 16
"""Approximate number of chunks per shard."""


@dataclass(frozen=True)
class EmbeddingShard:
    """The chunks of the parts from `first` up to but excluding `last`; without parts, the queries."""

    tables: Tables
    first: int
    last: int
    encoder: EncoderKind
    cache: CacheSettings

    @property
    def queries(self) -> bool:
        """Whether this is the shard of queries."""
        return self.first == self.last

    @property
    def name(self) -> str:
        content = "queries" if self.queries else f"parts {self.first} to {self.last - 1}"
        return f"embed {self.encoder.model} {content}"

    @property
    def folder(self) -> str:
        parts = self.tables.parts("queries") if self.queries else self.tables.parts("chunks")[: self.last]
        settings = [section.model_dump(mode="json") for section in (self.encoder, self.cache)]
        return f"progress/search/{key_of(settings, self.first, [part.sha256 for part in parts])}"


def embed_all(
    tables: Tables,
    output: Output,
    encoders: Mapping[str, EncoderKind],
    cache: CacheSettings,
    *,
    rows: int = SHARD_ROWS,
    spread: Spread = here,
) -> None:
    """Fill the cache with the vectors of all chunks and queries, one encoder after the other.

    Args:
        tables: `queries` and `chunks`.
        output: receives progress and cost; the fact `embedding` has each encoder's `Work`.
        encoders: encoders by the names of their retrievers.
        cache: where vectors are kept.
        rows: approximate number of chunks per shard.
        spread: where the shards run.
    """
    parts, texts, work_by_encoder = tables.parts("chunks"), tables.rows("chunks") + tables.rows("queries"), {}
    ranges = [*cuts([part.rows for part in parts], rows), (0, 0)]
    for name, encoder in encoders.items():
        work_by_encoder[name] = Work()
        for result in spread(embed, [EmbeddingShard(tables, *cut, encoder, resolve_cache(cache)) for cut in ranges]):
            for piece in result:
                work_by_encoder[name] += Work(**piece.to_pylist()[0])
                output.progress(work_by_encoder[name].texts, texts, _note(name, work_by_encoder[name]))
        release()
    output.facts["embedding"] = {name: asdict(work) for name, work in work_by_encoder.items()}


def _note(name: str, work: Work) -> str:
    return f"embedding for {name}" + (f", {work.cost:.2f} spent" if work.cost else "")


def embed(shard: EmbeddingShard) -> Pieces:
    """Encode the missing texts of a shard; the result is rows of `Work`."""
    encoder = Deferred(shard.encoder, shard.cache.root)
    cache = EmbeddingCache(shard.cache.root, shard.cache.vector_dtype)
    texts = _query_texts(shard.tables) if shard.queries else _own_texts(shard)
    for work in encode_missing(encoder, cache, texts, queries=shard.queries):
        yield pa.Table.from_pylist([asdict(work)])


def _query_texts(tables: Tables) -> Iterator[HashedTexts]:
    return (hash_queries(batch["text"].to_pylist()) for batch in tables.batches("queries", ["text"]))


def _own_texts(shard: EmbeddingShard) -> Iterator[HashedTexts]:
    """The shard's texts without those that also occur in an earlier shard, so that none is encoded twice."""
    seen_keys, before = KeyIndex(), sum(part.rows for part in shard.tables.parts("chunks")[: shard.first])
    for batch in shard.tables.batches("chunks", ["content_hash"]) if before else ():
        seen_keys.add_new(keys_of(batch["content_hash"][:before]))
        before -= batch.num_rows
        if before <= 0:
            break
    for part in shard.tables.parts("chunks")[shard.first : shard.last]:
        rows = shard.tables.part(part)
        own_rows = rows.take(pa.array(np.flatnonzero(seen_keys.add_new(keys_of(rows["content_hash"])))))
        yield own_rows["content_hash"].combine_chunks(), view(own_rows).combine_chunks()
