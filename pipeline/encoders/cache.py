"""Vectors kept across runs by (encoder id, content hash): appended by many processes, never computed twice.

ROOT/embeddings/<hash of the encoder id>/encoder.json     the id, dimensions and dtype
                                        /NAME.vectors     raw little-endian numbers, one row a vector
                                        /NAME.keys        16 bytes a vector; written last: the shard is complete
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import numpy as np
import platformdirs
import pyarrow as pa
import pyarrow.fs as pafs
from numpy.typing import NDArray

from pipeline.artifacts.store import Store
from pipeline.encoders.append import Writer
from pipeline.encoders.keys import keys_of
from pipeline.encoders.shards import KEY_BYTES, Dtype, Layout, Shards, Vectors
from pipeline.errors import ArtifactError

_TOP = "embeddings"
_WRITING = timedelta(hours=1)
"""A younger shard without keys may still be in the making."""

USAGE = pa.schema(
    [
        pa.field("encoder_id", pa.string()),
        pa.field("vectors", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("dtype", pa.string()),
        pa.field("dimensions", pa.int32()),
        pa.field("orphans", pa.int64()),
    ]
)


def default_root() -> str:
    """The user's cache folder for this platform, such as ~/.cache/darklode."""
    return str(platformdirs.user_cache_path("darklode"))


