"""SHA-256 of model files, cached until the file changes."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path

from darklode.pipeline.base.memory.parts import default_root

CACHE_FOLDER = "model_hashes"
"""Folder in the user's cache with one file per hashed file."""

MIN_CACHED_BYTES = 2**20
"""Bytes; smaller files are hashed each time."""

SETTLE_SECONDS = 2.0
"""Minimum age in seconds for caching: a younger file may change again without a new modification time."""

_HASHES = dict[str, str]()


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content, from the cache if the file is unchanged.

    A file is identified by device, inode, size, mtime and ctime, so copies, replaced files and files changed in place
    are hashed again, even if the modification time was set back.
    """
    status = path.stat()
    if status.st_size < MIN_CACHED_BYTES:
        return _read(path)
    times = f"{status.st_mtime_ns}-{status.st_ctime_ns}"
    key = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{times}"
    if key not in _HASHES:
        cached = Path(default_root(), CACHE_FOLDER, key)
        digest = _read_cached(cached) or _read(path)
        if time.time() - max(status.st_mtime, status.st_ctime) < SETTLE_SECONDS:
            return digest
        _HASHES[key] = digest
        _write_cached(cached, digest)
    return _HASHES[key]


def _read(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _read_cached(cached: Path) -> str | None:
    try:
        digest = cached.read_text()
    except OSError:
        return None
    return digest if len(digest) == 64 else None


def _write_cached(cached: Path, digest: str) -> None:
    with suppress(OSError):  # without a writable cache, hashing only takes longer
        cached.parent.mkdir(parents=True, exist_ok=True)
        scratch = cached.with_name(f"{cached.name}.{os.getpid()}")
        scratch.write_text(digest)
        scratch.replace(cached)
