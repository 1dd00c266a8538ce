"""Neural retrieval: every text encoded once, also after a kill, and found as exact search finds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hash_encoder import HashEncoder, content_hash

from conftest import put
from pipeline.artifacts import Run
from pipeline.corpora import TenantChunks
from pipeline.encoders.cache import EmbeddingCache
from pipeline.encoders.keys import keys_of
from pipeline.errors import ArtifactError
from pipeline.retrievers.blocks import CachedVectors
from pipeline.retrievers.neural import HashedTexts, Neural, ensure_cached, hashed_texts
from schemas.settings import VectorSettings
from schemas.tables import TABLES

CPU = VectorSettings(device="cpu")


def batches(texts: list[str], size: int = 7) -> Iterator[HashedTexts]:
    for start in range(0, len(texts), size):
        part = texts[start : start + size]
        yield pa.array([content_hash(text) for text in part]), pa.array(part)


def texts_of(n: int) -> list[str]:
    return [f"{'word ' * (n % 13)}{number}" for number, n in enumerate(range(n))]


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(str(tmp_path / "cache"), "float32")


def vectors(cache: EmbeddingCache, encoder: HashEncoder, texts: list[str]) -> CachedVectors:
    shards = cache.open(encoder.encoder_id)
    assert shards is not None
    return CachedVectors(shards, [content_hash(text) for text in texts])


def test_a_text_is_encoded_once_and_a_change_encodes_what_changed(cache: EmbeddingCache) -> None:
    texts = texts_of(50)
    encoder = HashEncoder()
    first = ensure_cached(encoder, cache, batches([*texts, *texts[:9]]), batch=16)
    assert (first.chunks, first.encoded, first.hits, first.bytes) == (59, 50, 9, 50 * 16 * 4)
    assert first.seconds > 0
    assert sorted(text for call in encoder.calls for text in call) == sorted(texts)
    texts[3] = "another"
    second = ensure_cached(encoder, cache, batches(texts), batch=16)
    assert (second.encoded, second.hits, encoder.calls[-1]) == (1, 49, ["another"])
    other = HashEncoder(encoder_id="hash-2")
    assert ensure_cached(other, cache, batches(texts)).encoded == 50


def test_batches_are_full_and_shortest_first_and_each_vector_is_its_texts(cache: EmbeddingCache) -> None:
    texts, encoder = texts_of(50), HashEncoder()
    ensure_cached(encoder, cache, batches(texts), batch=16)
    assert [len(call) for call in encoder.calls] == [16, 16, 16, 2]
    assert all(call == sorted(call, key=len) for call in encoder.calls)
    shards = cache.open(encoder.encoder_id)
    assert shards is not None
    numbers = shards.find(keys_of([content_hash(text) for text in texts]))
    assert numbers.tolist() == list(range(50)), "in chunk order"
    np.testing.assert_array_equal(shards.take(numbers), HashEncoder().encode_documents(texts))


def test_it_finds_the_chunk_with_the_querys_words(cache: EmbeddingCache) -> None:
    texts, encoder = ["red apple", "green apple", "blue sky", "green apple"], HashEncoder(64)
    ensure_cached(encoder, cache, batches(texts))
    ours = Neural("hash", encoder, vectors(cache, encoder, texts), CPU)
    hits = ours.search(["green apple", "", "sky"], 3)
    assert hits.rows[:, 0].tolist() == [1, -1, 2]
    assert hits.rows[0, :2].tolist() == [1, 3], "equal texts in the order of their rows"
    assert (ours.name, ours.recall) == ("hash", None)


def test_an_approximate_one_reports_its_recall(cache: EmbeddingCache) -> None:
    pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    texts, encoder = texts_of(300), HashEncoder()
    ensure_cached(encoder, cache, batches(texts))
    settings = VectorSettings(device="cpu", index="hnsw")
    ours = Neural("hash", encoder, vectors(cache, encoder, texts), settings)
    assert ours.search(texts[:20], 5).rows.shape == (20, 5)
    assert ours.recall is not None
    assert ours.recall.queries == 20


class Broken(HashEncoder):
    """Gives a wrong answer to one text."""

    def encode_documents(self, texts: list[str]) -> np.ndarray:  # type: ignore[override]
        good = super().encode_documents(texts)
        good[[text == "bad" for text in texts]] = np.nan
        return good[:-1] if "short" in texts else good


def test_what_came_before_a_bad_vector_is_kept_and_its_text_named(cache: EmbeddingCache) -> None:
    texts = [*texts_of(20), "bad"]
    with pytest.raises(ArtifactError, match=content_hash("bad")):
        ensure_cached(Broken(), cache, batches(texts), batch=10)
    assert ensure_cached(HashEncoder(), cache, batches(texts), batch=10).encoded == 1
    with pytest.raises(ArtifactError, match=r"shape \(2, 16\) for 3 texts"):
        ensure_cached(Broken(), cache, batches(["a", "short", "b"]))
    assert cache.missing("hash-1", [content_hash("a")]).tolist() == [0]


def test_a_tenants_chunks_come_as_the_encoders_read_them(run: Run) -> None:
    columns = {
        "tenant": ["a", "b", "a"],
        "chunk_id": ["1", "2", "3"],
        "doc_id": ["d", "e", "d"],
        "position": [0, 0, 1],
        "start": [0, 0, 4],
        "end": [3, 3, 7],
        "title": ["Title", None, None],
        "heading": [None, None, "Head"],
        "text": ["one", "two", "six"],
        "content_hash": [content_hash(name) for name in "xyz"],
    }
    put(run, "chunks", TABLES["chunks"].rows(columns))
    [(hashes, texts)] = hashed_texts(TenantChunks(run.tables("chunks"), "a"))
    assert hashes.to_pylist() == [content_hash("x"), content_hash("z")]
    assert texts.to_pylist() == ["Title\none", "Head\nsix"]


KILLED = """
import os, signal, sys
import test_neural
from hash_encoder import HashEncoder
from pipeline.encoders import append
from pipeline.encoders.cache import EmbeddingCache
from pipeline.retrievers.neural import ensure_cached
append.FLUSH_SECONDS = 0.0
class Killed(HashEncoder):
    def encode_documents(self, texts):
        if len(self.calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_documents(texts)
texts = test_neural.batches(test_neural.texts_of(100))
ensure_cached(Killed(), EmbeddingCache(sys.argv[1], "float32"), texts, batch=10)
"""


def test_a_kill_costs_the_batch_under_way(tmp_path: Path) -> None:
    here = Path(__file__).parent
    paths = [str(here), str(here.parents[1]), str(here.parents[2])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    again = ensure_cached(HashEncoder(), EmbeddingCache(str(tmp_path), "float32"), batches(texts_of(100)), batch=10)
    assert (again.encoded, again.hits) == (70, 30)
