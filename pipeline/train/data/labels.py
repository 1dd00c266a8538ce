"""Sets of (query, position) pairs as sorted integer keys, and judge probabilities of such pairs.

A position is the number of a text vector in `FrozenIndex`; texts with equal content share one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.train.data.vectors import concat_ranges


@dataclass(frozen=True)
class Labels:
    """A set of (query, position) pairs with the same label.

    Attributes:
        keys: `query * n_positions + position`, ascending and unique; lookups use binary search.
        n_positions: number of positions in the index; it is part of the keys, so all sets of a task must have the same.
    """

    keys: Ints
    n_positions: int

    @classmethod
    def from_pairs(cls, query: Ints, position: Ints, n_positions: int) -> Labels:
        """Build the set from pairs in any order; duplicates are dropped."""
        return cls(np.unique(query * n_positions + position), n_positions)

    def contains(self, query: Ints, position: Ints) -> NDArray[np.bool_]:
        """Test whether each pair is in the set; `query` and `position` are broadcast."""
        pair_keys = query * self.n_positions + position
        if not len(self.keys):
            return np.zeros(pair_keys.shape, bool)
        index = np.minimum(np.searchsorted(self.keys, pair_keys), len(self.keys) - 1)
        return np.asarray(self.keys[index] == pair_keys)

    def select(self, query_rows: Ints) -> Labels:
        """Return the pairs of some queries, renumbered by their order in `query_rows`."""
        return Labels.from_pairs(*self.positions(query_rows), self.n_positions)

    def positions(self, query: Ints) -> tuple[Ints, Ints]:
        """Return all pairs of some queries.

        Args:
            query: query numbers; the pairs of a query listed twice are returned twice.

        Returns:
            For each pair the index into `query`, and the position.
        """
        low = np.searchsorted(self.keys, query * self.n_positions)
        high = np.searchsorted(self.keys, (query + 1) * self.n_positions)
        query_index = np.repeat(np.arange(len(query)), high - low)
        return query_index, self.keys[concat_ranges(low, high)] % self.n_positions


@dataclass(frozen=True)
class Probabilities:
    """Judge probabilities of (query, position) pairs.

    Attributes:
        pairs: the pairs with a probability.
        values: 0 to 1, in the order of `pairs.keys`.
    """

    pairs: Labels
    values: Floats

    @classmethod
    def from_pairs(cls, query: Ints, position: Ints, values: Floats, n_positions: int) -> Probabilities:
        """Build from pairs in any order. NaN values are dropped; of several values of a pair the largest is kept."""
        not_null = np.flatnonzero(~np.isnan(values))
        keys = query[not_null] * n_positions + position[not_null]
        order = np.lexsort((-values[not_null], keys))
        unique_keys, first = np.unique(keys[order], return_index=True)
        return cls(Labels(unique_keys, n_positions), values[not_null][order][first].astype(np.float32))

    def select(self, query_rows: Ints) -> Probabilities:
        """Return the values of some queries, renumbered by their order in `query_rows`."""
        query, position = self.pairs.positions(query_rows)
        return Probabilities.from_pairs(
            query, position, self.look_up(query_rows[query], position), self.pairs.n_positions
        )

    def look_up(self, query: Ints, position: Ints) -> Floats:
        """Return the probability of each pair, NaN if it has none; `query` and `position` are broadcast."""
        pair_keys = query * self.pairs.n_positions + position
        values = np.full(pair_keys.shape, np.nan, np.float32)
        has_value = self.pairs.contains(query, position)
        values[has_value] = self.values[np.searchsorted(self.pairs.keys, pair_keys[has_value])]
        return values
