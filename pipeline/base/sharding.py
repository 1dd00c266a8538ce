"""Run a stage's work on shards: an interface that is independent of the scheduler, and its in-process implementation.

Shards are plain data and work functions are module-level functions, so that both can be pickled to machines that share
only the run's root and the caches.
"""

from __future__ import annotations

import copyreg
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from darklode.pipeline.base.artifacts.parquet_writer import encode
from darklode.pipeline.base.artifacts.store import Store

Pieces = Generator[pa.Table, None, None]
"""A shard's result as a stream of tables."""


class Shard(Protocol):
    """A unit of work; must be picklable."""

    @property
    def name(self) -> str:
        """Name for display."""

    @property
    def folder(self) -> str:
        """Path of its stored result relative to the root; depends on everything that the result depends on."""


T = TypeVar("T", bound=Shard)


SHARDS_PER_PLACE = 2
"""Shards per worker: with more shards than workers, a slow one delays the others less."""


class Spread(Protocol):
    """Executes work on shards and returns results in shard order."""

    @property
    def places(self) -> int:
        """Number of shards that can be processed concurrently."""

    def __call__(self, work: Callable[[T], Pieces], shards: Sequence[T]) -> Iterator[Pieces]:
        """Callers must close results that they do not read completely."""


class Here:
    """Processes shards one after the other in this process, lazily."""

    places = 1

    def __call__(self, work: Callable[[T], Pieces], shards: Sequence[T]) -> Iterator[Pieces]:
        return map(work, shards)


here = Here()


def cuts(sizes: Sequence[int], max_size: int) -> list[tuple[int, int]]:
    """Group neighbors into ranges (first, exclusive end) of about `max_size` rows each."""
    ends = list(accumulate(sizes))
    full = [number for number in range(1, len(ends)) if ends[number - 1] // max_size < ends[number] // max_size]
    return list(zip([0, *full], [*full, len(ends)], strict=True)) if ends else []


def split_evenly(count: int, shards: int) -> list[tuple[int, int]]:
    """Split `count` items into at most `shards` non-empty ranges (first, exclusive end) of almost equal size."""
    n_parts = min(count, shards)
    return [(count * n // n_parts, count * (n + 1) // n_parts) for n in range(n_parts)]


def count_shards(count: int, places: int, workers: int | None) -> int:
    """Number of shards for `count` items: `SHARDS_PER_PLACE` per place, or one per worker if `workers` limits them.

    Args:
        count: number of items.
        places: number of shards that can be processed concurrently.
        workers: maximum number of workers; None: no limit.
    """
    return min(count, SHARDS_PER_PLACE * places if workers is None or places <= workers else workers)


def save_shard_result(store: Store, folder: str, pieces: Pieces) -> int:
    """Store a shard's result and return its number of pieces; an already stored result is not computed again.

    A result without pieces comes from work with side effects only, which is always executed.
    """
    record = store.read(f"{folder}.count")
    if record is not None:
        return int(json.loads(record))
    count = 0
    for count, piece in enumerate(pieces, 1):
        store.write(_file(folder, count), encode(piece))
    if count:
        store.write(f"{folder}.count", json.dumps(count).encode())
    return count


def load_shard_result(store: Store, folder: str, count: int) -> Pieces:
    """Read a result of `save_shard_result`."""
    for number in range(1, count + 1):
        data = store.read(_file(folder, number))
        assert data is not None, f"{folder}: piece {number} is missing in {store.url}"
        yield pq.read_table(pa.BufferReader(data))


def _file(folder: str, number: int) -> str:
    return f"{folder}-{number:05d}.parquet"


def _reduce_store(store: Store) -> tuple[type[Store], tuple[str]]:
    """Pickle a store as its URL: each machine opens it with the credentials of its own environment."""
    return Store, (store.url,)


copyreg.pickle(Store, _reduce_store)
