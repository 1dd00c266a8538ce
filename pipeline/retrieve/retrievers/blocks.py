"""Sources of vectors for exact search: an array, or one tenant's vectors in the embedding cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.memory.keys import hash_of, keys_of
from darklode.pipeline.base.memory.shards import MappedVectors, Shards
from darklode.pipeline.base.types import Keys

Block = tuple[int, NDArray[Any]]
"""Position of the first vector, and the vectors: shape (b, dimensions), float32 or float16, read-only."""

T = TypeVar("T")


class Vectors(Protocol):
    """Vectors at positions 0 … len - 1, none of them zero. Chunks with equal texts share a vector.

    Attributes:
        dimensions: number of components of a vector.
        longest: upper bound of the vectors' Euclidean lengths. If it is too small, exact search misses results.
        n_chunks: number of chunks.
        first_rows: lowest chunk row of each vector, shape (len,).
    """

    dimensions: int
    longest: float
    n_chunks: int
    first_rows: NDArray[np.int64]

    def __len__(self) -> int: ...

    def blocks(self, rows: int, readers: int = 1) -> Iterator[Block]:
        """Yield all vectors by position, at most `rows` at a time.

        Args:
            rows: maximum number of vectors per block.
            readers: number of threads that use one block each; memory of earlier blocks may be released.
        """
        ...

    def take(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Vectors at the given positions, in that order."""
        ...

    def chunks_of(self, first_rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Chunk rows of the vectors with these first rows, ascending per vector, and the number of rows per vector."""
        ...


class ArrayVectors:
    """Vectors in an array in memory, one per chunk.

    Args:
        array: shape (n_chunks, dimensions), float32 or float16.

    Raises:
        ValueError: a vector is zero or not finite.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.n_chunks, self.dimensions = int(array.shape[0]), int(array.shape[1])
        self.first_rows = np.arange(self.n_chunks)
        self.longest = 0.0
        for start, block in self.blocks(8192):
            squares = np.einsum("ij,ij->i", block, block, dtype=np.float64)
            bad = ~(np.isfinite(squares) & (squares > 0))
            if bad.any():
                raise ValueError(f"vector {start + int(bad.argmax())} is zero or not finite; leave it out")
            self.longest = max(self.longest, float(np.sqrt(squares.max())) * (1 + 1e-6))

    def __len__(self) -> int:
        return len(self._array)

    def blocks(self, rows: int, readers: int = 1) -> Iterator[Block]:  # noqa: ARG002 - no memory is released here
        return ((start, self._array[start : start + rows]) for start in range(0, self.n_chunks, rows))

    def take(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self._array[positions])

    def chunks_of(self, first_rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return first_rows, np.ones(len(first_rows), dtype=np.int64)


class CachedVectors:
    """One tenant's vectors in the embedding cache, read in storage order.

    Chunks with equal texts share a vector, which is scored once. Adjacent vectors are memory-mapped, not copied, and
    the next block is prefetched.

    Args:
        shards: the encoder's cached vectors.
        hashes: content hashes of the tenant's chunks, in chunk order.
        keep_mapped: if the vectors have at most this many bytes, their pages stay in memory for the next search.

    Raises:
        ArtifactError: a chunk has no vector.
    """

    def __init__(
        self, shards: Shards, hashes: Sequence[str] | pa.Array | pa.ChunkedArray, keep_mapped: int = 1 << 29
    ) -> None:
        self._shards = shards
        self.dimensions = shards.layout.dimensions
        self.longest = shards.longest
        numbers = _numbers(shards, keys_of(hashes))
        self.n_chunks = len(numbers)
        self._rows = np.argsort(numbers, kind="stable")
        ordered = numbers[self._rows]
        self._starts = np.flatnonzero(np.diff(ordered, prepend=-1, append=-2))
        self._numbers = ordered[self._starts[:-1]]
        self.first_rows = self._rows[self._starts[:-1]]
        self._position_of = np.empty(self.n_chunks, dtype=np.int64)
        self._position_of[self.first_rows] = np.arange(len(self))
        self._release = len(self) * shards.layout.row_bytes > keep_mapped

    def __len__(self) -> int:
        return len(self._numbers)

    def blocks(self, rows: int, readers: int = 1) -> Iterator[Block]:
        starts = range(0, len(self), rows)
        in_use: deque[list[tuple[MappedVectors, int, int]]] = deque()
        for block, block_ranges in read_ahead(lambda start: self._load(start, min(start + rows, len(self))), starts):
            yield block
            in_use.append(block_ranges)
            if self._release and len(in_use) > readers:
                for mapped, first, end in in_use.popleft():
                    mapped.release(first, end)
        if self._release:
            self._shards.release()

    def take(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        return self._shards.take(self._numbers[positions], map_them=not self._release)

    def chunks_of(self, first_rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        positions = self._position_of[first_rows]
        counts = self._starts[positions + 1] - self._starts[positions]
        ends = np.cumsum(counts)
        offset_in_vector = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
        return self._rows[np.repeat(self._starts[positions], counts) + offset_in_vector], counts

    def positions(self) -> NDArray[np.int64]:
        """Vector position of each chunk row, shape (n_chunks,)."""
        positions = np.empty(self.n_chunks, np.int64)
        positions[self._rows] = np.repeat(np.arange(len(self)), np.diff(self._starts))
        return positions

    def _load(self, start: int, end: int) -> tuple[Block, list[tuple[MappedVectors, int, int]]]:
        """Load the vectors at positions start to end; also returns the mapped ranges, to be released after use."""
        shards, rows = self._shards.locate(self._numbers[start:end])
        shard_starts = [0, *(np.flatnonzero(np.diff(shards)) + 1), len(shards)]
        ranges = []
        pieces = []
        for first, last in pairwise(shard_starts):
            mapped = self._shards.shard(int(shards[first]))
            low = int(rows[first])
            high = int(rows[last - 1]) + 1
            ranges.append((mapped, low, high))
            mapped.prefetch(low, high)
            is_contiguous = high - low == last - first
            pieces.append(mapped.rows[low:high] if is_contiguous else mapped.rows[rows[first:last]])
        return (start, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)), ranges


def _numbers(shards: Shards, keys: Keys) -> NDArray[np.int64]:
    """Number of each chunk's vector in the cache.

    Raises:
        ArtifactError: a chunk has no vector.
    """
    numbers = shards.find(keys)
    if (numbers < 0).any():
        absent = keys[int((numbers < 0).argmax())]
        raise ArtifactError(
            f"{int((numbers < 0).sum())} of {len(keys)} chunks have no vector of {shards.layout.encoder_id} in the "
            f"cache, the first has the content hash {hash_of(absent)}; encode them before searching"
        )
    return numbers


def read_ahead(load: Callable[[int], T], starts: Iterable[int]) -> Iterator[T]:
    """Yield `load(start)` for each start, in order; the next result is loaded in a thread while one is in use."""
    with ThreadPoolExecutor(1, thread_name_prefix="darklode-read-ahead") as thread:
        pending = None
        for start in starts:
            previous, pending = pending, thread.submit(load, start)
            if previous is not None:
                yield previous.result()
        if pending is not None:
            yield pending.result()
