"""Hashes of large files: read once, and again after any change."""

import os
import time
from hashlib import sha256
from pathlib import Path

import pytest

from darklode.pipeline.base.models import file_hashes
from darklode.pipeline.base.models.file_hashes import CACHE_FOLDER, MIN_CACHED_BYTES, file_hash


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(file_hashes, "_HASHES", {})
    monkeypatch.setattr(file_hashes, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(file_hashes, "default_root", lambda: str(tmp_path / "cache"))
    return tmp_path / "cache" / CACHE_FOLDER


def large(path: Path, number: int) -> str:
    data = bytes([number]) * (MIN_CACHED_BYTES + 5)
    path.write_bytes(data)
    return sha256(data).hexdigest()


def test_a_file_is_hashed_whole_and_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = large(tmp_path / "one", 1)
    assert file_hash(tmp_path / "one") == wanted
    (kept,) = cache.iterdir()
    assert kept.read_text() == wanted
    monkeypatch.setattr(file_hashes, "_read", lambda _: pytest.fail("it was read again"))
    assert file_hash(tmp_path / "one") == wanted
    monkeypatch.setattr(file_hashes, "_HASHES", {})
    assert file_hash(tmp_path / "one") == wanted, "another process reads the cache"


def test_a_change_is_seen_also_with_the_old_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "one"
    large(path, 1)
    before = path.stat()
    file_hash(path)
    time.sleep(0.02)
    wanted = large(path, 2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert file_hash(path) == wanted


def test_a_file_that_may_still_be_written_is_not_remembered(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_hashes, "SETTLE_SECONDS", 60.0)
    wanted = large(tmp_path / "one", 1)
    assert file_hash(tmp_path / "one") == wanted
    assert not cache.exists()


def test_small_files_and_a_cache_that_cannot_be_written_do_no_harm(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "small").write_bytes(b"x")
    assert file_hash(tmp_path / "small") == sha256(b"x").hexdigest()
    cache.parent.write_text("a file where the folder would be")
    wanted = large(tmp_path / "one", 3)
    assert file_hash(tmp_path / "one") == wanted
