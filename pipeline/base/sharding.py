"""Spreading a stage's work over shards: a port that knows no scheduler, and the one place that is always there.

A shard is plain data (URLs, names, settings), and the work on it a function of a module: both can travel to a machine
that shares nothing with this one but the run's root and the caches.
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
"""A result, piece by piece, so that nobody needs to hold all of it."""


class Shard(Protocol):
    """A piece of work. What it holds can be pickled."""

    @property
    def name(self) -> str:
        """What a person sees of it."""

    @property
    def folder(self) -> str:
        """Where below the root its result may wait: a name of all that the result depends on."""


T = TypeVar("T", bound=Shard)


SHARDS = 2
"""For each place: one that is slow holds the others up less."""


class Spread(Protocol):
    """Does work on shards, and gives their results in the shards' order."""

    @property
    def places(self) -> int:
        """How many shards can be worked on at once."""

    def __call__(self, work: Callable[[T], Pieces], shards: Sequence[T]) -> Iterator[Pieces]:
        """Close a result that is not read to its end."""


class Here:
    """One shard after the other in this process, each begun when its result is first asked for."""

    places = 1

    def __call__(self, work: Callable[[T], Pieces], shards: Sequence[T]) -> Iterator[Pieces]:
        return map(work, shards)


here = Here()


def cuts(sizes: Sequence[int], max_size: int) -> list[tuple[int, int]]:
    """Neighbours that go together: first, and one past the last, of each group, `max_size` rows in it or about."""
    ends = list(accumulate(sizes))
    full = [number for number in range(1, len(ends)) if ends[number - 1] // max_size < ends[number] // max_size]
    return list(zip([0, *full], [*full, len(ends)], strict=True)) if ends else []


def split_evenly(count: int, shards: int) -> list[tuple[int, int]]:
    """So many things in their order, dealt to at most so many shards: first and one past the last; none is empty."""
    n_parts = min(count, shards)
    return [(count * n // n_parts, count * (n + 1) // n_parts) for n in range(n_parts)]


def worked_apart(count: int, places: int, workers: int | None) -> int:
    """How many shards so many things make: `SHARDS` for each place, or one for each worker that may be at work.

    Args:
        count: of the things.
        places: how many shards can be worked on at once.
        workers: at most so many may be at work; None: any number.
    """
    return min(count, SHARDS * places if workers is None or places <= workers else workers)


def save_shard_result(store: Store, folder: str, pieces: Pieces) -> int:
    """Keep a shard's result below the root, and count its pieces; a result that is kept already is not made again.

    A result without pieces was work for its effect: nothing is known of it, and it is always done.
    """
    record = store.read(f"{folder}.parked")
    if record is not None:
        return int(json.loads(record))
    count = 0
    for count, piece in enumerate(pieces, 1):
        store.write(_file(folder, count), encode(piece))
    if count:
        store.write(f"{folder}.parked", json.dumps(count).encode())
    return count


def load_shard_result(store: Store, folder: str, count: int) -> Pieces:
    """What `save_shard_result` has kept."""
    for number in range(1, count + 1):
        data = store.read(_file(folder, number))
        assert data is not None, f"{folder}: piece {number} is gone from {store.url}"
        yield pq.read_table(pa.BufferReader(data))


def _file(folder: str, number: int) -> str:
    return f"{folder}-{number:05d}.parquet"


def _reduce_store(store: Store) -> tuple[type[Store], tuple[str]]:
    """A store travels as its URL: every machine opens its own, with the keys of its own environment."""
    return Store, (store.url,)


copyreg.pickle(Store, _reduce_store)
