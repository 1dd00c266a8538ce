"""Content hashes as 16-byte keys, and an index of them in sorted arrays, without a Python object per key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.types import Keys

_DIGITS = 32
_DIGIT_VALUES = np.full(256, 255, dtype=np.uint8)
_DIGIT_VALUES[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16, dtype=np.uint8)


def keys_of(hashes: Sequence[str] | pa.Array | pa.ChunkedArray) -> Keys:
    """Keys of content hashes, in order.

    Raises:
        ValueError: a hash is not 32 lower-case hex digits.
    """
    column = hashes if isinstance(hashes, (pa.Array, pa.ChunkedArray)) else pa.array(hashes, pa.string())
    pieces = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return np.concatenate([np.empty((0, 2), dtype=np.uint64), *(_piece(piece) for piece in pieces)])


def _piece(hashes: pa.Array) -> Keys:
    joined = pa.ListArray.from_arrays(pa.array([0, len(hashes)], pa.int32()), hashes.cast(pa.string()))
    lengths = pc.fill_null(pc.binary_length(hashes), 0).to_numpy(zero_copy_only=False)
    _check_hashes(lengths != _DIGITS, hashes)
    text = np.frombuffer(pc.binary_join(joined, "")[0].as_buffer() or b"", dtype=np.uint8).reshape(-1, _DIGITS)
    digits = _DIGIT_VALUES[text]
    _check_hashes((digits == 255).any(axis=1), hashes)
    packed = digits[:, ::2] << np.uint8(4) | digits[:, 1::2]
    return from_bytes(packed)


def _check_hashes(bad: NDArray[Any], hashes: pa.Array) -> None:
    if bad.any():
        raise ValueError(f"{hashes[int(bad.argmax())].as_py()!r} is not a content hash (32 hex digits)")


def from_bytes(data: NDArray[np.uint8]) -> Keys:
    """Keys from rows of 16 bytes."""
    return np.ascontiguousarray(data).view(">u8").astype(np.uint64).reshape(-1, 2)


def to_bytes(keys: Keys) -> bytes:
    """16 bytes per key, in the byte order of the hash."""
    return keys.astype(">u8").tobytes()


def hash_of(key: NDArray[np.uint64]) -> str:
    """The hash of a key of shape (2,)."""
    return f"{int(key[0]):016x}{int(key[1]):016x}"


_SortedRun = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint32]]
"""First halves, sorted; last halves; numbers."""


class KeyIndex:
    """An index of keys in a growing list, numbered in order of arrival: 20 bytes per key, up to 2³² keys.

    Log-structured: sorted runs, each at least twice as long as the next, so that adding n keys costs O(n log n).

    Args:
        keys: initial keys; keys may be repeated.
    """

    def __init__(self, keys: Keys | None = None) -> None:
        self._runs: list[_SortedRun] = []
        self._length = 0
        if keys is not None:
            self.add(keys)

    def __len__(self) -> int:
        return self._length

    def add(self, keys: Keys) -> None:
        """Append keys to the list."""
        if not len(keys):
            return
        order = np.argsort(keys[:, 0])
        numbers = (order + self._length).astype(np.uint32)
        run: _SortedRun = keys[order, 0], keys[order, 1], numbers
        while self._runs and len(self._runs[-1][0]) <= 2 * len(run[0]):
            run = _merge_runs(self._runs.pop(), run)
        self._runs.append(run)
        self._length += len(keys)

    def add_new(self, keys: Keys) -> NDArray[np.bool_]:
        """Append the keys that are not in the list yet; returns their mask (first occurrences in `keys`)."""
        new = first_of_each(keys) & (self.find(keys) < 0)
        self.add(keys[new])
        return new

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Number of each key in the list: the first if it occurs several times, -1 if it does not occur."""
        positions = np.full(len(keys), self._length, dtype=np.int64)
        for rows, numbers in self._pieces(keys):
            positions[rows] = np.minimum(positions[rows], numbers)
        positions[positions == self._length] = -1
        return positions

    def matches(self, keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All occurrences of `keys` in the list: rows of `keys`, ascending, and their numbers, ascending."""
        pieces = list(self._pieces(keys))
        rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in pieces)])
        numbers = np.concatenate([np.empty(0, np.int64), *(numbers for _, numbers in pieces)])
        order = np.lexsort((numbers, rows))
        return rows[order], numbers[order]

    def _pieces(self, keys: Keys) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        order = np.argsort(keys[:, 0])  # sorted look-ups share cache lines
        return (piece for run in self._runs for piece in _match_run(run, keys, order))

    def find_duplicates(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Occurrences of repeated keys: an index of the key, ascending, and its numbers, ascending."""
        while len(self._runs) > 1:
            last = self._runs.pop()
            self._runs.append(_merge_runs(self._runs.pop(), last))
        if not self._runs:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        high, low, _ = self._runs[0]
        same = np.flatnonzero(high[1:] == high[:-1])
        neighbors = np.union1d(same, same + 1)
        rows, numbers = self.matches(np.unique(np.stack([high[neighbors], low[neighbors]], axis=1), axis=0))
        several = np.bincount(rows)[rows] > 1
        return rows[several], numbers[several]


def first_of_each(keys: Keys) -> NDArray[np.bool_]:
    """Mask of first occurrences."""
    return np.asarray(KeyIndex(keys).find(keys) == np.arange(len(keys)))


def _merge_runs(first: _SortedRun, second: _SortedRun) -> _SortedRun:
    high = np.concatenate([first[0], second[0]])
    order = np.argsort(high, kind="stable")  # stable sort merges two sorted runs in one pass
    low, numbers = np.concatenate([first[1], second[1]]), np.concatenate([first[2], second[2]])
    return high[order], low[order], numbers[order]


def _match_run(
    run: _SortedRun, keys: Keys, order: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield rows and numbers of the keys in a run; `order` sorts the first halves of the keys."""
    high, low, numbers = run
    rows, positions = order, np.searchsorted(high, keys[order, 0])
    while len(rows):
        in_range = positions < len(high)
        rows, positions = rows[in_range], positions[in_range]
        same_high = high[positions] == keys[rows, 0]
        rows, positions = rows[same_high], positions[same_high]
        is_match = low[positions] == keys[rows, 1]
        yield rows[is_match], numbers[positions[is_match]].astype(np.int64)
        positions = positions + 1
