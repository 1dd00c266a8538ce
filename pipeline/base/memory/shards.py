"""Complete shards of one encoder's vectors: files that never change, memory-mapped, read by many processes at once."""

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
VECTORS, KEYS = ".vectors", ".keys"


@dataclass(frozen=True)
class Layout:
    """What `encoder.json` records: every vector of an encoder has this form."""

    encoder_id: str
    dimensions: int
    dtype: Dtype

    @property
    def row_bytes(self) -> int:
        return self.dimensions * np.dtype(self.dtype).itemsize


def encode_keys(keys: Keys, longest: float) -> bytes:
    """A keys file: 16 bytes a key, then 16 for the number of keys and the largest length of their vectors."""
    return to_bytes(keys) + np.uint64(len(keys)).tobytes() + np.float64(longest).tobytes()


def decode_keys(data: bytes) -> tuple[Keys, float]:
    """What `encode_keys` wrote.

    Raises:
        ValueError: it is something else.
    """
    if len(data) < KEY_BYTES or len(data) % KEY_BYTES:
        raise ValueError("no keys file: its length is no multiple of 16")
    keys = from_bytes(np.frombuffer(data[:-KEY_BYTES], dtype=np.uint8).reshape(-1, KEY_BYTES))
    count, longest = np.frombuffer(data[-16:-8], dtype="<u8")[0], np.frombuffer(data[-8:], dtype="<f8")[0]
    if count != len(keys):
        raise ValueError(f"no keys file: {len(keys)} keys where {count} are announced")
    return keys, float(longest)


def vectors_of(name: str) -> str:
    """The file of the vectors to a file of keys."""
    return name.removesuffix(KEYS) + VECTORS


class Mapped:
    """A file of vectors in memory: pages come when they are read and can be given back."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        # A private copy-on-write map counts as writable, which spares NumPy and torch a copy; nobody writes.
        self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_COPY)
        self.rows: Vectors = np.frombuffer(self._map, dtype=np.dtype(layout.dtype).newbyteorder("<")).reshape(
            -1, layout.dimensions
        )
        self._row_bytes = layout.row_bytes

    def read(self, rows: NDArray[np.int64]) -> Vectors:
        """Copies of rows, read from the file: mapped, a row here and there can bring 2 MB of neighbours along."""
        out = np.empty((len(rows), self.rows.shape[1]), dtype=self.rows.dtype)
        for start, row in zip((rows * self._row_bytes).tolist(), out, strict=True):
            os.preadv(self._file, [row.data], start)
        return out

    def prefetch(self, first: int, end: int) -> None:
        """Tell the system that rows are needed soon."""
        self._advise("MADV_WILLNEED", first, end)

    def release(self, first: int, end: int) -> None:
        """Let go of the memory of rows; reading them again brings them back."""
        self._advise("MADV_DONTNEED", first, end)

    def _advise(self, name: str, first: int, end: int) -> None:
        advice = getattr(mmap, name, None)
        start = first * self._row_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        if advice is not None and end > first:
            self._map.madvise(advice, start, end * self._row_bytes - start)


class Shards:
    """One encoder's cached vectors as they were when opened; what is appended later is not seen.

    Vectors are numbered through all shards in the order of the shards' names.

    Args:
        layout: their form.
        index: finds them; of vectors under one key, the first.
        fetch: gives a local path for a file of the store.
        longest: the largest length of a vector.
    """

    def __init__(self, layout: Layout, index: PartIndex, fetch: Callable[[str], Path], longest: float) -> None:
        self.layout, self.longest = layout, longest
        self._index, self._fetch = index, fetch
        self._mapped: dict[int, Mapped] = {}

    def __len__(self) -> int:
        return len(self._index)

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Each key's vector number, -1 where it is not cached."""
        return self._index.keys.find(keys)

    def locate(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each vector's shard and its row there."""
        return self._index.locate(numbers)

    def shard(self, number: int) -> Mapped:
        """A shard's vectors, fetched and mapped at the first use.

        Raises:
            ArtifactError: it was pruned since the cache was opened.
        """
        if number not in self._mapped:
            self._mapped[number] = Mapped(self._fetch(vectors_of(self._index.names[number])), self.layout)
        return self._mapped[number]

    def take(self, numbers: NDArray[np.int64], map_them: bool = True) -> Vectors:
        """Copies of vectors, shape (len(numbers), dimensions), in the order asked for.

        Args:
            numbers: which.
            map_them: whether memory may fill with what lies around them, which is faster the next time.
        """
        out = np.empty((len(numbers), self.layout.dimensions), dtype=self.layout.dtype)
        for shard, places, rows in self._index.by_part(numbers):
            mapped = self.shard(shard)
            out[places] = mapped.rows[rows] if map_them else mapped.read(rows)
        return out

    def release(self) -> None:
        """Let go of the memory of every shard mapped so far."""
        for mapped in list(self._mapped.values()):
            mapped.release(0, len(mapped.rows))
