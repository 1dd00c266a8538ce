"""Part files of keyed stores: written atomically, never changed, by any number of concurrent processes and machines.

ROOT/<top>/<hash of the owner's id>/<owner>.json    the owner's id, and facts that apply to all of its parts
                                   /NAME.<ending>   a part; NAME is a time and a random suffix
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import platformdirs
import pyarrow.fs as pafs

from darklode.pipeline.base.artifacts.store import Store
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import KeyIndex
from darklode.pipeline.base.types import Ints, Keys
from darklode.schemas.settings import CacheSettings

MAX_RETRIES = 20
"""Retries if parts are deleted while they are read."""
_N_READERS = 8
"""Parts read in parallel, for the latency of S3."""
MIN_ORPHAN_AGE = timedelta(hours=1)
"""Minimum age of an orphaned file; a younger one may still be incomplete."""
Result = TypeVar("Result")


class Damaged(Exception):
    """A damaged part, or one of another owner."""


def default_root() -> str:
    """The user's cache folder for this platform, such as ~/.cache/darklode."""
    return str(platformdirs.user_cache_path("darklode"))


def resolve_cache(cache: CacheSettings) -> CacheSettings:
    """The cache settings with an explicit root, because the default differs on other machines."""
    return cache.model_copy(update={"root": cache.root or default_root()})


class PartFiles:
    """Part files of all owners below a root.

    Args:
        root: folder or s3:// prefix; null: `default_root()`.
        top: folder of this kind of parts.
        owner: type of owner, such as `judge`, whose record is `judge.json` with a `judge_id`.
        endings: extensions of a part's files in write order; the last one completes the part.
        remedy: advice if a record is damaged.

    Raises:
        ArtifactError: the root is neither a folder nor an s3:// prefix.
    """

    def __init__(
        self, root: str | None, top: str, owner: str, endings: tuple[str, ...], remedy: str = "delete it"
    ) -> None:
        self.store = Store(root or default_root())
        self.top, self.endings, self._remedy = top, endings, remedy
        self._id, self._record = f"{owner}_id", f"{owner}.json"

    def folder(self, owner_id: str) -> str:
        """Folder of an owner's parts, relative to the root."""
        return f"{self.top}/{hashlib.sha256(owner_id.encode()).hexdigest()[:32]}"

    def record(self, folder: str) -> dict[str, Any] | None:
        """The record of a folder's owner; None if there is none.

        Raises:
            ArtifactError: it is damaged.
        """
        data = self.store.read(f"{folder}/{self._record}")
        if data is None:
            return None
        try:
            record: dict[str, Any] = json.loads(data)
            if self.folder(record[self._id]) != folder:
                raise ValueError("it is of the owner of another folder")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self.damage_error(folder, error) from error
        return record

    def records(self) -> list[dict[str, Any]]:
        """The records of all owners, by id."""
        records = (self.record(f"{self.top}/{folder}") for folder in self.store.folders(self.top))
        return sorted((record for record in records if record), key=lambda record: str(record[self._id]))

    def damage_error(self, folder: str, error: Exception) -> ArtifactError:
        """The error for a damaged record."""
        return ArtifactError(f"{self.store.path(f'{folder}/{self._record}')} is damaged ({error}); {self._remedy}")

    def register(self, owner_id: str, **facts: object) -> None:
        """Write an owner's record."""
        data = json.dumps({self._id: owner_id, **facts}, indent=1).encode()
        self.store.write(f"{self.folder(owner_id)}/{self._record}", data)

    def write(self, owner_id: str, *files: bytes | memoryview) -> None:
        """Write a part: one file per extension."""
        # The time sorts parts by write order; the UUID makes the name unique.
        stem = f"{self.folder(owner_id)}/{time.time_ns():020d}-{uuid.uuid4().hex}"
        for ending, data in zip(self.endings, files, strict=True):
            self.store.write(f"{stem}{ending}", data)

    def sizes(self, owner_id: str) -> dict[str, int]:
        """Sizes in bytes of the owner's files, by path relative to the root."""
        return self.store.sizes(self.folder(owner_id))

    def names(self, owner_id: str) -> list[str]:
        """Completing files of the owner's parts, oldest first."""
        return sorted(name for name in self.sizes(owner_id) if name.endswith(self.endings[-1]))

    def delete(self, name: str) -> None:
        """Delete a file and its local copy, if they exist."""
        self.store.delete(name)
        if self.store.local is None:
            self._copies.delete(name)

    def fetch(self, name: str) -> Path:
        """A local path of a file; files on S3 are copied once per machine, because they never change.

        Raises:
            ArtifactError: it was pruned.
        """
        local_store = self.store if self.store.local is not None else self._copies
        assert local_store.local is not None
        if local_store is not self.store and local_store.size(name) is None:
            data = self.store.read(name)
            if data is not None:
                local_store.write(name, data)
        if not (local_store.local / name).is_file():
            raise ArtifactError(f"{self.store.path(name)} was pruned while in use; run the command again")
        return local_store.local / name

    @property
    def _copies(self) -> Store:
        return Store(f"{default_root()}/copies/{hashlib.sha256(self.store.url.encode()).hexdigest()[:32]}")

    def prune(self, owner_id: str) -> int:
        """Delete all of an owner's files; returns the bytes freed."""
        sizes = self.sizes(owner_id)
        # Completing files are deleted first, so that a kill leaves no part that looks complete; the record is deleted
        # last, so that remaining files stay listed.
        for name in sorted(sizes, key=lambda name: (name.endswith(self._record), not name.endswith(self.endings[-1]))):
            self.delete(name)
        return sum(sizes.values())

    def prune_orphans(self, owner_id: str, known_parts: Collection[str], older_than: timedelta = MIN_ORPHAN_AGE) -> int:
        """Delete an owner's orphaned files; returns the bytes freed.

        Args:
            owner_id: the owner.
            known_parts: files that belong to a part.
            older_than: minimum age; younger files may still be incomplete.
        """
        freed = 0
        for name in self.orphans(owner_id, known_parts):
            info = self.store.filesystem.get_file_info(self.store.path(name))
            if info.type == pafs.FileType.File and datetime.now(UTC) - info.mtime >= older_than:
                self.delete(name)
                freed += info.size
        return freed

    def orphans(self, owner_id: str, known_parts: Collection[str]) -> list[str]:
        """The owner's files that are neither its record nor among `known_parts`, sorted."""
        return sorted(set(self.sizes(owner_id)) - {*known_parts, f"{self.folder(owner_id)}/{self._record}"})


