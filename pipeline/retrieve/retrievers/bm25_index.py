"""BM25 indexes stored on disk, so that later searches of the same chunks do not build them again.

    RUN/indexes/<digest of the corpus>/ is a ROOT

    ROOT/<key>/*.npy, *.json   a folder that `bm25s.BM25.load` opens as well
    ROOT/<key>/manifest.json   written last: sizes and SHA-256 of the others; without it there is no index

Files are written completely before they get their final names. If a file differs from the manifest, the whole index
is built again.
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
_COPY_BYTES = 1 << 23  # bytes copied to S3 at a time; bounds memory

Files = dict[str, str]


def index_key(settings: Bm25Settings, digest: str) -> str:
    """Key of an index; it changes with settings, corpus, versions of bm25s, PyStemmer and Unicode, and `_VERSION`."""
    software = [version("bm25s"), version("PyStemmer"), unicodedata.unidata_version]
    return key_of("bm25", _VERSION, settings.model_dump(mode="json"), digest, software)


def index_root(run: str, digest: str) -> str:
    """Folder of a run for the indexes of a corpus."""
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
        """Load the index with these settings, memory-mapped; build and store it if it is missing or damaged.

        A file lock prevents two processes of a host from building the same index twice.
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
        if any(_hash(folder / name) != digest for name, digest in files.items()):
            return None
        return engines().BM25.load(folder, mmap=True, show_progress=False)

    def _store_index(self, key: str, index: Index) -> Index:
        if not len(index.scores["data"]):
            return index  # empty files cannot be memory-mapped
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
        """Move a finished file to its final name, after copying it to S3 if the store is there.

        Processes that have mapped an older file of that name keep its content.
        """
        with path.open("rb") as file:
            os.fsync(file.fileno())
        if not self._store.local:
            self._copy(str(path), f"{key}/{name}")
        path.replace(self._local / key / name)

    def _copy(self, source: str, name: str) -> None:
        local = pafs.LocalFileSystem()
        with (
            local.open_input_stream(source) as input_stream,
            self._store.filesystem.open_output_stream(self._store.path(name)) as output_stream,
        ):
            while piece := input_stream.read(_COPY_BYTES):
                output_stream.write(piece)

    def _download(self, key: str, files: Files) -> None:
        folder = self._local / key
        folder.mkdir(exist_ok=True)
        for name, digest in files.items():
            if _hash(folder / name) != digest and self._store.size(f"{key}/{name}") is not None:
                pafs.copy_files(
                    self._store.path(f"{key}/{name}"),
                    str(folder / name),
                    source_filesystem=self._store.filesystem,
                    destination_filesystem=pafs.LocalFileSystem(),
                )


def _save(index: Index, staging: Path) -> None:
    """Write an index to a folder, overwriting files that a killed process left; on an error the folder is deleted.

    Raises:
        NotWritable: there is no space or no permission.
    """
    try:
        with explain_write_errors(staging):
            index.save(staging, show_progress=False)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _files(manifest: bytes | None) -> Files | None:
    """Parse a manifest: SHA-256 by file name; None if it is missing or invalid."""
    try:
        files = json.loads(manifest or b"null")
    except ValueError:
        return None
    if not isinstance(files, dict) or not files or any(Path(name).name != name for name in files):
        return None
    return {name: str(digest) for name, digest in files.items()}


def _hash(path: Path) -> str | None:
    """SHA-256 of a file; None if it does not exist."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
