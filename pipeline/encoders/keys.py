"""Content hashes as 16-byte keys, and looking them up: sorted, without a Python object per key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
"""Shape (n, 2): the first and the last 16 hex digits of each hash."""

_DIGITS = 32
_VALUES = np.full(256, 255, dtype=np.uint8)
_VALUES[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16, dtype=np.uint8)


def keys_of(hashes: Sequence[str] | pa.Array | pa.ChunkedArray) -> Keys:
    """Keys of content hashes, in their order.

    Raises:
        ValueError: one of them is not 32 lower-case hex digits.
    """
    column = hashes if isinstance(hashes, (pa.Array, pa.ChunkedArray)) else pa.array(hashes, pa.string())
    pieces = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return np.concatenate([np.empty((0, 2), dtype=np.uint64), *(_piece(piece) for piece in pieces)])


def _piece(hashes: pa.Array) -> Keys:
    joined = pa.ListArray.from_arrays(pa.array([0, len(hashes)], pa.int32()), hashes.cast(pa.string()))
    lengths = pc.fill_null(pc.binary_length(hashes), 0).to_numpy(zero_copy_only=False)
    _refuse(lengths != _DIGITS, hashes)
    text = np.frombuffer(pc.binary_join(joined, "")[0].as_buffer() or b"", dtype=np.uint8).reshape(-1, _DIGITS)
    digits = _VALUES[text]
    _refuse((digits == 255).any(axis=1), hashes)
    packed = digits[:, ::2] << np.uint8(4) | digits[:, 1::2]
    return from_bytes(packed)


def _refuse(bad: NDArray[Any], hashes: pa.Array) -> None:
    if bad.any():
        raise ValueError(f"{hashes[int(bad.argmax())].as_py()!r} is no content hash: 32 hex digits are asked for")


def from_bytes(data: NDArray[np.uint8]) -> Keys:
    """Keys from rows of 16 bytes."""
    return np.ascontiguousarray(data).view(">u8").astype(np.uint64).reshape(-1, 2)


def to_bytes(keys: Keys) -> bytes:
    """16 bytes a key, in the hash's own order."""
    return keys.astype(">u8").tobytes()


def hash_of(key: NDArray[np.uint64]) -> str:
    """The hash that a key of shape (2,) stands for."""
    return f"{int(key[0]):016x}{int(key[1]):016x}"


class KeyIndex:
    """Finds keys in a list of them: 20 bytes a key, and a few seconds for ten million.

    Args:
        keys: may hold a key several times; its first place wins.
    """

    def __init__(self, keys: Keys) -> None:
        order = np.argsort(keys[:, 0], kind="stable")
        self._high = keys[order, 0]
        self._low = keys[order, 1]
        self._places = order.astype(np.uint32)

    def __len__(self) -> int:
        return len(self._high)

    def keys(self) -> Keys:
        """The list again, in its order."""
        listed = np.empty((len(self), 2), dtype=np.uint64)
        listed[self._places, 0], listed[self._places, 1] = self._high, self._low
        return listed

    def repeats(self) -> NDArray[np.int64]:
        """Places of keys that stand earlier in the list too, ascending."""
        same = np.flatnonzero(self._high[1:] == self._high[:-1]) + 1
        places = self._places[same].astype(np.int64)
        return np.sort(places[self.find(np.stack([self._high[same], self._low[same]], axis=1)) < places])

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Each key's place in the list, -1 where it has none."""
        found = np.full(len(keys), -1, dtype=np.int64)
        open_ = np.argsort(keys[:, 0], kind="stable")  # in order, neighbours share cache lines
        at = np.searchsorted(self._high, keys[open_, 0])
        while len(open_):
            reached = at < len(self._high)
            open_, at = open_[reached], at[reached]
            same = self._high[at] == keys[open_, 0]
            open_, at = open_[same], at[same]
            equal = self._low[at] == keys[open_, 1]
            found[open_[equal]] = self._places[at[equal]]
            open_, at = open_[~equal], at[~equal] + 1
        return found


class KeySet:
    """A growing set of keys; adding n of them in all costs O(n log n)."""

    def __init__(self) -> None:
        self._levels: list[Keys] = []
        self._indices: list[KeyIndex] = []

    def add(self, keys: Keys) -> NDArray[np.bool_]:
        """Add keys; true for those that were not there, each once, at its first place in `keys`."""
        fresh: NDArray[np.bool_] = KeyIndex(keys).find(keys) == np.arange(len(keys))
        for index in self._indices:
            fresh &= index.find(keys) < 0
        self._push(keys[fresh])
        return fresh

    def _push(self, keys: Keys) -> None:
        while self._levels and len(self._levels[-1]) <= 2 * len(keys):
            keys = np.concatenate([self._levels.pop(), keys])
            self._indices.pop()
        self._levels.append(keys)
        self._indices.append(KeyIndex(keys))
