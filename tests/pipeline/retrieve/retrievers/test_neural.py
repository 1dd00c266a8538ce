"""Neural retrieval: found as exact search finds it, among cached vectors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, ensure_cached
from darklode.pipeline.retrieve.retrievers.blocks import CachedVectors
from darklode.pipeline.retrieve.retrievers.neural import Neural
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.tables import TABLES
from helpers.hash_encoder import HashEncoder, content_hash
from helpers.runs import put

CPU = VectorSearchSettings(device="cpu")


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(str(tmp_path / "cache"), "float32")


def neural(cache: EmbeddingCache, encoder: HashEncoder, texts: list[str], settings: VectorSearchSettings) -> Neural:
    hashes = [content_hash(text) for text in texts]
    ensure_cached(encoder, cache, [(pa.array(hashes), pa.array(texts))])
    shards = cache.open(encoder.encoder_id)
    assert shards is not None
    return Neural("hash", CachedQueries(encoder, cache), CachedVectors(shards, hashes), settings)


def test_it_finds_the_chunk_with_the_querys_words(cache: EmbeddingCache) -> None:
    ours = neural(cache, HashEncoder(64), ["red apple", "green apple", "blue sky", "green apple"], CPU)
    hits = ours.search(["green apple", "", "sky"], 3)
    assert hits.rows[:, 0].tolist() == [1, -1, 2]
    assert hits.rows[0, :2].tolist() == [1, 3], "equal texts in the order of their rows"
    assert (ours.name, ours.recall) == ("hash", None)


def test_an_approximate_one_reports_its_recall(cache: EmbeddingCache) -> None:
    pytest.importorskip("faiss", reason="faiss-cpu is not installed")
    texts = [f"{'word ' * (n % 13)}{n}" for n in range(300)]
    ours = neural(cache, HashEncoder(), texts, VectorSearchSettings(device="cpu", index="hnsw"))
    assert ours.search(texts[:20], 5).rows.shape == (20, 5)
    assert ours.recall is not None
    assert ours.recall.queries == 20


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
    mine = TenantChunks(run.tables("chunks"), "a")
    [(hashes, texts)] = mine.iterate_hashes()
    assert mine.hashes().equals(hashes)
    assert hashes.to_pylist() == [content_hash("x"), content_hash("z")]
    assert texts.to_pylist() == ["Title\none", "Head\nsix"]
