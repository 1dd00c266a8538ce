"""The embedding cache: what is kept, what is refused, many writers, kills, and an S3 root."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory import parts
from darklode.pipeline.base.memory import vectors as append
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from helpers.hash_encoder import content_hash
from helpers.runs import PYTHONPATH

ENCODER = "model@1 query:'a/b'"


def hashes(*numbers: int) -> list[str]:
    return [content_hash(str(number)) for number in numbers]


def vectors(*numbers: int, dimensions: int = 4) -> np.ndarray:
    return np.array([[number + 1, 0.5, 0, 1][:dimensions] for number in numbers], dtype=np.float32)


def found(kept: EmbeddingCache, *numbers: int) -> np.ndarray:
    shards = kept.open(ENCODER)
    assert shards is not None
    return shards.take(shards.find(keys_of(hashes(*numbers))))


@pytest.fixture
def kept(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(str(tmp_path), "float32")


def test_what_was_appended_is_found_in_any_order(kept: EmbeddingCache) -> None:
    assert kept.open(ENCODER) is None
    assert kept.missing(ENCODER, hashes(1, 2)).tolist() == [0, 1]
    kept.append(ENCODER, hashes(1, 2, 3), vectors(1, 2, 3))
    kept.append(ENCODER, hashes(9), vectors(9))
    np.testing.assert_array_equal(found(kept, 9, 2, 1, 2), vectors(9, 2, 1, 2))
    assert kept.missing(ENCODER, hashes(4, 9, 3, 5)).tolist() == [0, 3]
    assert kept.missing("another encoder", hashes(1)).tolist() == [0]


def test_of_vectors_under_one_hash_the_first_wins(kept: EmbeddingCache) -> None:
    kept.append(ENCODER, hashes(1, 1), vectors(5, 6))
    kept.append(ENCODER, hashes(1), vectors(7))
    np.testing.assert_array_equal(found(kept, 1), vectors(5))


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), shard_rows=st.integers(1, 20))
def test_the_size_of_shards_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], shard_rows: int
) -> None:
    kept = EmbeddingCache(str(tmp_path_factory.mktemp("cache")), "float16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append, "SHARD_BYTES", shard_rows * 8)
        with kept.writer(ENCODER, 4) as writer:
            for number, size in enumerate(sizes):
                rows = range(100 * number, 100 * number + size)
                writer.add(hashes(*rows), vectors(*rows))
    rows = [100 * number + row for number, size in enumerate(sizes) for row in range(size)]
    np.testing.assert_array_equal(found(kept, *rows), vectors(*rows).astype(np.float16))
    usage = kept.usage().to_pylist()[0]
    assert (usage["vectors"], usage["orphans"], usage["dtype"]) == (sum(sizes), 0, "float16")


BAD = {
    "nan": ([1.0, np.nan, 0, 0], "not finite"),
    "infinite": ([1.0, np.inf, 0, 0], "not finite"),
    "too large for float16": ([1e6, 0, 0, 0], "not finite"),
    "zero": ([0.0, 0, 0, 0], "only zeros"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_vector_is_refused_by_the_name_of_its_text(tmp_path: Path, name: str) -> None:
    row, what = BAD[name]
    kept = EmbeddingCache(str(tmp_path), "float16")
    batch = vectors(1, 2, 3)
    batch[1] = row
    with pytest.raises(ArtifactError, match=f"{what}.*{hashes(2)[0]}"):
        kept.append(ENCODER, hashes(1, 2, 3), batch)
    assert kept.missing(ENCODER, hashes(1, 2, 3)).tolist() == [0, 1, 2]


def test_what_came_before_a_bad_vector_is_kept(kept: EmbeddingCache) -> None:
    def write() -> None:
        with kept.writer(ENCODER, 4) as writer:
            writer.add(hashes(1), vectors(1))
            writer.add(hashes(2), np.zeros((1, 4), dtype=np.float32))

    with pytest.raises(ArtifactError, match="only zeros"):
        write()
    assert kept.missing(ENCODER, hashes(1, 2)).tolist() == [1]


def test_another_form_than_the_encoders_is_refused(kept: EmbeddingCache) -> None:
    kept.append(ENCODER, hashes(1), vectors(1))
    with pytest.raises(ArtifactError, match="with 4 dimensions, float32, not 3 dimensions"):
        kept.append(ENCODER, hashes(2), vectors(2, dimensions=3))
    with pytest.raises(ArtifactError, match=f"shape \\(1, 3\\).*{hashes(2)[0]}"), kept.writer(ENCODER, 4) as writer:
        writer.add(hashes(2), vectors(2, dimensions=3))
    half = EmbeddingCache(kept.parts.store.url, "float16")
    for use in (lambda: half.append(ENCODER, hashes(2), vectors(2)), lambda: half.open(ENCODER)):
        with pytest.raises(ArtifactError, match=r"float16.*set cache\.vector_dtype"):
            use()


def test_files_have_the_announced_form(kept: EmbeddingCache) -> None:
    kept.append(ENCODER, hashes(1, 2), vectors(1, 2))
    keys, data = sorted(Path(kept.parts.store.url).rglob("*-*"))
    assert data.read_bytes() == vectors(1, 2).astype("<f4").tobytes()
    assert keys.read_bytes()[:32].hex() == "".join(hashes(1, 2))


def test_a_shard_is_closed_after_seconds(kept: EmbeddingCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "FLUSH_SECONDS", 0.0)
    with kept.writer(ENCODER, 4) as writer:
        writer.add(hashes(1), vectors(1))
        assert kept.missing(ENCODER, hashes(1)).tolist() == []


WRITE = """
import sys, numpy as np
from helpers.hash_encoder import content_hash
from darklode.pipeline.base.memory import vectors as append
from darklode.pipeline.base.memory.vectors import EmbeddingCache
append.SHARD_BYTES = 320
kept = EmbeddingCache(sys.argv[1], "float32")
first = int(sys.argv[2])
with kept.writer("model", 4) as writer:
    for n in range(first, first + 200):
        writer.add([content_hash(str(n))], np.full((1, 4), n + 1, dtype=np.float32))
        if n == first + 150 and len(sys.argv) > 3:
            print("now", flush=True)
            sys.stdin.read()
