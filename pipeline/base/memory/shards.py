"""Complete shards of an encoder's vectors: immutable, memory-mapped files, shared by many processes."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.memory.keys import from_bytes, to_bytes
from darklode.pipeline.base.memory.parts import PartIndex
from darklode.pipeline.base.types import Keys

Vectors = NDArray[Any]
Dtype = Literal["float32", "float16"]

KEY_BYTES = 16
VECTORS_SUFFIX, KEYS_SUFFIX = ".vectors", ".keys"


@dataclass(frozen=True)
class Layout:
    """Content of `encoder.json`: dimensions and dtype of all vectors of an encoder."""

    encoder_id: str
    dimensions: int
    dtype: Dtype

    @property
    def row_bytes(self) -> int:
        return self.dimensions * np.dtype(self.dtype).itemsize


def encode_keys(keys: Keys, longest: float) -> bytes:
    """A keys file: 16 bytes per key, then 16 for the number of keys and the largest vector norm."""
    return to_bytes(keys) + np.uint64(len(keys)).tobytes() + np.float64(longest).tobytes()


def decode_keys(data: bytes) -> tuple[Keys, float]:
    """Decode a keys file; returns keys and the largest vector norm.

    Raises:
        ValueError: invalid data.
    """
    if len(data) < KEY_BYTES or len(data) % KEY_BYTES:
        raise ValueError("not a keys file: its length is not a multiple of 16")
    keys = from_bytes(np.frombuffer(data[:-KEY_BYTES], dtype=np.uint8).reshape(-1, KEY_BYTES))
    count, longest = np.frombuffer(data[-16:-8], dtype="<u8")[0], np.frombuffer(data[-8:], dtype="<f8")[0]
    if count != len(keys):
        raise ValueError(f"not a keys file: {len(keys)} keys, expected {count}")
    return keys, float(longest)


def vectors_of(name: str) -> str:
    """Name of the vectors file of a keys file."""
    return name.removesuffix(KEYS_SUFFIX) + VECTORS_SUFFIX


class MappedVectors:
    """A memory-mapped file of vectors; pages are loaded on access and can be released."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        # A private copy-on-write map counts as writable, so that NumPy and torch need no copy; it is never written.
        self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_COPY)
        self.rows: Vectors = np.frombuffer(self._map, dtype=np.dtype(layout.dtype).newbyteorder("<")).reshape(
            -1, layout.dimensions
        )
        self._row_bytes = layout.row_bytes

    def read(self, rows: NDArray[np.int64]) -> Vectors:
        """Read copies of rows from the file: a mapped access can load 2 MB of neighboring rows."""
        out = np.empty((len(rows), self.rows.shape[1]), dtype=self.rows.dtype)
        for start, row in zip((rows * self._row_bytes).tolist(), out, strict=True):
            os.preadv(self._file, [row.data], start)
        return out

    def prefetch(self, first: int, end: int) -> None:
        """Advise the system that rows are needed soon."""
        self._advise("MADV_WILLNEED", first, end)

    def release(self, first: int, end: int) -> None:
        """Release the memory of rows; they are loaded again on access."""
        self._advise("MADV_DONTNEED", first, end)

    def _advise(self, name: str, first: int, end: int) -> None:
        advice = getattr(mmap, name, None)
        start = first * self._row_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        if advice is not None and end > first:
            self._map.madvise(advice, start, end * self._row_bytes - start)


class Shards:
    """A snapshot of an encoder's cached vectors; later appends are not visible.

    Vectors are numbered across shards, in the order of shard names.

    Args:
        layout: dimensions and dtype.
        index: index of keys; of several vectors with a key, the first is used.
        fetch: returns a local path of a file in the store.
        longest: the largest vector norm.
    """

    def __init__(self, layout: Layout, index: PartIndex, fetch: Callable[[str], Path], longest: float) -> None:
        self.layout, self.longest = layout, longest
        self._index, self._fetch = index, fetch
        self._mapped: dict[int, MappedVectors] = {}

    def __len__(self) -> int:
        return len(self._index)

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Vector number of each key; -1 if it is not cached."""
        return self._index.keys.find(keys)

    def locate(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shard of each vector, and the row in the shard."""
        return self._index.locate(numbers)

    def shard(self, number: int) -> MappedVectors:
        """Vectors of a shard, fetched and mapped at the first use.

        Raises:
            ArtifactError: the shard was pruned after the cache was opened.
        """
        if number not in self._mapped:
            self._mapped[number] = MappedVectors(self._fetch(vectors_of(self._index.names[number])), self.layout)
        return self._mapped[number]

    def take(self, numbers: NDArray[np.int64], map_them: bool = True) -> Vectors:
        """Copies of vectors, shape (len(numbers), dimensions), in the given order.

        Args:
            numbers: vector numbers.
            map_them: read through the memory map, which also caches neighboring vectors.
        """
        out = np.empty((len(numbers), self.layout.dimensions), dtype=self.layout.dtype)
        for shard, places, rows in self._index.by_part(numbers):
            mapped = self.shard(shard)
            out[places] = mapped.rows[rows] if map_them else mapped.read(rows)
        return out

    def release(self) -> None:
        """Release the memory of all mapped shards."""
        for mapped in list(self._mapped.values()):
            mapped.release(0, len(mapped.rows))
