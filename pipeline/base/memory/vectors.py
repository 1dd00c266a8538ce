"""Embedding cache across runs, by (encoder id, content hash).

ROOT/embeddings/<hash of the encoder id>/encoder.json     encoder id, dimensions and dtype
                                        /NAME.vectors     raw little-endian values, one row per vector
                                        /NAME.keys        16 bytes per vector; written last: the shard is complete

A keyed store whose parts are shards of raw vectors, because exact search memory-maps them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import hash_of, keys_of
from darklode.pipeline.base.memory.parts import MIN_ORPHAN_AGE, PartFiles, PartIndex
from darklode.pipeline.base.memory.shards import (
    KEY_BYTES,
    KEYS_SUFFIX,
    VECTORS_SUFFIX,
    Dtype,
    Layout,
    Shards,
    Vectors,
    decode_keys,
    encode_keys,
    vectors_of,
)
from darklode.pipeline.base.types import Keys

SHARD_BYTES = 64 << 20
"""Bytes of vectors after which a shard is written: bounds the writer's memory; smaller shards are more files."""
FLUSH_SECONDS = 10.0
"""Maximum seconds until a vector is written; a kill loses the vectors of this time."""


class VectorWriter:
    """Writes an encoder's vectors; any number of writers may work concurrently, also on other machines.

    Leaving its context writes the buffered vectors, even after an error, because they are valid. The buffer is written
    without another copy.
    """

    def __init__(self, parts: PartFiles, layout: Layout) -> None:
        self._parts, self._layout = parts, layout
        self._rows = max(1, SHARD_BYTES // layout.row_bytes)
        self._vectors: Vectors | None = None
        self._keys: list[Keys] = []
        self._filled = 0
        self._since = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.flush()

    def add(self, hashes: Sequence[str] | pa.Array, vectors: Vectors) -> None:
        """Add vectors, shape (len(hashes), dimensions), with their texts' content hashes.

        Raises:
            ArtifactError: a vector is zero, not finite, too large for the dtype, or has other dimensions; the message
                has its hash. Then none of them is added.
        """
        keys = keys_of(hashes)
        good = _check_vectors(keys, vectors, self._layout)
        for start in range(0, len(keys), self._rows):
            self._buffer_rows(keys[start : start + self._rows], good[start : start + self._rows])

    def _buffer_rows(self, keys: Keys, vectors: Vectors) -> None:
        if self._filled + len(keys) > self._rows:
            self.flush()
        self._since = self._since if self._filled else time.monotonic()
        if self._vectors is None:  # the system allocates memory as rows are filled
            self._vectors = np.empty((self._rows, self._layout.dimensions), vectors.dtype)
        self._vectors[self._filled : self._filled + len(keys)] = vectors
        self._keys.append(keys)
        self._filled += len(keys)
        if time.monotonic() - self._since >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the buffered vectors as a shard, keys last."""
        if self._vectors is None:
            return
        vectors = self._vectors[: self._filled]
        keys = encode_keys(np.concatenate(self._keys), _longest(vectors))
        self._parts.write(self._layout.encoder_id, vectors.reshape(-1).view(np.uint8).data, keys)
        self._vectors, self._keys, self._filled = None, [], 0


def _check_vectors(keys: Keys, vectors: Vectors, layout: Layout) -> Vectors:
    if vectors.ndim != 2 or vectors.shape != (len(keys), layout.dimensions):
        first = f" (the first is {hash_of(keys[0])})" if len(keys) else ""
        raise ArtifactError(
            f"{layout.encoder_id} gave vectors of shape {vectors.shape} for {len(keys)} texts{first}; "
            f"expected ({len(keys)}, {layout.dimensions}); none was cached"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        stored = np.array(vectors, dtype=np.dtype(layout.dtype).newbyteorder("<"))
    for bad, problem in (
        (~np.isfinite(stored).all(axis=1), "a value that is not finite"),
        (~stored.any(axis=1), "only zeros"),
    ):
        if bad.any():
            name = hash_of(keys[int(bad.argmax())])
            raise ArtifactError(
                f"{layout.encoder_id} gave a vector with {problem} for the text {name} and {int(bad.sum()) - 1} "
                "others; none of its batch was cached. Check the encoder's dtype and this text"
            )
    return stored


def _longest(vectors: Vectors) -> float:
    return max(
        float(np.linalg.norm(vectors[start : start + 4096].astype(np.float64), axis=1).max())
        for start in range(0, len(vectors), 4096)
    )


USAGE_SCHEMA = pa.schema(
    [
        pa.field("encoder_id", pa.string()),
        pa.field("vectors", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("dtype", pa.string()),
        pa.field("dimensions", pa.int32()),
        pa.field("orphans", pa.int64()),
    ]
)


class EmbeddingCache:
    """Cached vectors of all encoders below a root.

    Args:
        root: a folder or an s3:// prefix; null: `default_root()`.
        dtype: dtype of stored vectors; all vectors of an encoder have the same.

    Raises:
        ArtifactError: the root is neither a folder nor an s3:// prefix.
    """

    def __init__(self, root: str | None, dtype: Dtype) -> None:
        self.parts = PartFiles(root, "embeddings", "encoder", (VECTORS_SUFFIX, KEYS_SUFFIX), "delete its folder")
        self.dtype: Dtype = dtype

    def open(self, encoder_id: str) -> Shards | None:
        """Open the encoder's vectors; None if there are none.

        Raises:
            ArtifactError: they have another dtype, or a file is damaged.
        """
        layout = self._layout(encoder_id)
        if layout is None:
            return None
        if layout.dtype != self.dtype:
            raise ArtifactError(_mismatch(layout, f"dtype {self.dtype}", "set cache.vector_dtype to it"))
        lengths: list[float] = []

        def read(name: str) -> Keys:
            keys, longest = self._keys(name)
            lengths.append(longest)
            return keys

        folder = self.parts.folder(encoder_id)
        index = PartIndex(lambda: self._complete(layout), read, self.parts.store.path(folder))
        index.refresh()
        return Shards(layout, index, self.parts.fetch, max(lengths, default=0.0))

    def missing(self, encoder_id: str, hashes: Sequence[str] | pa.Array) -> NDArray[np.int64]:
        """Indices of hashes without a vector, ascending."""
        shards = self.open(encoder_id)
        keys = keys_of(hashes)
        return np.arange(len(keys)) if shards is None else np.flatnonzero(shards.find(keys) < 0)

    def append(self, encoder_id: str, hashes: Sequence[str] | pa.Array, vectors: Vectors) -> None:
        """Write vectors, shape (len(hashes), dimensions), as new shards; see `VectorWriter.add`."""
        with self.writer(encoder_id, vectors.shape[-1]) as writer:
            writer.add(hashes, vectors)

    def writer(self, encoder_id: str, dimensions: int) -> VectorWriter:
        """A context manager for writing an encoder's vectors.

        Raises:
            ArtifactError: the encoder's vectors have other dimensions or another dtype.
        """
        requested_layout = Layout(encoder_id, dimensions, self.dtype)
        layout = self._layout(encoder_id)
        if layout is None:
            self.parts.register(encoder_id, dimensions=dimensions, dtype=self.dtype)
        elif layout != requested_layout:
            raise ArtifactError(
                _mismatch(layout, f"{dimensions} dimensions, {self.dtype}", "set cache.vector_dtype to it")
            )
        return VectorWriter(self.parts, requested_layout)

    def usage(self) -> pa.Table:
        """One row per encoder: vectors, bytes, and number of orphaned files."""
        rows = []
        for layout in self._layouts():
            complete, sizes = self._complete(layout), self.parts.sizes(layout.encoder_id)
            vectors = sum(sizes[name] // KEY_BYTES - 1 for name in complete)
            orphans = self.parts.orphans(layout.encoder_id, _files(complete))
            rows.append(asdict(layout) | {"vectors": vectors, "bytes": sum(sizes.values()), "orphans": len(orphans)})
        return pa.Table.from_pylist(rows, USAGE_SCHEMA)

    def prune(self, encoder_ids: Collection[str] | None = None) -> int:
        """Delete vectors of some encoders, or of all (None); returns the bytes freed."""
        pruned_ids = [layout.encoder_id for layout in self._layouts()] if encoder_ids is None else encoder_ids
        return sum(self.parts.prune(encoder_id) for encoder_id in pruned_ids)

    def prune_orphans(self, older_than: timedelta = MIN_ORPHAN_AGE) -> int:
        """Delete orphaned files of killed writers that are old enough; returns the bytes freed."""
        return sum(
            self.parts.prune_orphans(layout.encoder_id, _files(self._complete(layout)), older_than)
            for layout in self._layouts()
        )

    def _layouts(self) -> list[Layout]:
        return [self._read(record) for record in self.parts.records()]

    def _layout(self, encoder_id: str) -> Layout | None:
        record = self.parts.record(self.parts.folder(encoder_id))
        return self._read(record) if record else None

    def _read(self, record: dict[str, Any]) -> Layout:
        try:
            layout = Layout(**record)
            if layout.dtype not in get_args(Dtype) or layout.dimensions < 1:
                raise ValueError(f"it names {layout.dimensions} numbers of {layout.dtype}")
        except (ValueError, TypeError) as error:
            raise self.parts.damage_error(self.parts.folder(record["encoder_id"]), error) from error
        return layout

    def _complete(self, layout: Layout) -> list[str]:
        """Keys files of complete shards, oldest first."""
        sizes = self.parts.sizes(layout.encoder_id)
        return [name for name in sorted(sizes) if name.endswith(KEYS_SUFFIX) and _is_complete(sizes, name, layout)]

    def _keys(self, name: str) -> tuple[Keys, float]:
        data = self.parts.store.read(name)
        if data is None:
            raise FileNotFoundError(name)
        try:
            return decode_keys(data)
        except ValueError as error:
            path = self.parts.store.path(name)
            raise ArtifactError(f"{path} is damaged ({error}); prune the encoder") from error


def _is_complete(sizes: dict[str, int], name: str, layout: Layout) -> bool:
    rows = sizes[name] // KEY_BYTES - 1
    return rows > 0 and sizes.get(vectors_of(name)) == rows * layout.row_bytes


def _files(complete: list[str]) -> list[str]:
    """All files of some shards."""
    return [*complete, *map(vectors_of, complete)]


def _mismatch(layout: Layout, requested: str, remedy: str) -> str:
    return (
        f"the cache has vectors of {layout.encoder_id} with {layout.dimensions} dimensions, {layout.dtype}, "
        f"not {requested}; {remedy}, or prune the encoder"
    )
