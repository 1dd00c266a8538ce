"""What the one process that works on a run on S3 knows of its files, so that it need not ask for them again.

    RUN/manifests.json                all manifests, each with the size and the time that a listing gave of its own file

The manifests' own files decide: what is taken from `manifests.json` has the size and the time of the file that lies
there now. It is written when the work ends. After a kill it is older than some files, and these are read.
"""

import time
from collections.abc import Mapping

from darklode.pipeline.base.artifacts.sealed import seal, unseal

FOLDERS = ("manifests", "tables", "progress")
"""Only who works on a run writes to them; workers on other machines to `progress` alone."""

MANIFESTS, TOGETHER = "manifests/", "manifests.json"
SINGLE = ("inputs.json", "settings.yaml", "days.json")
"""Files at the root that are read often, and likewise written by nobody else."""

SETTLED = 2.0
"""Seconds after which another write gives a file another time: S3's clock has seconds."""

Stamps = dict[str, tuple[int, int]]
"""Size and time (nanoseconds) of files by name; a time of 0 is not known."""


class ListingCache:
    """Follows each write and deletion of its store.

    Attributes:
        stamps: of the files, by the first folder of their names; of folders that were listed.
        files: bytes of files that were read or written whole, by name; None: the file is not there.
    """

    def __init__(self) -> None:
        self.stamps: dict[str, Stamps] = {}
        self.files: dict[str, bytes | None] = {}
        self._other_folders: set[str] = set()
        self._together: dict[str, bytes] = {}
        self._wrote: dict[str, float] = {}

    def is_listed(self, folder: str) -> bool:
        """Whether what was listed of a folder stands."""
        top = folder.partition("/")[0]
        return top in FOLDERS and top not in self._other_folders

    def has_bytes(self, name: str) -> bool:
        """Whether the bytes of a file are kept."""
        return name.startswith(MANIFESTS) or name in SINGLE

    def record_write(self, name: str, data: bytes | memoryview) -> None:
        """Follow a write."""
        top = name.partition("/")[0]
        if top in self.stamps:
            self.stamps[top][name] = len(data), 0
        if self.has_bytes(name):
            self.files[name], self._wrote[name] = bytes(data), time.monotonic()

    def mark_deleted(self, name: str) -> None:
        """Follow a deletion."""
        self.stamps.get(name.partition("/")[0], {}).pop(name, None)
        self.files.pop(name, None)

    def forget(self, name: str) -> None:
        """Know nothing of a file or folder, and what lies beside it, until it is asked for again."""
        top = name.partition("/")[0]
        self.stamps.pop(top, None)
        self.files = {file_name: data for file_name, data in self.files.items() if file_name.partition("/")[0] != top}

    def mark_shared(self, top: str) -> None:
        """From here on others write to a folder, too."""
        self.forget(top)
        self._other_folders.add(top)

    def load_manifests(self, together: bytes | None, now: Stamps) -> None:
        """Take the manifests of `manifests.json` whose own files are as they were then."""
        try:
            listing = unseal(together or b"{}")
            for name, (size, changed, text) in listing.items():
                if now.get(name) == (size, changed):
                    self._together[name] = text.encode()
        except (ValueError, TypeError, AttributeError):
            return
        self.files |= self._together

    def manifests(self) -> dict[str, bytes]:
        """Those that are known."""
        return {name: data for name, data in self.files.items() if name.startswith(MANIFESTS) and data is not None}

    @property
    def has_listing(self) -> bool:
        """Whether it knows of manifests what `manifests.json` did not say."""
        return self.manifests() != self._together

    def together(self, now: Stamps) -> bytes:
        """What to write to `manifests.json`: the manifests that are as the listing says, and settled."""
        settled, before = time.monotonic() - SETTLED, self.stamps.get("manifests", {})
        entries: Mapping[str, object] = {
            name: [*now[name], data.decode()]
            for name, data in sorted(self.manifests().items())
            if name in now
            and before.get(name) in (now[name], (now[name][0], 0))
            and self._wrote.get(name, settled) <= settled
        }
        return seal(entries)
