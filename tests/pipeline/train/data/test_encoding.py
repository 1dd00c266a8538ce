"""Texts are encoded ahead in shards that follow one another: each distinct one once, and none that has a vector."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.train.data import encoding
from darklode.pipeline.train.data.encoding import Encoding, prefetch_vectors
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.settings import CacheSettings
from helpers.adapted import TENANT, build_to_adapt, model_in
from helpers.elsewhere import Elsewhere
from helpers.runs import put


def with_copies(run: Run) -> pa.ChunkedArray:
    """Make every second text of the run a copy of the first; the hashes."""
    rows = run.tables("chunks").read("chunks").sort_by("chunk_id")
    hashes = pa.array([one if n % 2 else f"{0:032}" for n, one in enumerate(rows["content_hash"].to_pylist())])
    column = rows.schema.get_field_index("content_hash")
    put(run, "chunks", rows.set_column(column, rows.schema.field(column), hashes))
    return pa.chunked_array([hashes])


def test_each_distinct_text_is_encoded_once_and_none_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(encoding, "SHARD_ROWS", 50)
    run, encoder = build_to_adapt(tmp_path / "run"), model_in(tmp_path)
    hashes, elsewhere = with_copies(run), Elsewhere(run.store, 2)
    cache = CacheSettings(root=str(tmp_path / "cache"))
    whole = Encoding(TrainingSource(run, 0, mined=False, text_characters=100), TENANT, encoder, cache, "stage")
    prefetch_vectors(whole, hashes, elsewhere)
    assert elsewhere.names == [f"encode {TENANT} texts {n} to {min(n + 49, 203)}" for n in range(0, 204, 50)]
    shards = EmbeddingCache(cache.root, cache.vector_dtype).open(encoder.encoder_id())
    assert shards is not None
    assert (shards.find(keys_of(hashes)) >= 0).all()
    assert len(shards) == len(set(hashes.to_pylist())) == 103
    prefetch_vectors(whole, hashes, elsewhere)
    assert len(elsewhere.names) == 5, "nothing lacks a vector now"
