"""Detect damaged table files, by SHA-256 or, once a file was verified, by its stamp.

    RUN/verified/<table>.json         stamps of the files whose sha256 was correct

A stamp is the inode, size, mtime and ctime of a file; programs cannot set the ctime. Copies have other stamps, so a
copied or restored run is verified once more. On S3 there are no stamps: sizes are compared, and pyarrow verifies the
checksum of each page that it reads.
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
        """Names of the files that are missing or changed, among some parts of a table."""
        if self._store.local is None:
            sizes = self._store.sizes(f"tables/{table}", recursive=True)
            return list(dict.fromkeys(part.file for part in parts if sizes.get(part.file) != part.size))
        verified_stamps = self._load_stamps(table)
        intact_stamps: dict[str, str] = {}
        for part in {part.file: part for part in parts}.values():  # merged parts share a file
            stamp = self._store.stamp(part.file)
            if stamp is not None and (verified_stamps.get(part.file) == stamp or self.is_unchanged(part)):
                intact_stamps[part.file] = stamp
        if not intact_stamps.items() <= verified_stamps.items():
            self._save_stamps(table, verified_stamps | intact_stamps)
        return list(dict.fromkeys(part.file for part in parts if part.file not in intact_stamps))

    def require(self, table: str, parts: Sequence[Part]) -> None:
        """Raise an error if a file of a table is damaged.

        Raises:
            ArtifactError: a file is missing or damaged.
        """
        for file in self.find_damaged(table, parts):
            message = f"{self._store.path(file)} is missing or damaged"
            raise ArtifactError(f"{message}; run the command that wrote it again to rebuild it")

    def is_sound(self, part: Part) -> bool:
        """Whether a part's file is intact; the file is read only if its stamp was not verified before."""
        stamp = self._store.stamp(part.file)
        is_verified = stamp is not None and self._load_stamps(table_of(part.file)).get(part.file) == stamp
        return is_verified or self.is_unchanged(part)

    def is_unchanged(self, part: Part) -> bool:
        """Whether a part's file exists and has exactly the written bytes; always reads it."""
        return self.read(part) is not None

    def read(self, part: Part) -> bytes | None:
        """Read the bytes of a part's file; None if the file is missing or its SHA-256 differs."""
        return self.read_file(part.file, part.file_sha256)

    def read_file(self, file: str, sha256: str) -> bytes | None:
        """Read a file; None if it is missing or its SHA-256 differs."""
        data = self._store.read(file)
        return data if data is not None and hashlib.sha256(data).hexdigest() == sha256 else None

    def _load_stamps(self, table: str) -> dict[str, str]:
        """Saved stamps of a table by file name, read once."""
        if table not in self._stamps:
            self._stamps[table] = _read_stamps(self._store, table)
        return self._stamps[table]

    def _save_stamps(self, table: str, stamps: Mapping[str, str]) -> None:
        """Save the stamps of files that still exist. A read-only run is verified again each time."""
        self._stamps[table] = {file: stamp for file, stamp in stamps.items() if self._store.stamp(file) == stamp}
        with suppress(OSError):
            self._store.write(_stamps_file(table), json.dumps(self._stamps[table], indent=0).encode())


def _stamps_file(table: str) -> str:
    return f"verified/{table}.json"


def _read_stamps(store: Store, table: str) -> dict[str, str]:
    """Read the saved stamps by file name; empty if the file is missing or invalid, so that all parts are verified."""
    try:
        return dict(json.loads(store.read(_stamps_file(table)) or b"{}"))
    except (OSError, ValueError, TypeError):
        return {}
