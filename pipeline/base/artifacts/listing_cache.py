"""Cache of file listings and small files for the one process that writes to a run on S3.

    RUN/manifests.json                all manifests, each with size and modification time of its own file

The individual manifest files are authoritative: an entry of `manifests.json` is used only if size and time still match
the listing. The file is written when the job ends. After a kill some entries are stale, and those manifests are read.
"""

import time
from collections.abc import Mapping

from darklode.pipeline.base.artifacts.checksummed_json import seal, unseal

FOLDERS = ("manifests", "tables", "progress")
"""Folders that only the process holding the run's lock writes to; remote workers write to `progress` only."""

MANIFESTS, TOGETHER = "manifests/", "manifests.json"
SINGLE = ("inputs.json", "settings.yaml", "days.json")
"""Files in the run's root that are read often and written by the same process only."""

SETTLED = 2.0
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
        self._other_folders: set[str] = set()
        self._together: dict[str, bytes] = {}
        self._wrote: dict[str, float] = {}

    def is_listed(self, folder: str) -> bool:
        """Whether the cached listing of a folder may be used."""
        top = folder.partition("/")[0]
        return top in FOLDERS and top not in self._other_folders

    def has_bytes(self, name: str) -> bool:
        """Whether the contents of this file are cached."""
        return name.startswith(MANIFESTS) or name in SINGLE

    def record_write(self, name: str, data: bytes | memoryview) -> None:
        top = name.partition("/")[0]
        if top in self.stamps:
            self.stamps[top][name] = len(data), 0
        if self.has_bytes(name):
            self.files[name], self._wrote[name] = bytes(data), time.monotonic()

    def mark_deleted(self, name: str) -> None:
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
        self._other_folders.add(top)

    def load_manifests(self, together: bytes | None, now: Stamps) -> None:
        """Use the entries of `manifests.json` whose files have not changed since it was written."""
        try:
            listing = unseal(together or b"{}")
            for name, (size, changed, text) in listing.items():
                if now.get(name) == (size, changed):
                    self._together[name] = text.encode()
        except (ValueError, TypeError, AttributeError):
            return
        self.files |= self._together

    def manifests(self) -> dict[str, bytes]:
        """The cached manifests."""
        return {name: data for name, data in self.files.items() if name.startswith(MANIFESTS) and data is not None}

    @property
    def has_listing(self) -> bool:
        """Whether `manifests.json` is out of date."""
        return self.manifests() != self._together

    def together(self, now: Stamps) -> bytes:
        """The new `manifests.json`: manifests that match the listing and were last written `SETTLED` seconds ago."""
        settled, before = time.monotonic() - SETTLED, self.stamps.get("manifests", {})
        entries: Mapping[str, object] = {
            name: [*now[name], data.decode()]
            for name, data in sorted(self.manifests().items())
            if name in now
            and before.get(name) in (now[name], (now[name][0], 0))
            and self._wrote.get(name, settled) <= settled
        }
        return seal(entries)
