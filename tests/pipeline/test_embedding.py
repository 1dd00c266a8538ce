"""Embedding in shards: every chunk's vector is in the cache afterwards, and no text was encoded twice."""

from pathlib import Path

import pytest
from hash_encoder import HashEncoder

import pipeline.embedding
from conftest import execute
from pipeline.artifacts import Output, Run, Stage, Tables
from pipeline.embedding import embed_all
from pipeline.encoders.cache import EmbeddingCache
from pipeline.spread import here
from schemas.settings import CacheSettings, SentenceTransformersEncoder
from schemas.tables import CHUNKS

MODEL = SentenceTransformersEncoder(kind="sentence_transformers", model="any")
PARTS = ["abc", "bcd", "de", "a"]


def written(_tables: Tables, output: Output) -> None:
    for number, letters in enumerate(PARTS):
        n = len(letters)
        ids = [f"{number}{letter}" for letter in letters]
        named = {"chunk_id": ids, "doc_id": ids, "text": list(letters)}
        fixed = {"tenant": ["t"] * n, "position": [0] * n, "start": [0] * n, "end": [1] * n}
        hashes = [hash_of(letter) for letter in letters]
        output.write("chunks", CHUNKS.rows(named | {"content_hash": hashes} | fixed))


def hash_of(letter: str) -> str:
    return f"{ord(letter):032x}"


@pytest.mark.parametrize(("rows", "shards"), [(1, 4), (3, 3), (6, 2), (100, 1)])
def test_shards_fill_the_cache(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, shards: int
) -> None:
    execute(run, Stage("given", 1, (), ("chunks",)), written)
    encoder = HashEncoder()
    loads: list[object] = []

    def load(settings: object) -> HashEncoder:
        loads.append(settings)
        return encoder

    monkeypatch.setattr(pipeline.embedding, "load_encoder", load)
    settings = CacheSettings(root=str(tmp_path / "cache"))
    for _ in range(2):
        embed_all(run.tables("chunks"), MODEL, settings, rows=rows, spread=here)
    assert sorted(text for call in encoder.calls for text in call) == list("abcde")
    assert len(loads) == 2 * shards
    cache = EmbeddingCache(settings.root, settings.dtype)
    assert not len(cache.missing(encoder.encoder_id, [hash_of(letter) for letter in "abcde"]))
