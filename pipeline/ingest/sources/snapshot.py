"""The local copy of a source: parts of JSON lines, by day for logs, replaced only where their content changed.

    docs-00000.jsonl                      rows of documents, queries or judgments
    date=2026-03-01/log-00000.jsonl       rows of a log
    .snapshot.json                        what was fetched

JSON lines, not Parquet: each row stays as the source gave it, nested or with other types than the row before, and the
readers judge it row by row.
"""

from __future__ import annotations

import filecmp
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import BinaryIO

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.types import Row
from darklode.pipeline.ingest.sources.rows import json_line

PART_BYTES = 64 << 20
STATE_FILE, NEW_FOLDER = ".snapshot.json", ".new"
DAY_PREFIX = "date="


@dataclass
class SnapshotState:
    """What a snapshot holds.

    Attributes:
        source: hash of address, statement and whatever else decides which rows are fetched.
        is_complete: whether the last fetch of undated rows was finished.
        version: version of the source at that time; None if it has none.
        files: version of each copied file, by name.
        through: by table, the last day up to which all days were fetched.
    """

    source: str
    is_complete: bool = False
    version: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    through: dict[str, str] = field(default_factory=dict)

    def last_day(self, table: str) -> date | None:
        """The last day of a table up to which all days were fetched; None: none was."""
        day = self.through.get(table)
        return date.fromisoformat(day) if day else None


class Snapshot:
    """A snapshot's folder, used by one process at a time: the one that holds the lock of the run.

    Args:
        folder: created if missing, readable by the user alone, because rows may be personal.
        source: see `SnapshotState`; a snapshot of another source is emptied.

    Raises:
        NotWritable: the folder cannot be written.
    """

    def __init__(self, folder: Path, source: str) -> None:
        self.folder, self._store = folder, Store(str(folder))
        self._store.prepare()
        folder.chmod(0o700)
        self.state = self._read_state()
        if self.state.source != source:
            self.clear()
            self.state = SnapshotState(source)
        shutil.rmtree(folder / NEW_FOLDER, ignore_errors=True)  # of an interrupted fetch

    def _read_state(self) -> SnapshotState:
        with suppress(ValueError, TypeError):
            return SnapshotState(**json.loads(self._store.read(STATE_FILE) or b"null"))
        return SnapshotState("")

    def save(self) -> None:
        """Write the state."""
        self._store.write(STATE_FILE, json.dumps(asdict(self.state)).encode())

    def clear(self) -> None:
        """Delete everything."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def writer(self, table: str, day: date | None = None) -> PartWriter:
        """A writer for all rows of a table, or those of a day; they replace the former ones on `commit`."""
        return PartWriter(self.folder, f"{DAY_PREFIX}{day.isoformat()}" if day else "", table)

    def days(self, table: str) -> Iterator[date]:
        """Days with rows of a table."""
        for folder in sorted(self.folder.glob(f"{DAY_PREFIX}*")):
            if any(folder.glob(f"{table}-*.jsonl")):
                yield date.fromisoformat(folder.name.removeprefix(DAY_PREFIX))


class PartWriter:
    """Writes parts beside the former ones, and puts them in their place on `commit`; to be closed.

    Args:
        folder: folder of the snapshot.
        subfolder: folder of the day; empty for rows without days.
        table: beginning of the files' names.
    """

    def __init__(self, folder: Path, subfolder: str, table: str) -> None:
        self._target, self._new = folder / subfolder, folder / NEW_FOLDER / subfolder
        self._table, self._size, self._files = table, 0, list[Path]()
        self._stream: BinaryIO | None = None
        self.n_rows = 0

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows.

        Raises:
            OSError: there is no space.
        """
        for row in rows:
            line = json_line(row)
            if self._stream is None or self._size + len(line) > PART_BYTES:
                self._open_part()
            assert self._stream is not None
            self._stream.write(line)
            self._size += len(line)
        self.n_rows += len(rows)

    def _open_part(self) -> None:
        self.close()
        self._new.mkdir(parents=True, exist_ok=True)
        file = self._new / f"{self._table}-{len(self._files):05d}.jsonl"
        self._files.append(file)
        self._stream, self._size = file.open("wb"), 0

    def close(self) -> None:
        """Close the open part; without `commit`, the former parts stay."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def commit(self) -> bool:
        """Replace the former parts; one with the same content stays, so that its times do. Returns whether any changed.

        A kill in between leaves parts of both; the state shows it, and the next fetch replaces them.
        """
        self.close()
        self._target.mkdir(parents=True, exist_ok=True)
        former = {path.name: path for path in self._target.glob(f"{self._table}-*.jsonl")}
        is_changed = False
        for file in self._files:
            previous = former.pop(file.name, None)
            if previous is not None and filecmp.cmp(file, previous, shallow=False):
                file.unlink()
            else:
                file.replace(self._target / file.name)
                is_changed = True
        for surplus in former.values():
            surplus.unlink()
        if self._target.name.startswith(DAY_PREFIX) and not any(self._target.iterdir()):
            self._target.rmdir()
        return is_changed or bool(former)
