"""Indexed texts are dealt to places in whole blocks, and each place finds its own vectors."""

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.index import shard
from darklode.pipeline.index.shard import make_shards
from darklode.pipeline.index.source import FileSource, StoredVectors, truncate_and_normalize
from darklode.pipeline.index.texts import INDEXED_TEXTS_STAGE, write_indexed_texts
from darklode.schemas.settings import CacheSettings
from helpers.adapted import model_in
from helpers.indexed import put_vectors
from helpers.runs import execute


def test_each_stretch_has_its_own_vectors_in_blocks(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "VECTORS_PER_BLOCK", 4)
    vectors = np.random.default_rng(0).normal(size=(22, 8)).astype(np.float32)
    file = put_vectors(tmp_path / "vectors.parquet", [f"t{n:02}" for n in range(22)], vectors)
    given = FileSource(file, "acme", StoredVectors(model_in(tmp_path), CacheSettings(root=str(tmp_path / "cache")), 6))
    execute(run, INDEXED_TEXTS_STAGE, lambda _, output: write_indexed_texts(given, output))
    every = make_shards(run.tables(), given.stored_vectors, "index", "fitted", places=2)
    assert [(one.first, one.last) for one in every] == [(0, 4), (4, 12), (12, 16), (16, 22)]
    assert len({one.folder for one in every}) == 4
    blocks = [[*one.blocks()] for one in every]
    assert [[len(block) for block in some] for some in blocks] == [[4], [4, 4], [4], [4, 2]]
    np.testing.assert_array_equal(np.concatenate([*map(np.concatenate, blocks)]), truncate_and_normalize(vectors, 6))
    (alone,) = make_shards(run.tables(), given.stored_vectors, "index", "fitted", places=1)
    assert (alone.first, alone.last) == (0, 22)
