"""Embedding in shards: every chunk's vector is in the cache afterwards, and no text was encoded twice."""

from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.embedding import embed_all
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.schemas.settings import CacheSettings
from darklode.schemas.tables import CHUNKS
from helpers.hash_encoder import HashEncoder
from helpers.runs import execute, put
from helpers.searching import queries

MODEL = SentenceTransformersSettings(model="any")
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
    put(run, "queries", queries([("t", "q0", "ask"), ("t", "q1", "again"), ("u", "q0", "ask")]))
    encoder, loads = HashEncoder(), []
    monkeypatch.setattr(SentenceTransformersSettings, "load", lambda self, _root: loads.append(self) or encoder)
    monkeypatch.setattr(SentenceTransformersSettings, "encoder_id", lambda _self: encoder.encoder_id)
    settings, told = CacheSettings(root=str(tmp_path / "cache")), []

    def work(tables: Tables, output: Output) -> None:
        embed_all(tables, output, {"ours": MODEL}, settings, rows=rows, spread=counted)

    def counted(do: Any, given: Any) -> Any:
        assert len(given) == shards + 1
        return map(do, given)

    for encoded in (7, 0):
        stage = Stage("embed", encoded, ("chunks", "queries"), ())
        manifest = run.execute(run.plan(stage, {}), work, lambda *said: told.append(said))
        assert manifest.facts["embedding"]["ours"]["encoded"] == encoded
        assert told[-1] == (5 + 3, 9 + 3, "embedding for ours")
    assert sorted(text for call in encoder.calls for text in call) == list("abcde")
    assert len(loads) == 1
    cache = EmbeddingCache(settings.root, settings.vector_dtype)
    assert not len(cache.missing(encoder.encoder_id, [hash_of(letter) for letter in "abcde"]))