class EmbeddingCache:
    """Vectors of any number of encoders below one root.

    Args:
        root: a folder or an s3:// prefix; null: `default_root()`.
        dtype: how vectors are kept; an encoder's vectors all have the dtype of its first.

    Raises:
        ArtifactError: the root is neither.
    """

    def __init__(self, root: str | None, dtype: Dtype) -> None:
        self.store = Store(root or default_root())
        self.dtype: Dtype = dtype

    def open(self, encoder_id: str) -> Shards | None:
        """The encoder's vectors as they are now, or None where it has none.

        Raises:
            ArtifactError: they are kept in another dtype, or a file is damaged.
        """
        layout = self._layout(encoder_id)
        if layout is None:
            return None
        if layout.dtype != self.dtype:
            raise ArtifactError(_mismatch(layout, f"dtype {self.dtype}", "set cache.dtype to it"))
        complete, _ = self._files(self._folder(encoder_id), layout)
        return Shards(layout, complete, self.store, self._fetch)

    def missing(self, encoder_id: str, hashes: Sequence[str] | pa.Array) -> NDArray[np.int64]:
        """Indices of the hashes that the encoder has no vector for, ascending."""
        shards = self.open(encoder_id)
        keys = keys_of(hashes)
        return np.arange(len(keys)) if shards is None else np.flatnonzero(shards.find(keys) < 0)

    def append(self, encoder_id: str, hashes: Sequence[str] | pa.Array, vectors: Vectors) -> None:
        """Keep vectors, shape (len(hashes), dimensions), in shards of their own; see `Writer.add`."""
        with self.writer(encoder_id, vectors.shape[-1]) as writer:
            writer.add(hashes, vectors)

    def writer(self, encoder_id: str, dimensions: int) -> Writer:
        """A context that keeps an encoder's vectors as they come.

        Raises:
            ArtifactError: the encoder's vectors have other dimensions or another dtype.
        """
        asked = Layout(encoder_id, dimensions, self.dtype)
        layout = self._layout(encoder_id)
        if layout is None:
            record = json.dumps(asdict(asked), indent=1).encode()
            self.store.write(f"{self._folder(encoder_id)}/encoder.json", record)
        elif layout != asked:
            raise ArtifactError(_mismatch(layout, f"{dimensions} numbers, {self.dtype}", "set cache.dtype to it"))
        return Writer(self.store, self._folder(encoder_id), asked)

    def usage(self) -> pa.Table:
        """One row per encoder: vectors, bytes of its files, and files that belong to no complete shard."""
        rows = []
        for folder in self.store.folders(_TOP):
            layout = self._read_layout(f"{_TOP}/{folder}")
            if layout is None:
                continue
            complete, orphans = self._files(f"{_TOP}/{folder}", layout)
            sizes = self.store.sizes(f"{_TOP}/{folder}")
            vectors = sum(sizes[f"{name}.keys"] // KEY_BYTES - 1 for name in complete)
            facts = {"vectors": vectors, "bytes": sum(sizes.values()), "orphans": len(orphans)}
            rows.append(asdict(layout) | facts)
        return pa.Table.from_pylist(rows, USAGE)

    def prune(self, encoder_ids: Collection[str] | None = None) -> int:
        """Delete encoders' vectors, all encoders' where none is named; returns the bytes freed."""
        known: list[str] = self.usage()["encoder_id"].to_pylist()
        freed = 0
        for encoder_id in known if encoder_ids is None else encoder_ids:
            sizes = self.store.sizes(self._folder(encoder_id))
            # Keys first: a kill leaves shards that nobody takes for complete. The record last: they stay listed.
            for name in sorted(sizes, key=lambda name: (not name.endswith(".keys"), name.endswith(".json"))):
                self._delete(name)
            freed += sum(sizes.values())
        return freed

    def prune_orphans(self, older_than: timedelta = _WRITING) -> int:
        """Delete what killed writers left, unless a writer may still be at work on it; returns the bytes freed."""
        freed = 0
        for folder in self.store.folders(_TOP):
            layout = self._read_layout(f"{_TOP}/{folder}")
            orphans = self._files(f"{_TOP}/{folder}", layout)[1] if layout else []
            for name in orphans:
                info = self.store.filesystem.get_file_info(self.store.path(name))
                if info.type == pafs.FileType.File and datetime.now(UTC) - info.mtime >= older_than:
                    self._delete(name)
                    freed += info.size
        return freed

    def _folder(self, encoder_id: str) -> str:
        return f"{_TOP}/{hashlib.sha256(encoder_id.encode()).hexdigest()[:32]}"

    def _layout(self, encoder_id: str) -> Layout | None:
        return self._read_layout(self._folder(encoder_id))

    def _read_layout(self, folder: str) -> Layout | None:
        data = self.store.read(f"{folder}/encoder.json")
        if data is None:
            return None
        try:
            layout = Layout(**json.loads(data))
            if layout.dtype not in get_args(Dtype) or layout.dimensions < 1:
                raise ValueError(f"it names {layout.dimensions} numbers of {layout.dtype}")
        except (ValueError, TypeError) as error:
            place = self.store.path(f"{folder}/encoder.json")
            raise ArtifactError(f"{place} is damaged ({error}); delete its folder") from error
        return layout

    def _files(self, folder: str, layout: Layout) -> tuple[list[str], list[str]]:
        """Names of complete shards, without endings and sorted, and of the files that belong to none."""
        sizes = self.store.sizes(folder)
        stems = sorted({name.rpartition(".")[0] for name in sizes if name.endswith(".keys")})
        complete = [stem for stem in stems if _is_complete(sizes, stem, layout)]
        whole = {f"{stem}{ending}" for stem in complete for ending in (".keys", ".vectors")}
        return complete, sorted(set(sizes) - whole - {f"{folder}/encoder.json"})

    def _delete(self, name: str) -> None:
        self.store.delete(name)
        if self.store.local is None:
            self._copies.delete(name)

    @property
    def _copies(self) -> Store:
        """Local copies of a bucket's shards, shared by this machine's processes; a shard never changes."""
        return Store(f"{default_root()}/copies/{hashlib.sha256(self.store.url.encode()).hexdigest()[:32]}")

    def _fetch(self, name: str) -> Path:
        place = self.store if self.store.local is not None else self._copies
        assert place.local is not None
        if place is not self.store and place.size(name) is None:
            data = self.store.read(name)
            if data is not None:
                place.write(name, data)
        if not (place.local / name).is_file():
            raise ArtifactError(f"{self.store.path(name)} was pruned while it was in use; start again")
        return place.local / name


def _is_complete(sizes: dict[str, int], stem: str, layout: Layout) -> bool:
    rows = sizes[f"{stem}.keys"] // KEY_BYTES - 1
    return rows > 0 and sizes.get(f"{stem}.vectors") == rows * layout.row_bytes


def _mismatch(layout: Layout, asked: str, remedy: str) -> str:
    return (
        f"the cache holds vectors of {layout.encoder_id} as {layout.dimensions} numbers, {layout.dtype}, "
        f"and {asked} was asked for; {remedy}, or prune the encoder"
    )
