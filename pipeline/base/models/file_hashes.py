"""SHA-256 of model files: each file is read once, and hashed anew when it changes."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path

from darklode.pipeline.base.memory.parts import default_root

FOLDER = "model_hashes"
"""Below the user's cache folder: one file for each large file that was hashed."""

LARGE = 2**20
"""Bytes; smaller files are read each time."""

SETTLED = 2.0
"""Seconds: a younger file may change again without another modification time."""

_KNOWN = dict[str, str]()


def file_hash(path: Path) -> str:
    """SHA-256 of a file's whole content, from the cache where the file is the one that was hashed.

    Device, inode, size and both times of change identify it: a copy, a replaced file and a file written in place are
    read again, also where the modification time was set back.
    """
    status = path.stat()
    if status.st_size < LARGE:
        return _read(path)
    times = f"{status.st_mtime_ns}-{status.st_ctime_ns}"
    key = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{times}"
    if key not in _KNOWN:
        cached = Path(default_root(), FOLDER, key)
        digest = _recall(cached) or _read(path)
        if time.time() - max(status.st_mtime, status.st_ctime) < SETTLED:
            return digest
        _KNOWN[key] = digest
        _remember(cached, digest)
    return _KNOWN[key]


def _read(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _recall(cached: Path) -> str | None:
    try:
        digest = cached.read_text()
    except OSError:
        return None
    return digest if len(digest) == 64 else None


def _remember(cached: Path, digest: str) -> None:
    with suppress(OSError):  # a cache folder that cannot be written costs time alone
        cached.parent.mkdir(parents=True, exist_ok=True)
        scratch = cached.with_name(f"{cached.name}.{os.getpid()}")
        scratch.write_text(digest)
        scratch.replace(cached)
