"""Small files of finished units that wait to be written together.

A run over a year has thousands of days' files and records of units, most of which are merged and deleted when the stage
ends (`merged_files`). They wait only some seconds after the last write, so a kill loses seconds of finished work.
"""

import time

from darklode.pipeline.base.artifacts.store import Store

MAX_SECONDS = 5.0
"""Finished work that a killed process may lose: files of slow units do not wait."""

MAX_BYTES = 16 << 20
"""Memory of the waiting files."""


class UnwrittenFiles:
    """The waiting files of a stage.

    Args:
        store: files of the run.

    Attributes:
        parts: bytes of parts by path.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.parts: dict[str, memoryview] = {}
        self._records: dict[str, bytes] = {}
        self._bytes = 0
        self._last_write = time.monotonic()

    def add_part(self, file: str, data: memoryview) -> None:
        """Add a part; it may be written at once."""
        self.parts[file] = data
        self._bytes += len(data)
        self._write_if_due()

    def write_record(self, name: str, data: bytes) -> None:
        """Write the record of a unit, after its parts: it waits if parts wait."""
        if not self.parts:
            self._store.write(name, data)
            return
        self._records[name] = data
        self._write_if_due()

    def _write_if_due(self) -> None:
        if self._bytes >= MAX_BYTES or time.monotonic() - self._last_write >= MAX_SECONDS:
            self.write()

    def write(self) -> None:
        """Write all files."""
        for file, data in self.parts.items():
            self._store.write(file, data)
        for name, record in self._records.items():
            self._store.write(name, record)
        self._last_write = time.monotonic()
        self.drop()

    def drop(self) -> None:
        """Forget all files."""
        self.parts.clear()
        self._records.clear()
        self._bytes = 0
