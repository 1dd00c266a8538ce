"""Encoding into the cache: every text once, also after a failure or a kill, and nothing loaded for nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders import caching
from darklode.pipeline.retrieve.encoders.caching import (
    CachedQueries,
    HashedTexts,
    Work,
    cache_id,
    encode_missing,
    ensure_cached,
    hash_queries,
)
from darklode.pipeline.retrieve.encoders.port import Vectors
from helpers.hash_encoder import HashEncoder, content_hash
from helpers.runs import PYTHONPATH


def batches(texts: list[str], size: int = 7) -> Iterator[HashedTexts]:
    for start in range(0, len(texts), size):
        part = texts[start : start + size]
        yield pa.array([content_hash(text) for text in part]), pa.array(part)


def texts_of(n: int) -> list[str]:
    return [f"{'word ' * (number % 13)}{number}" for number in range(n)]


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(str(tmp_path / "cache"), "float32")


def encoded(encoder: HashEncoder) -> list[str]:
    return sorted(text for call in encoder.calls for text in call)


def test_a_text_is_encoded_once_and_a_change_encodes_what_changed(
    cache: EmbeddingCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching, "utilisation", lambda: None)
    texts, encoder = texts_of(50), HashEncoder()
    first = ensure_cached(encoder, cache, batches([*texts, *texts[:9]]))
    assert (first.texts, first.encoded, first.bytes, first.gpu) == (59, 50, 50 * 16 * 4, None)
    assert first.seconds > 0
    assert encoded(encoder) == sorted(texts)
    texts[3] = "another"
    second = ensure_cached(encoder, cache, batches(texts))
    assert (second.texts, second.encoded, encoder.calls[-1]) == (50, 1, ["another"])
    assert ensure_cached(HashEncoder(encoder_id="hash-2"), cache, batches(texts)).encoded == 50


def test_rounds_are_full_and_each_vector_is_its_texts(cache: EmbeddingCache) -> None:
    texts, encoder = texts_of(50), HashEncoder()
    rounds = list(encode_missing(encoder, cache, batches(texts), at_once=16))
    assert [work.encoded for work in rounds] == [16, 16, 16, 2]
    assert sum(work.texts for work in rounds) == 50
    shards = cache.open(encoder.encoder_id)
    assert shards is not None
    numbers = shards.find(keys_of([content_hash(text) for text in texts]))
    np.testing.assert_array_equal(shards.take(numbers), HashEncoder().encode_documents(texts))


def test_work_adds_up() -> None:
    one, two = Work(3, 2, 1.0, 10, 0.5, 0.25), Work(1, 1, 3.0, 5, 0.25, 0.75)
    assert one + two == Work(4, 3, 4.0, 15, 0.75, 0.625)
    assert (one + Work(1, 1, 9.0, 5)).gpu == 0.25, "unknown is left out, not 0"
    assert (Work() + Work()).gpu is None


class Broken(HashEncoder):
    """Gives a wrong answer to one text."""

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:  # type: ignore[type-arg]
        good = super().encode_documents(texts)
        good[[text == "bad" for text in texts]] = np.nan
        return good[:-1] if "short" in texts else good


def test_what_came_before_a_bad_vector_is_kept_and_its_text_named(cache: EmbeddingCache) -> None:
    texts = ["bad", *texts_of(20)]
    with pytest.raises(ArtifactError, match=content_hash("bad")):
        ensure_cached(Broken(), cache, batches(texts))
    assert ensure_cached(HashEncoder(), cache, batches(texts)).encoded == 1, "all but the text of the last batch"
    with pytest.raises(ArtifactError, match=r"shape \(2, 16\) for 3 texts"):
        ensure_cached(Broken(), cache, batches(["a", "short", "b"]))
    assert cache.missing("hash-1", [content_hash("a")]).tolist() == [0]


class Failing(HashEncoder):
    """Goes on for three batches."""

    def encode_batches(
        self, texts: Sequence[str], *, queries: bool = False, ids: Sequence[str] | None = None
    ) -> Generator[Vectors, None, None]:
        for number, found in enumerate(super().encode_batches(texts, queries=queries, ids=ids)):
            if number == 3:
                raise ConnectionError("the server is gone")
            yield found


def test_what_came_before_a_failure_is_kept(cache: EmbeddingCache) -> None:
    with pytest.raises(ConnectionError):
        ensure_cached(Failing(), cache, batches(texts_of(100)))
    assert ensure_cached(HashEncoder(), cache, batches(texts_of(100))).encoded == 70


KILLED = """
import os, signal, sys
import test_caching
from helpers.hash_encoder import HashEncoder
from darklode.pipeline.base.memory import vectors as append
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.caching import ensure_cached
append.FLUSH_SECONDS = 0.0
class Killed(HashEncoder):
    def encode_documents(self, texts):
        if len(self.calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_documents(texts)
ensure_cached(Killed(), EmbeddingCache(sys.argv[1], "float32"), test_caching.batches(test_caching.texts_of(100)))
"""


def test_a_kill_costs_the_batch_under_way(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([PYTHONPATH, str(Path(__file__).parent)])}
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    again = ensure_cached(HashEncoder(), EmbeddingCache(str(tmp_path), "float32"), batches(texts_of(100)))
    assert (again.texts, again.encoded) == (100, 70)


def test_queries_lie_apart_and_are_encoded_once(cache: EmbeddingCache) -> None:
    encoder, asked = HashEncoder(), ["green apple", " ", "blue", "green apple"]
    found = CachedQueries(encoder, cache)(asked)
    np.testing.assert_array_equal(found, HashEncoder().encode_queries(["green apple", "", "blue", "green apple"]))
    shards = cache.open(cache_id(encoder.encoder_id, queries=True))
    assert shards is not None
    assert len(shards) == 2
    assert cache.open(encoder.encoder_id) is None
    assert ensure_cached(encoder, cache, [hash_queries(asked)], queries=True).encoded == 0
    other = EmbeddingCache(cache.parts.store.url + "-other", "float32")
    assert CachedQueries(encoder, other)([""]).tolist() == [[0.0] * 16]


def test_the_cache_is_opened_again_only_after_something_was_missing(
    cache: EmbeddingCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = EmbeddingCache.open
    monkeypatch.setattr(EmbeddingCache, "open", lambda self, name: opened.append(name) or real(self, name))
    encoder = HashEncoder()
    queries = CachedQueries(encoder, cache)
    queries(["green apple", "blue"])
    first = len(opened)
    for _ in range(3):
        np.testing.assert_array_equal(queries(["blue"]), HashEncoder().encode_queries(["blue"]))
    assert len(opened) == first
    CachedQueries(encoder, cache)(["red"])
    np.testing.assert_array_equal(queries(["red", "blue"]), HashEncoder().encode_queries(["red", "blue"]))
    assert len(opened) > first


def test_pruned_query_vectors_are_made_again(cache: EmbeddingCache) -> None:
    encoder = HashEncoder()
    queries = CachedQueries(encoder, cache)
    queries(["blue"])
    cache.prune()
    np.testing.assert_array_equal(queries(["blue", "red"]), HashEncoder().encode_queries(["blue", "red"]))
