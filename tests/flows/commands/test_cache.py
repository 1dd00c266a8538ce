"""darklode cache: what is kept for each encoder, and what pruning frees."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.retrievers.rerank import SCORE_ROWS
from helpers.commands import Call
from helpers.hash_encoder import content_hash


@pytest.fixture
def root(tmp_path: Path) -> Path:
    cache = EmbeddingCache(str(tmp_path / "cache"), "float32")
    for encoder, n in (("one@1", 3), ("[two]@1", 2)):
        hashes = [content_hash(f"{encoder}{number}") for number in range(n)]
        cache.append(encoder, hashes, np.ones((n, 4), np.float32))
    return tmp_path / "cache"


def test_encoders_are_listed_with_what_they_hold(call: Call, root: Path) -> None:
    shown = call("cache", "--set", f"cache.root={root}")
    assert (shown.code, shown.err) == (0, "")
    assert "one@1" in shown.out
    assert "[two]@1" in shown.out


def test_one_encoder_or_all_are_pruned_and_the_bytes_said(call: Call, root: Path) -> None:
    place = ("--set", f"cache.root={root}")
    before = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    shown = call("cache", "--prune", "[two]@1", *place)
    left = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    assert f"{before - left:,} bytes freed" in shown.out
    assert "[two]@1" not in shown.out
    assert "one@1" in shown.out
    shown = call("cache", "--prune", "all", *place)
    assert f"{left:,} bytes freed" in shown.out
    assert not list(root.rglob("*.vectors"))


def test_what_rerankers_keep_is_listed_and_pruned_too(call: Call, root: Path) -> None:
    place, store = ("--set", f"cache.root={root}"), KeyedStore(str(root), SCORE_ROWS)
    key = {"query_hash": [content_hash("q")], "content_hash": [content_hash("c")]}
    for model in ("first", "second"):
        store.append(f"CrossEncoder:{model}@1", pa.table(key | {"score": pa.array([1.5], pa.float32())}))
    shown = call("cache", *place)
    assert "Cache of rerank scores" in shown.out
    assert "sparse" not in shown.out, "nothing is kept of them"
    call("cache", "--prune", "CrossEncoder:first@1", *place)
    assert store.owners() == ["CrossEncoder:second@1"]
    assert EmbeddingCache(str(root), "float32").usage().num_rows == 2
