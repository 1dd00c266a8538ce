"""Encoding into the cache: every text without a vector, once, losing little on a failure."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import KeyIndex, keys_of
from darklode.pipeline.base.memory.shards import Shards
from darklode.pipeline.base.memory.vectors import EmbeddingCache, VectorWriter
from darklode.pipeline.base.models.devices import utilisation
from darklode.pipeline.base.types import Keys
from darklode.pipeline.retrieve.encoders.port import ModelEncoder

HashedTexts = tuple[pa.Array, pa.Array]
"""Content hashes (32 hex digits) and their texts."""

TEXTS_AT_ONCE = 1 << 13
"""Texts passed to the encoder at once: enough to sort by length and to keep many requests in flight."""


@dataclass(frozen=True)
class Work:
    """Effort of encoding.

    Attributes:
        texts: texts seen.
        encoded: texts passed to the encoder; the others had a vector, or an equal text had.
        seconds: duration of encoding.
        bytes: size of the new vectors as stored.
        cost: money, by the encoder's price.
        gpu: mean GPU utilization, 0 to 1; null if unknown.
    """

    texts: int = 0
    encoded: int = 0
    seconds: float = 0.0
    bytes: int = 0
    cost: float = 0.0
    gpu: float | None = None

    def __add__(self, other: Work) -> Work:
        return Work(
            self.texts + other.texts,
            self.encoded + other.encoded,
            self.seconds + other.seconds,
            self.bytes + other.bytes,
            self.cost + other.cost,
            _weighted_mean((self.gpu, self.seconds), (other.gpu, other.seconds)),
        )


def _weighted_mean(*parts: tuple[float | None, float]) -> float | None:
    measured = [(share, seconds) for share, seconds in parts if share is not None and seconds]
    total_seconds = sum(seconds for _, seconds in measured)
    return sum(share * seconds for share, seconds in measured) / total_seconds if measured else None


def cache_id(encoder_id: str, *, queries: bool = False) -> str:
    """Id under which vectors are cached; queries have their own, because their prompt differs."""
    return f"{encoder_id} queries" if queries else encoder_id


def ensure_cached(
    encoder: ModelEncoder, cache: EmbeddingCache, texts: Iterable[HashedTexts], *, queries: bool = False
) -> Work:
    """Run all of `encode_missing`; returns the total effort."""
    return reduce(add, encode_missing(encoder, cache, texts, queries=queries), Work())


def encode_missing(
    encoder: ModelEncoder,
    cache: EmbeddingCache,
    texts: Iterable[HashedTexts],
    *,
    queries: bool = False,
    at_once: int = TEXTS_AT_ONCE,
) -> Iterator[Work]:
    """Encode texts without a cached vector, each distinct hash once; yields the effort of each round.

    A `Deferred` encoder is not loaded if nothing is missing. A kill loses the batches in flight and at most ten
    seconds of finished work.

    Args:
        encoder: encoder of the texts.
        cache: receives the vectors.
        texts: batches of hashes and texts, each read once.
        queries: encode with the query prompt.
        at_once: texts passed to the encoder at once.

    Raises:
        ArtifactError: the encoder gave an invalid vector; earlier ones are kept.
        DarklodeError: the encoder failed permanently; earlier vectors are kept.
    """
    name = cache_id(encoder.encoder_id, queries=queries)
    shards, seen_keys, texts_seen = cache.open(name), KeyIndex(), 0
    waiting: HashedTexts = (pa.array([], pa.string()), pa.array([], pa.string()))
    with ExitStack() as stack:
        rounds = _Rounds(encoder, cache, name, queries, stack)
        for hashes, batch in texts:
            new = _select_new(shards, seen_keys, hashes)
            texts_seen += len(hashes)
            waiting = _concat_arrays(waiting[0], hashes.take(new)), _concat_arrays(waiting[1], batch.take(new))
            while len(waiting[0]) >= at_once:
                yield rounds.encode(waiting[0][:at_once], waiting[1][:at_once], texts_seen)
                waiting, texts_seen = (waiting[0][at_once:], waiting[1][at_once:]), 0
        yield rounds.encode(*waiting, texts_seen)


class _Rounds:
    """Rounds of encoding; the writer is opened with the first texts, because that loads the encoder."""

    def __init__(
        self, encoder: ModelEncoder, cache: EmbeddingCache, name: str, queries: bool, stack: ExitStack
    ) -> None:
        self._encoder, self._cache, self._name, self._queries = encoder, cache, name, queries
        self._stack = stack
        self._writer: VectorWriter | None = None

    def encode(self, hashes: pa.Array, texts: pa.Array, n_seen: int) -> Work:
        if not len(hashes):
            return Work(texts=n_seen)
        start_time, cost_before, shares, size = time.perf_counter(), self._encoder.cost, [], 0
        names = hashes.to_pylist()
        with closing(self._encoder.encode_batches(texts.to_pylist(), queries=self._queries, ids=names)) as batches:
            for places, vectors in batches:
                self._open().add(hashes.take(pa.array(places)), vectors)
                size += vectors.size * np.dtype(self._cache.dtype).itemsize
                shares.append(utilisation())
        seconds = time.perf_counter() - start_time
        measured_shares = [share for share in shares if share is not None]
        gpu = sum(measured_shares) / len(measured_shares) if measured_shares else None
        return Work(n_seen, len(hashes), seconds, size, self._encoder.cost - cost_before, gpu)

    def _open(self) -> VectorWriter:
        if self._writer is None:
            self._writer = self._stack.enter_context(self._cache.writer(self._name, self._encoder.dimensions))
        return self._writer


def _concat_arrays(first: pa.Array, second: pa.Array) -> pa.Array:
    return pa.concat_arrays([first, second.cast(pa.string())])


def _select_new(shards: Shards | None, seen_keys: KeyIndex, hashes: pa.Array) -> pa.Array:
    keys = keys_of(hashes)
    is_missing = np.ones(len(keys), dtype=np.bool_) if shards is None else shards.find(keys) < 0
    is_missing[is_missing] = seen_keys.add_new(keys[is_missing])
    return pa.array(np.flatnonzero(is_missing))


def hash_query(text: str) -> str:
    """SHA-256 of a query's text: 32 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def hash_queries(texts: Sequence[str]) -> HashedTexts:
    """Queries with the SHA-256 of their text; blank queries are left out."""
    non_empty = [text for text in texts if text.strip()]
    hashes = [hash_query(text) for text in non_empty]
    return pa.array(hashes, pa.string()), pa.array(non_empty, pa.string())


