"""Integrity of table files: by sha256, and by their stamps once a file was verified.

    RUN/verified/<table>.json         stamps of the files whose sha256 was correct

A stamp is inode, size and both timestamps, one of which cannot be set by a program. A copy has other stamps, so a
copied
or restored run is verified once. On S3 there are no stamps: sizes are compared, and pyarrow verifies the checksum of
each page that it reads.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

from darklode.pipeline.base.artifacts.stage import Part, table_of
from darklode.pipeline.base.artifacts.store import Store
from darklode.pipeline.base.errors import ArtifactError


class IntegrityCheck:
    """Verifies the files of a run's tables."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stamps: dict[str, dict[str, str]] = {}

    def find_damaged(self, table: str, parts: Sequence[Part]) -> list[str]:
        """The files of some parts of a table that are missing or have other content than was written."""
        if self._store.local is None:
            sizes = self._store.sizes(f"tables/{table}", recursive=True)
            return [part.file for part in parts if sizes.get(part.file) != part.size]
        known_hashes, hashes = self._load_stamps(table), dict[str, str]()
        for part in parts:
            stamp = self._store.stamp(part.file)
            if stamp is not None and (known_hashes.get(part.file) == stamp or self.is_unchanged(part)):
                hashes[part.file] = stamp
        if not hashes.items() <= known_hashes.items():
            self._save_stamps(table, known_hashes | hashes)
        return [part.file for part in parts if part.file not in hashes]

    def require(self, table: str, parts: Sequence[Part]) -> None:
        """Check that a table's files are intact.

        Raises:
            ArtifactError: one is not.
        """
        for file in self.find_damaged(table, parts):
            message = f"{self._store.path(file)} is missing or damaged"
            raise ArtifactError(f"{message}; run the command that wrote it again to rebuild it")

    def is_sound(self, part: Part) -> bool:
        """Whether a part's file is intact: by its stamp if it is known, else by reading it."""
        stamp = self._store.stamp(part.file)
        is_verified = stamp is not None and self._load_stamps(table_of(part.file)).get(part.file) == stamp
        return is_verified or self.is_unchanged(part)

    def is_unchanged(self, part: Part) -> bool:
        """Whether a part's file exists and has exactly the written bytes; always reads it."""
        return self.read(part) is not None

    def read(self, part: Part) -> bytes | None:
        """A part's bytes, or None if the file is missing or altered."""
        data = self._store.read(part.file)
        return data if data is not None and hashlib.sha256(data).hexdigest() == part.sha256 else None

    def _load_stamps(self, table: str) -> dict[str, str]:
        if table not in self._stamps:
            self._stamps[table] = _stamps(self._store, table)
        return self._stamps[table]

    def _save_stamps(self, table: str, stamps: Mapping[str, str]) -> None:
        """Save the stamps of files that still exist. A read-only run is verified again each time."""
        self._stamps[table] = {file: stamp for file, stamp in stamps.items() if self._store.stamp(file) == stamp}
        with suppress(OSError):
            self._store.write(_file(table), json.dumps(self._stamps[table], indent=0).encode())


def _file(table: str) -> str:
    return f"verified/{table}.json"


def _stamps(store: Store, table: str) -> dict[str, str]:
    """The saved stamps; empty if unreadable."""
    try:
        return dict(json.loads(store.read(_file(table)) or b"{}"))
    except (OSError, ValueError, TypeError):
        return {}
