"""Sets of (query, position) pairs as sorted keys, and judge probabilities of such pairs."""

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
        n_positions: number of texts in the index.
    """

    keys: Ints
    n_positions: int

    @classmethod
    def from_pairs(cls, query: Ints, position: Ints, n_positions: int) -> Labels:
        return cls(np.unique(query * n_positions + position), n_positions)

    def contains(self, query: Ints, position: Ints) -> NDArray[np.bool_]:
        """Whether each pair is in the set; `query` and `position` are broadcast."""
        wanted_keys = query * self.n_positions + position
        if not len(self.keys):
            return np.zeros(wanted_keys.shape, bool)
        index = np.minimum(np.searchsorted(self.keys, wanted_keys), len(self.keys) - 1)
        return np.asarray(self.keys[index] == wanted_keys)

    def select(self, query_rows: Ints) -> Labels:
        """The pairs of some queries, renumbered by their order in `query_rows`."""
        return Labels.from_pairs(*self.positions(query_rows), self.n_positions)

    def positions(self, query: Ints) -> tuple[Ints, Ints]:
        """All pairs of some queries: index into `query`, and position; a query listed twice is returned twice."""
        low, high = (np.searchsorted(self.keys, (query + more) * self.n_positions) for more in (0, 1))
        return np.repeat(np.arange(len(query)), high - low), self.keys[concat_ranges(low, high)] % self.n_positions


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
        """From pairs in any order. NaN values are dropped; of several values for a pair the largest is used."""
        not_null = np.flatnonzero(~np.isnan(values))
        keys = query[not_null] * n_positions + position[not_null]
        order = np.lexsort((-values[not_null], keys))
        unique_keys, first = np.unique(keys[order], return_index=True)
        return cls(Labels(unique_keys, n_positions), values[not_null][order][first].astype(np.float32))

    def select(self, query_rows: Ints) -> Probabilities:
        """The values of some queries, renumbered by their order in `query_rows`."""
        query, position = self.pairs.positions(query_rows)
        return Probabilities.from_pairs(
            query, position, self.look_up(query_rows[query], position), self.pairs.n_positions
        )

    def look_up(self, query: Ints, position: Ints) -> Floats:
        """Probability of each pair, NaN if unknown; `query` and `position` are broadcast."""
        wanted_keys = query * self.pairs.n_positions + position
        values = np.full(wanted_keys.shape, np.nan, np.float32)
        is_known = self.pairs.contains(query, position)
        values[is_known] = self.values[np.searchsorted(self.pairs.keys, wanted_keys[is_known])]
        return values