class PartIndex:
    """Index of the keys in an owner's parts; rows are numbered across parts. 20 bytes per row.

    Args:
        names: lists the existing parts in write order.
        keys: reads a part's keys, or raises Damaged or FileNotFoundError.
        location: location of the parts, for messages.
    """

    def __init__(self, names: Callable[[], list[str]], keys: Callable[[str], Keys], location: str) -> None:
        self._list, self._read, self._location = names, keys, location
        self.damaged: dict[str, str] = {}
        """Skipped damaged parts, with the reason."""
        self.forget()

    def __len__(self) -> int:
        return len(self.keys)

    def forget(self) -> None:
        """Clear the index."""
        self.names: list[str] = []
        self.starts = np.zeros(1, dtype=np.int64)
        self.keys = KeyIndex()

    def refresh(self) -> None:
        """Add parts written since the last call.

        Raises:
            ArtifactError: parts change faster than they can be read.
        """
        for _ in range(MAX_RETRIES):
            indexed = {*self.names, *self.damaged}
            fresh = [name for name in self._list() if name not in indexed]
            if self._add(fresh):
                return
        raise self._changed_too_often()

    def locate(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Index of each row's part in `names`, and the row in that part."""
        parts = np.searchsorted(self.starts, numbers, side="right") - 1
        return parts, numbers - self.starts[parts]

    def by_part(self, numbers: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """Group row numbers by part: yields the part's index, indices into `numbers`, and rows in the part."""
        order = np.argsort(numbers, kind="stable")
        parts, rows = self.locate(numbers[order])
        starts = np.flatnonzero(np.diff(parts, prepend=-1))
        for group, start in zip(np.split(order, starts[1:]), starts.tolist(), strict=True) if len(order) else ():
            yield int(parts[start]), group, rows[start : start + len(group)]

    def retry_on_change(self, action: Callable[[], Result]) -> Result:
        """Run an action; refresh the index and retry if a part turns out to be deleted or damaged.

        Raises:
            ArtifactError: parts change faster than they can be read.
        """
        for _ in range(MAX_RETRIES):
            try:
                return action()
            except (FileNotFoundError, Damaged):
                self.forget()
                self.refresh()
        raise self._changed_too_often()

    def _load(self, name: str) -> Keys | None:
        try:
            return self._read(name)
        except FileNotFoundError:
            return None
        except Damaged as error:
            self.damaged[name] = str(error)
            return None

    def _add(self, names: list[str]) -> bool:
        """Index some parts; returns False if one was deleted."""
        with ThreadPoolExecutor(_N_READERS) as readers:
            keys_by_name = dict(zip(names, readers.map(self._load, names), strict=True))
        readable = {name: keys for name, keys in keys_by_name.items() if keys is not None}
        self.names += readable
        ends = self.starts[-1] + np.cumsum([len(keys) for keys in readable.values()], dtype=np.int64)
        self.starts = np.append(self.starts, ends)
        keys = np.concatenate([np.empty((0, 2), np.uint64), *readable.values()])
        loaded_names = {*readable, *self.damaged}
        keys_by_name.clear()  # free memory: the index copies the keys
        readable.clear()
        self.keys.add(keys)
        return loaded_names.issuperset(names)

    def _changed_too_often(self) -> ArtifactError:
        return ArtifactError(f"the parts in {self._location} change faster than they can be read; try again")
