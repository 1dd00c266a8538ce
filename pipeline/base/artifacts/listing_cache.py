"""Cache of file listings and small files for the one process that writes to a run on S3.

    RUN/manifests.json                all manifests, each with size and modification time of its own file

The individual manifest files are authoritative: an entry of `manifests.json` is used only if size and time still match
the listing. The file is written when the job ends. After a kill some entries are stale, and those manifests are read.
"""

import time
from collections.abc import Mapping

from darklode.pipeline.base.artifacts.checksummed_json import dump_checksummed, load_checksummed

CACHED_FOLDERS = ("manifests", "tables", "progress")
"""Folders that only the process holding the run's lock writes to; remote workers write to `progress` only."""

MANIFESTS_PREFIX, MERGED_MANIFESTS = "manifests/", "manifests.json"
CACHED_ROOT_FILES = ("inputs.json", "settings.yaml", "days.json")
"""Files in the run's root that are read often and written by the same process only."""

SETTLE_SECONDS = 2.0
"""Minimum age in seconds of a cached entry: S3 timestamps have a resolution of one second, so two writes within
that time are indistinguishable."""

Stamps = dict[str, tuple[int, int]]
"""Size and modification time (ns) by file name; time 0 means unknown."""


class ListingCache:
    """In-memory listing of a store, kept up to date by its writes and deletions.

    Attributes:
        stamps: stamps of the files of each top-level folder that was listed.
        files: contents by file name; None if the file does not exist.
    """

    def __init__(self) -> None:
        self.stamps: dict[str, Stamps] = {}
        self.files: dict[str, bytes | None] = {}
        self._shared_folders: set[str] = set()
        self._merged: dict[str, bytes] = {}
        self._written_at: dict[str, float] = {}

    def is_listed(self, folder: str) -> bool:
        """Whether the cached listing of a folder may be used."""
        top = folder.partition("/")[0]
        return top in CACHED_FOLDERS and top not in self._shared_folders

    def has_bytes(self, name: str) -> bool:
        """Whether the contents of this file are cached."""
        return name.startswith(MANIFESTS_PREFIX) or name in CACHED_ROOT_FILES

    def record_write(self, name: str, data: bytes | memoryview) -> None:
        """Update the cache after a file was written; its modification time is unknown until the next listing."""
        top = name.partition("/")[0]
        if top in self.stamps:
            self.stamps[top][name] = len(data), 0
        if self.has_bytes(name):
            self.files[name] = bytes(data)
            self._written_at[name] = time.monotonic()

    def mark_deleted(self, name: str) -> None:
        """Remove a deleted file from the cache."""
        self.stamps.get(name.partition("/")[0], {}).pop(name, None)
        self.files.pop(name, None)

    def forget(self, name: str) -> None:
        """Drop everything cached of the top-level folder that holds this file or folder."""
        top = name.partition("/")[0]
        self.stamps.pop(top, None)
        self.files = {file_name: data for file_name, data in self.files.items() if file_name.partition("/")[0] != top}

    def mark_shared(self, top: str) -> None:
        """Stop caching a folder, because other processes write to it from now on."""
        self.forget(top)
        self._shared_folders.add(top)

    def load_manifests(self, merged: bytes | None, now: Stamps) -> None:
        """Cache the manifests in `manifests.json` whose own files have not changed since it was written.

        Args:
            merged: content of `manifests.json`; None if it does not exist. Invalid content is ignored.
            now: size and modification time of the manifest files, from a fresh listing.
        """
        try:
            listing = load_checksummed(merged or b"{}")
            for name, (size, changed, text) in listing.items():
                if now.get(name) == (size, changed):
                    self._merged[name] = text.encode()
        except (ValueError, TypeError, AttributeError):
            return
        self.files |= self._merged

    def manifests(self) -> dict[str, bytes]:
        """Content of the cached manifests by file name."""
        return {
            name: data for name, data in self.files.items() if name.startswith(MANIFESTS_PREFIX) and data is not None
        }

    @property
    def is_changed(self) -> bool:
        """Whether `manifests.json` is out of date."""
        return self.manifests() != self._merged

    def merge(self, now: Stamps) -> bytes:
        """Serialize `manifests.json`.

        It has the cached manifests that match a fresh listing `now`. Manifests written within the last
        `SETTLE_SECONDS` are left out: a later write might not be noticed.
        """
        settled_before = time.monotonic() - SETTLE_SECONDS
        stamps = self.stamps.get("manifests", {})
        entries: Mapping[str, object] = {
            name: [*now[name], data.decode()]
            for name, data in sorted(self.manifests().items())
            if name in now
            and stamps.get(name) in (now[name], (now[name][0], 0))
            and self._written_at.get(name, settled_before) <= settled_before
        }
        return dump_checksummed(entries)