class CachedTexts:
    """Vectors of texts from the cache; missing ones are encoded first.

    Shards stay open between calls and are reopened only after a text was missing.

    Args:
        encoder: not loaded if nothing is missing.
        cache: cache of the vectors.
        queries: encode with the query prompt.
    """

    def __init__(self, encoder: ModelEncoder, cache: EmbeddingCache, *, queries: bool = False) -> None:
        self._encoder, self._cache, self._queries = encoder, cache, queries
        self._name = cache_id(encoder.encoder_id, queries=queries)
        self._shards: Shards | None = None

    @property
    def dimensions(self) -> int:
        """Length of a vector; loads the encoder if the cache has none of its vectors."""
        return self._shards.layout.dimensions if self._shards else self._encoder.dimensions

    def __call__(self, hashed: HashedTexts) -> NDArray[np.float32]:
        """Vectors, shape (len(texts), dimensions); no text may be blank.

        Raises:
            ArtifactError: vectors were pruned while in use.
        """
        keys = keys_of(hashed[0])
        self._shards = self._shards or self._cache.open(self._name)
        numbers = self._find(keys)
        if (numbers < 0).any():
            ensure_cached(self._encoder, self._cache, [hashed], queries=self._queries)
            self._shards = self._cache.open(self._name)
            numbers = self._find(keys)
        if (numbers < 0).any():
            raise ArtifactError(f"vectors of {self._name} were pruned while they were in use; start again")
        if self._shards is None:
            return np.zeros((0, self.dimensions), np.float32)
        return np.asarray(self._shards.take(numbers), np.float32)

    def _find(self, keys: Keys) -> NDArray[np.int64]:
        return self._shards.find(keys) if self._shards else np.full(len(keys), -1)


class CachedQueries:
    """Vectors of queries from the cache, see `CachedTexts`.

    Args:
        encoder: not loaded if nothing is missing.
        cache: cache of the vectors.
    """

    def __init__(self, encoder: ModelEncoder, cache: EmbeddingCache) -> None:
        self._texts = CachedTexts(encoder, cache, queries=True)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors, shape (len(texts), dimensions); zero for a blank query.

        Raises:
            ArtifactError: vectors were pruned while in use.
        """
        non_empty_vectors = self._texts(hash_queries(texts))
        vectors = np.zeros((len(texts), non_empty_vectors.shape[1]), np.float32)
        vectors[[bool(text.strip()) for text in texts]] = non_empty_vectors
        return vectors
