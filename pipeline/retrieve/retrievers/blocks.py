"""Where exact search reads vectors from: an array, or one tenant's share of the embedding cache."""

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
"""Position of the first vector, and the vectors: shape (b, dimensions), float32 or float16, not to be changed."""

T = TypeVar("T")


class Vectors(Protocol):
    """Different vectors at positions 0 … len - 1, none zero, each standing for one chunk or several.

    Attributes:
        dimensions: length of a vector, as a count of numbers.
        longest: no vector's Euclidean length exceeds it.
        n_chunks: how many chunks the vectors stand for.
        first_rows: each position's lowest chunk row, shape (len,).
    """

    dimensions: int
    longest: float
    n_chunks: int
    first_rows: NDArray[np.int64]

    def __len__(self) -> int: ...

    def blocks(self, rows: int, readers: int = 1) -> Iterator[Block]:
        """All vectors in order of position, at most `rows` at a time, for threads that hold one block each."""
        ...

    def take(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Vectors at positions, in their order."""
        ...

    def chunks_of(self, first_rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The chunks of the vectors with these first rows, ascending per vector, and how many each vector has."""
        ...


class ArrayVectors:
    """An array in memory, one vector per chunk.

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

    def blocks(self, rows: int, readers: int = 1) -> Iterator[Block]:  # noqa: ARG002 - nothing is let go here
        return ((start, self._array[start : start + rows]) for start in range(0, self.n_chunks, rows))

    def take(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self._array[positions])

    def chunks_of(self, first_rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return first_rows, np.ones(len(first_rows), dtype=np.int64)


class CachedVectors:
    """One tenant's vectors in the embedding cache, read in the order in which they lie there.

    Chunks of one text share a vector, which is scored once. What a block needs is mapped, not copied, where its
    vectors lie side by side; the next block is made ready meanwhile.

    Args:
        shards: the encoder's cached vectors.
        hashes: content hashes of the tenant's chunks, in chunk order.
        keep_mapped: bytes of vectors up to which their memory is kept for the next search.

    Raises:
        ArtifactError: a chunk has no vector.
    """

    def __init__(
        self, shards: Shards, hashes: Sequence[str] | pa.Array | pa.ChunkedArray, keep_mapped: int = 1 << 29
    ) -> None:
        self._shards = shards
        self.dimensions, self.longest = shards.layout.dimensions, shards.longest
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
        for block, used in read_ahead(lambda start: self._load(start, min(start + rows, len(self))), starts):
            yield block
            in_use.append(used)
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
        within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
        return self._rows[np.repeat(self._starts[positions], counts) + within], counts

    def positions(self) -> NDArray[np.int64]:
        """Each chunk row's position, shape (n_chunks,)."""
        positions = np.empty(self.n_chunks, np.int64)
        positions[self._rows] = np.repeat(np.arange(len(self)), np.diff(self._starts))
        return positions

    def _load(self, start: int, end: int) -> tuple[Block, list[tuple[MappedVectors, int, int]]]:
        shards, rows = self._shards.locate(self._numbers[start:end])
        cuts = [0, *(np.flatnonzero(np.diff(shards)) + 1), len(shards)]
        used, pieces = [], []
        for first, last in pairwise(cuts):
            mapped, low, high = self._shards.shard(int(shards[first])), int(rows[first]), int(rows[last - 1]) + 1
            used.append((mapped, low, high))
            mapped.prefetch(low, high)
            pieces.append(mapped.rows[low:high] if high - low == last - first else mapped.rows[rows[first:last]])
        return (start, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)), used


def _numbers(shards: Shards, keys: Keys) -> NDArray[np.int64]:
    numbers = shards.find(keys)
    if (numbers < 0).any():
        absent = keys[int((numbers < 0).argmax())]
        raise ArtifactError(
            f"{int((numbers < 0).sum())} of {len(keys)} chunks have no vector of {shards.layout.encoder_id} in the "
            f"cache, the first has the content hash {hash_of(absent)}; encode them before searching"
        )
    return numbers


def read_ahead(load: Callable[[int], T], starts: Iterable[int]) -> Iterator[T]:
    """What `load` gives for each start, in order, the next one loaded in a thread while this one is in use."""
    with ThreadPoolExecutor(1, thread_name_prefix="darklode-read-ahead") as thread:
        coming = None
        for start in starts:
            ready, coming = coming, thread.submit(load, start)
            if ready is not None:
                yield ready.result()
        if coming is not None:
            yield coming.result()
