"""Rankings of retrievers that other retrievers are made of, kept during a stage so that none is searched twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import key_of
from darklode.pipeline.retrieve.retrievers.port import UNUSED_SCHEMA, Hits, Recall, Retriever


@dataclass(frozen=True)
class MemberLists:
    """Where rankings are kept, and of which retrievers.

    A file per block of queries, 8 bytes per hit: 3.4 kB per query and retriever at depth 420.

    Attributes:
        folder: existing folder of the files; it belongs to one tenant's chunks.
        depths: the retrievers that are searched more than once, by `member_key`, and the depth that others need.
    """

    folder: Path
    depths: Mapping[str, int]


def member_key(build: Any) -> str:
    """A hash of what a builder's hits depend on; builders with the same key give the same hits."""
    return key_of(build.identity)


def shared_depths(builders: Iterable[Any]) -> dict[str, int]:
    """The retrievers that occur several times among builders and their members, see `MemberLists`; most often none.

    Builders without members need no identity.
    """
    builders = list(builders)
    if not any(getattr(build, "members", ()) for build in builders):
        return {}
    depths = defaultdict[str, list[int]](list)
    for build in builders:
        for key, depth in _needs(build, 0):
            depths[key].append(depth)
    return {key: max(needed) for key, needed in depths.items() if len(needed) > 1}


def _needs(build: Any, depth: int) -> Iterator[tuple[str, int]]:
    """Yield the keys of a builder and its members, and how deep their lists are needed at least."""
    yield member_key(build), depth
    for _, member in getattr(build, "members", ()):
        yield from _needs(member, build.member_depth)


class ListedRetriever(Retriever):
    """A retriever whose rankings are kept in files; a kept list serves every smaller depth.

    Args:
        build: builds the retriever; called at the first search whose list is not kept.
        folder: see `MemberLists`.
        key: `member_key` of the retriever.
        n_chunks: number of chunks.
        min_depth: minimum depth of a search, because a later one needs it.
    """

    def __init__(
        self, build: Callable[[], Retriever], folder: Path, key: str, n_chunks: int, min_depth: int = 0
    ) -> None:
        self.name = key
        self._build, self._folder, self._key = build, folder, key
        self._n_chunks, self._min_depth = n_chunks, min_depth
        self._retriever: Retriever | None = None
        self._has_reported = False

    def prepare(self) -> Retriever:
        """Build the retriever, if it is not built yet."""
        if self._retriever is None:
            self._retriever = self._build()
            self.name = self._retriever.name
        return self._retriever

    @property
    def recall(self) -> Recall | None:
        """See `Retriever`."""
        return self._retriever.recall if self._retriever else None

    @property
    def unused(self) -> pa.Table:
        """See `Retriever`; rows that were read before are not repeated, because several retrievers read them."""
        if self._retriever is None or self._has_reported:
            return UNUSED_SCHEMA.empty_table()
        self._has_reported = True
        return self._retriever.unused

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`."""
        path, k = self._folder / f"{self._key}-{key_of(*queries)}.npz", min(depth, self._n_chunks)
        hits = _read(path) if path.exists() else None
        if hits is None or hits.rows.shape[1] < k:
            hits = self.prepare().search(queries, max(depth, self._min_depth))
            _write(path, hits)
        return Hits(hits.rows[:, :k], hits.scores[:, :k])


def _write(path: Path, hits: Hits) -> None:
    part = path.with_suffix(".part.npz")
    np.savez(part, rows=hits.rows.astype(np.int32), scores=hits.scores)  # a tenant has fewer than 2**31 chunks
    part.replace(path)


def _read(path: Path) -> Hits:
    with np.load(path) as arrays:
        return Hits(arrays["rows"].astype(np.int64), arrays["scores"])
