"""BM25 indexes kept on disk, so that other queries on the same chunks need no second look at them.

    RUN/indexes/<digest of the corpus>/ is a ROOT

    ROOT/<key>/*.npy, *.json   a folder that `bm25s.BM25.load` opens as well
    ROOT/<key>/manifest.json   written last: sizes and SHA-256 of the others; without it there is no index

A file only ever appears whole, under its final name. One that is not what the manifest says makes the whole index
worthless: it is built again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import unicodedata
from collections.abc import Callable, Collection
from importlib.metadata import version
from pathlib import Path

import pyarrow.fs as pafs
from filelock import FileLock

from darklode.pipeline.base.artifacts import Store, key_of
from darklode.pipeline.base.artifacts.store import explain_write_errors
from darklode.pipeline.retrieve.retrievers.bm25 import Index, engines
from darklode.schemas.pooling import Bm25Settings

_VERSION = 1
_MANIFEST = "manifest.json"
_COPY_BYTES = 1 << 23

Files = dict[str, str]


def index_key(settings: Bm25Settings, digest: str) -> str:
    """Names an index: another setting, corpus or release of what reads and stems gives another name."""
    software = [version("bm25s"), version("PyStemmer"), unicodedata.unidata_version]
    return key_of("bm25", _VERSION, settings.model_dump(mode="json"), digest, software)


def index_root(run: str, digest: str) -> str:
    """Where a run keeps the indexes of a corpus."""
    return f"{run}/indexes/{digest}"


def tidy_indexes(run: str, digests: Collection[str]) -> None:
    """Delete a run's indexes of corpora that it no longer has."""
    store = Store(run)
    for folder in store.folders("indexes"):
        if folder not in digests:
            store.delete_folder(f"indexes/{folder}")


class Bm25Indexes:
    """The indexes of one corpus below a root.

    Args:
        root: folder or `s3://` prefix. An index on S3 is copied to `scratch` before it is used.
        digest: identifies the corpus: everything that makes up the chunks' texts, and their order.
        scratch: an existing local folder that this process may fill.

    Raises:
        ArtifactError: the root is no folder and no `s3://` prefix.
    """

    def __init__(self, root: str, digest: str, scratch: Path) -> None:
        self._store = Store(root)
        self._digest = digest
        self._local = self._store.local or scratch

    def get(self, settings: Bm25Settings, build: Callable[[], Index]) -> Index:
        """The index by these settings, memory-mapped; built and kept where there is none that can be trusted.

        Two processes of one host that want the same index build it once.
        """
        key = index_key(settings, self._digest)
        self._local.mkdir(parents=True, exist_ok=True)
        with FileLock(self._local / f".{key}.lock"):
            return self._load(key) or self._store_index(key, build())

    def _load(self, key: str) -> Index | None:
        files = _files(self._store.read(f"{key}/{_MANIFEST}"))
        if files is None:
            return None
        if not self._store.local:
            self._download(key, files)
        folder = self._local / key
        if any(_hash(folder / name) != mark for name, mark in files.items()):
            return None
        return engines().BM25.load(folder, mmap=True, show_progress=False)

    def _store_index(self, key: str, index: Index) -> Index:
        if not len(index.scores["data"]):
            return index  # nothing can be mapped from an empty file, and nothing is saved by keeping it
        folder, staging = self._local / key, self._local / f".{key}.tmp"
        _save(index, staging)
        files = {path.name: _hash(path) for path in sorted(staging.iterdir())}
        folder.mkdir(exist_ok=True)
        for name in files:
            self._publish(staging / name, key, name)
        self._store.write(f"{key}/{_MANIFEST}", json.dumps(files, indent=1).encode())
        staging.rmdir()
        return engines().BM25.load(folder, mmap=True, show_progress=False)

    def _publish(self, path: Path, key: str, name: str) -> None:
        """Give a finished file its place, on S3 as well; a file that somebody has mapped stays as it was for them."""
        with path.open("rb") as file:
            os.fsync(file.fileno())
        if not self._store.local:
            self._copy(str(path), f"{key}/{name}")
        path.replace(self._local / key / name)

    def _copy(self, source: str, name: str) -> None:
        local = pafs.LocalFileSystem()
        with (
            local.open_input_stream(source) as input_stream,
            self._store.filesystem.open_output_stream(self._store.path(name)) as taken,
        ):
            while piece := input_stream.read(_COPY_BYTES):
                taken.write(piece)

    def _download(self, key: str, files: Files) -> None:
        folder = self._local / key
        folder.mkdir(exist_ok=True)
        for name, mark in files.items():
            if _hash(folder / name) != mark and self._store.size(f"{key}/{name}") is not None:
                pafs.copy_files(
                    self._store.path(f"{key}/{name}"),
                    str(folder / name),
                    source_filesystem=self._store.filesystem,
                    destination_filesystem=pafs.LocalFileSystem(),
                )


def _save(index: Index, staging: Path) -> None:
    """Write an index over what a killed process left, as the files have the same names; all of it or nothing.

    Raises:
        NotWritable: there is no room or no leave.
    """
    try:
        with explain_write_errors(staging):
            index.save(staging, show_progress=False)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _files(manifest: bytes | None) -> Files | None:
    """The files and hashes that a manifest names; None for what is no manifest."""
    try:
        files = json.loads(manifest or b"null")
    except ValueError:
        return None
    if not isinstance(files, dict) or not files or any(Path(name).name != name for name in files):
        return None
    return {name: str(mark) for name, mark in files.items()}


def _hash(path: Path) -> str | None:
    """SHA-256 of a file, None where there is none."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
