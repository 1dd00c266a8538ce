"""The text vectors that training does not change, read from the embedding cache; each run is an index of its own."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.retrieve.encoders.caching import CachedQueries
from darklode.pipeline.retrieve.retrievers.blocks import ArrayVectors, CachedVectors, Vectors
from darklode.pipeline.retrieve.retrievers.exact import exact_search
from darklode.pipeline.train.data.nearest import nearest
from darklode.schemas.pooling import VectorSearchSettings

MAX_CACHED_BYTES = 1 << 28
"""Maximum bytes of text vectors kept in memory while an encoder is trained; larger sets stay memory-mapped."""


class FrozenIndex:
    """Text vectors by position over all indexes; identical texts of an index share a position.

    Positions follow the order of the text rows, so they do not depend on the order in which the cache was filled.

    Args:
        indexes: vectors of the runs; a query searches the index of its own run.
        texts: rows of `adaptation_texts`, in the order of the indexes.
        encode: gives base vectors of queries.
        settings: settings of the exact search.
    """

    def __init__(
        self, indexes: Sequence[CachedVectors], texts: pa.Table, encode: CachedQueries, settings: VectorSearchSettings
    ) -> None:
        self._indexes, self._settings, self.encode = indexes, settings, encode
        self._searched: Sequence[Vectors] = indexes  # what `search` reads; `with_vectors` replaces it
        self.texts = texts.combine_chunks()
        self._offsets = np.concatenate([[0], np.cumsum([len(index) for index in indexes])]).astype(np.int64)
        self._rows = np.concatenate([[0], np.cumsum([index.n_chunks for index in indexes])]).astype(np.int64)
        self.numbers = np.unique(texts["index"].to_numpy())
        self._orders = [np.argsort(index.first_rows, kind="stable") for index in indexes]

    @property
    def dimensions(self) -> int:
        return self._indexes[0].dimensions

    def __len__(self) -> int:
        return int(self._offsets[-1])

    @cached_property
    def position_of(self) -> Ints:
        """Position of each row of `texts`."""
        indexes = zip(self._indexes, self._orders, self._offsets, strict=False)  # offsets have the end, too
        return np.concatenate([np.argsort(order)[index.positions()] + offset for index, order, offset in indexes])

    def take(self, positions: Ints) -> Floats:
        """Vectors at positions, shape (len(positions), dimensions)."""
        return self._cached_vectors[positions] if len(self._cached_vectors) else self._read_stored(positions)

    def _read_stored(self, positions: Ints) -> Floats:
        vectors = np.empty((len(positions), self.dimensions), np.float32)
        for number, (index, order) in enumerate(zip(self._indexes, self._orders, strict=True)):
            in_index = (positions >= self._offsets[number]) & (positions < self._offsets[number + 1])
            if in_index.any():
                vectors[in_index] = index.take(order[positions[in_index] - self._offsets[number]])
        return vectors

    @cached_property
    def _cached_vectors(self) -> Floats:
        """All vectors if they fit into `MAX_CACHED_BYTES`, else none; a training step reads from random positions."""
        fits = len(self) * self.dimensions * 4 <= MAX_CACHED_BYTES
        return self._read_stored(np.arange(len(self) if fits else 0))

    def nearest(self, queries: Floats, of_index: NDArray[Any], depth: int) -> tuple[Ints, Floats]:
        """Nearest texts of each query in its own index, for training only: positions and scores.

        Args:
            queries: shape (n_queries, dimensions).
            of_index: index number of each query.
            depth: of the lists.
        """
        positions = np.full((len(queries), depth), -1, np.int64)
        scores = np.full((len(queries), depth), np.nan, np.float32)
        for index, number in enumerate(self.numbers):
            own_rows = np.flatnonzero(of_index == number)
            among = range(int(self._offsets[index]), int(self._offsets[index + 1]))
            positions[own_rows], scores[own_rows] = nearest(queries[own_rows], self.take, among, depth)
        return positions, scores

    def rows_of(self, positions: Ints) -> tuple[Ints, Ints]:
        """The text rows at positions of shape (n_queries, depth), where −1 is empty: query and row of each."""
        query, column = np.nonzero(positions >= 0)
        filled_positions = positions[query, column]
        rows, starts = self._sharing
        low, high = starts[filled_positions], starts[filled_positions + 1]
        return np.repeat(query, high - low), rows[concat_ranges(low, high)]

    @cached_property
    def _sharing(self) -> tuple[Ints, Ints]:
        """Text rows sorted by position, and where each position's rows begin."""
        rows = np.argsort(self.position_of, kind="stable")
        return rows, np.searchsorted(self.position_of[rows], np.arange(len(self) + 1))

    def with_vectors(self, vectors: Floats) -> FrozenIndex:
        """The same index with other text vectors, shape (len(self), dimensions)."""
        by_row = vectors[self.position_of]
        changed_index = copy(self)
        changed_index._searched = [ArrayVectors(by_row[low:high]) for low, high in pairwise(self._rows)]
        changed_index._cached_vectors = vectors
        return changed_index

    def search(self, queries: Floats, of_index: NDArray[Any], depth: int) -> tuple[Ints, Floats]:
        """Exact search of each query in its own index: text rows (−1: none) and scores, shape (n_queries, depth).

        Args:
            queries: shape (n_queries, dimensions).
            of_index: index number of each query.
            depth: of the lists.
        """
        rows = np.full((len(queries), depth), -1, np.int64)
        scores = np.full((len(queries), depth), np.nan, np.float32)
        for index, number in enumerate(self.numbers):
            own_rows = np.flatnonzero(of_index == number)
            if len(own_rows):
                hits = exact_search(queries[own_rows], self._searched[index], depth, self._settings)
                width = hits.rows.shape[1]
                rows[own_rows, :width] = np.where(hits.rows >= 0, hits.rows + self._rows[index], -1)
                scores[own_rows, :width] = hits.scores
        return rows, scores


def concat_ranges(low: Ints, high: Ints) -> Ints:
    """Concatenated ranges from each `low` up to but excluding its `high`."""
    counts = high - low
    return np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
