"""Dense retrieval with a real model: chunks encoded once into the cache, queries searched exactly against it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.corpora import TenantChunks, view
from pipeline.encoders.append import Writer
from pipeline.encoders.cache import EmbeddingCache
from pipeline.encoders.keys import KeySet, keys_of
from pipeline.encoders.port import Encoder
from pipeline.encoders.shards import Shards
from pipeline.retrievers.approximate import Approximate, Recall
from pipeline.retrievers.blocks import CachedVectors
from pipeline.retrievers.exact import exact_search
from pipeline.retrievers.port import Hits
from schemas.settings import VectorSettings

HashedTexts = tuple[pa.Array, pa.Array]
"""Content hashes (32 hex digits) and the texts that they stand for."""


@dataclass(frozen=True)
class Encoded:
    """What making vectors took: chunks seen, texts encoded, chunks served by the cache or by an equal text."""

    chunks: int = 0
    encoded: int = 0
    hits: int = 0
    seconds: float = 0.0
    bytes: int = 0


def hashed_texts(chunks: TenantChunks) -> Iterator[HashedTexts]:
    """A tenant's chunks as the encoders read them, batch by batch."""
    for batch in chunks.scan(["title", "heading", "text", "content_hash"]):
        rows = pa.Table.from_batches([batch])
        yield rows["content_hash"].combine_chunks(), view(rows).combine_chunks()


def ensure_cached(encoder: Encoder, cache: EmbeddingCache, chunks: Iterable[HashedTexts], batch: int = 1024) -> Encoded:
    """Encode the texts that the cache has no vector for, each distinct hash once.

    Args:
        encoder: makes the vectors.
        cache: keeps them; a kill costs the batch under way and at most ten seconds of work before it.
        chunks: batches of hashes and texts, each read once.
        batch: texts given to the encoder at a time, shortest first, so that its forward passes waste little.

    Raises:
        ArtifactError: the encoder gave a vector that cannot be kept; what came before is kept.
    """
    began = time.perf_counter()
    shards = cache.open(encoder.encoder_id)
    seen, count = KeySet(), Encoded()
    with cache.writer(encoder.encoder_id, encoder.dimensions) as writer:
        waiting: HashedTexts = (pa.array([], pa.string()), pa.array([], pa.string()))
        for hashes, texts in chunks:
            new = _new(shards, seen, hashes)
            count = replace(
                count,
                chunks=count.chunks + len(hashes),
                encoded=count.encoded + len(new),
                hits=count.hits + len(hashes) - len(new),
            )
            waiting = _joined(waiting[0], hashes.take(new)), _joined(waiting[1], texts.take(new))
            while len(waiting[0]) >= batch:
                _encode(encoder, writer, waiting[0][:batch], waiting[1][:batch])
                waiting = waiting[0][batch:], waiting[1][batch:]
        _encode(encoder, writer, *waiting)
    return replace(count, seconds=time.perf_counter() - began, bytes=writer.written)


def _joined(first: pa.Array, second: pa.Array) -> pa.Array:
    return pa.concat_arrays([first, second.cast(pa.string())])


def _new(shards: Shards | None, seen: KeySet, hashes: pa.Array) -> pa.Array:
    keys = keys_of(hashes)
    wanted = np.ones(len(keys), dtype=np.bool_) if shards is None else shards.find(keys) < 0
    wanted[wanted] = seen.add(keys[wanted])
    return pa.array(np.flatnonzero(wanted))


def _encode(encoder: Encoder, writer: Writer, hashes: pa.Array, texts: pa.Array) -> None:
    if not len(hashes):
        return
    order = np.argsort(pc.binary_length(texts).to_numpy(), kind="stable")
    vectors = encoder.encode_documents(texts.take(pa.array(order)).to_pylist())
    if len(vectors) == len(order):  # back into chunk order: search then reads the cache in one sweep
        vectors = vectors[np.argsort(order)]
    writer.add(hashes, vectors)


class Neural:
    """Nearest neighbours of the query's vector by inner product.

    Args:
        name: the retriever's name in rankings.
        encoder: encodes the queries; the same that made `vectors`.
        vectors: the chunks' vectors in the embedding cache.
        settings: exact or approximate, device and memory.

    Raises:
        MissingPart: the settings name an approximate index and faiss is not installed.
    """

    def __init__(self, name: str, encoder: Encoder, vectors: CachedVectors, settings: VectorSettings) -> None:
        self.name = name
        self._encoder, self._vectors, self._settings = encoder, vectors, settings
        self._approximate = None if settings.index == "exact" else Approximate(vectors, settings)

    @property
    def recall(self) -> Recall | None:
        """Of the latest approximate search against an exact one; None where the search is exact."""
        return self._approximate.recall if self._approximate else None

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A query whose vector is zero has no hits."""
        encoded = self._encoder.encode_queries(queries)
        if self._approximate:
            return self._approximate.search(encoded, depth)
        return exact_search(encoded, self._vectors, depth, self._settings)