"""


def start(root: Path, first: int, *more: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-c", WRITE, str(root), str(first), *more]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def end(process: subprocess.Popen[bytes]) -> int:
    process.communicate()
    return process.returncode


@pytest.mark.slow
def test_several_processes_append_at_once(tmp_path: Path) -> None:
    processes = [start(tmp_path, first) for first in (0, 100, 200)]
    assert [end(process) for process in processes] == [0, 0, 0]
    shards = EmbeddingCache(str(tmp_path), "float32").open("model")
    assert shards is not None
    assert len(shards) == 600
    numbers = shards.find(keys_of(hashes(*range(400))))
    np.testing.assert_array_equal(shards.take(numbers)[:, 0], np.arange(400) + 1)


def test_a_killed_writer_leaves_whole_shards_only(tmp_path: Path) -> None:
    process = start(tmp_path, 0, "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == b"now\n"
    process.send_signal(signal.SIGKILL)
    assert end(process) == -signal.SIGKILL
    kept = EmbeddingCache(str(tmp_path), "float32")
    missing = kept.missing("model", hashes(*range(200)))
    assert missing.tolist() == list(range(140, 200))  # shards of 20 rows; what was held is lost


def test_a_shard_without_keys_or_of_another_size_is_an_orphan(kept: EmbeddingCache) -> None:
    kept.append(ENCODER, hashes(1), vectors(1))
    kept.append(ENCODER, hashes(2), vectors(2))
    kept.append(ENCODER, hashes(3), vectors(3))
    keys = sorted(Path(kept.parts.store.url).rglob("*.keys"))
    keys[0].unlink()  # killed before the keys
    cut = keys[1].with_suffix(".vectors")
    cut.write_bytes(cut.read_bytes()[:-1])
    keys[2].with_name(f".{keys[2].name}.77.tmp").write_bytes(b"half")  # killed while writing
    assert kept.missing(ENCODER, hashes(1, 2, 3)).tolist() == [0, 1]
    assert kept.usage().to_pylist()[0]["orphans"] == 4
    assert kept.prune_orphans() == 0, "a writer may still be at work"
    assert kept.prune_orphans(timedelta(0)) == 16 + 15 + 32 + 4
    assert kept.usage().to_pylist()[0]["orphans"] == 0
    assert kept.missing(ENCODER, hashes(1, 2, 3)).tolist() == [0, 1]


def test_encoders_are_listed_and_pruned_one_by_one(kept: EmbeddingCache) -> None:
    kept.append(ENCODER, hashes(1, 2), vectors(1, 2))
    kept.append("another", hashes(1), vectors(1))
    rows = {row["encoder_id"]: row for row in kept.usage().to_pylist()}
    assert {name: row["vectors"] for name, row in rows.items()} == {ENCODER: 2, "another": 1}
    assert kept.prune([ENCODER]) == rows[ENCODER]["bytes"] > 0
    assert [row["encoder_id"] for row in kept.usage().to_pylist()] == ["another"]
    assert kept.missing(ENCODER, hashes(1)).tolist() == [0]
    assert kept.prune() == rows["another"]["bytes"]
    assert kept.usage().num_rows == 0


def test_what_is_pruned_under_a_reader_is_said(kept: EmbeddingCache) -> None:
    kept.append(ENCODER, hashes(1), vectors(1))
    kept.append(ENCODER, hashes(2), vectors(2))
    shards = kept.open(ENCODER)
    assert shards is not None
    shards.shard(0)
    kept.prune()
    np.testing.assert_array_equal(shards.take(np.array([0])), vectors(1))
    with pytest.raises(ArtifactError, match="was pruned while in use"):
        shards.take(np.array([1]))


def test_a_damaged_record_is_said(kept: EmbeddingCache) -> None:
    kept.append(ENCODER, hashes(1), vectors(1))
    next(Path(kept.parts.store.url).rglob("encoder.json")).write_text('{"encoder_id": 1}')
    with pytest.raises(ArtifactError, match=r"encoder\.json is damaged.*delete its folder"):
        kept.open(ENCODER)


def test_no_root_is_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.platformdirs, "user_cache_path", lambda name: tmp_path / name)
    assert EmbeddingCache(None, "float32").parts.store.url == str((tmp_path / "darklode").resolve())


@pytest.mark.server
def test_a_bucket_is_a_root_and_its_shards_are_fetched_once(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "default_root", lambda: str(tmp_path / "home"))
    kept = EmbeddingCache(bucket, "float32")
    kept.append(ENCODER, hashes(1, 2), vectors(1, 2))
    kept.append(ENCODER, hashes(3), vectors(3))
    np.testing.assert_array_equal(found(kept, 3, 1), vectors(3, 1))
    copies = sorted((tmp_path / "home").rglob("*.vectors"))
    before = [copy.stat().st_mtime_ns for copy in copies]
    np.testing.assert_array_equal(found(EmbeddingCache(bucket, "float32"), 2, 3), vectors(2, 3))
    assert [copy.stat().st_mtime_ns for copy in copies] == before
    assert len(copies) == 2
    kept.parts.store.delete(sorted(kept.parts.store.sizes(kept.parts.folder(ENCODER)))[0])
    assert kept.usage().to_pylist()[0]["orphans"] == 1
    assert kept.prune_orphans(timedelta(0)) == 32
    assert kept.prune() > 0
    assert not list((tmp_path / "home").rglob("*.vectors"))
    assert kept.usage().num_rows == 0
