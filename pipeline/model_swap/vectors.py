"""The vectors that a map between two encoders is learned from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.train.data.nearest import nearest


@dataclass(frozen=True)
class PairedVectors:
    """The same texts, encoded by the new and by the old encoder.

    Attributes:
        new: unit vectors of the new encoder, shape (n, new dimensions); a zero row: no vector.
        old: unit vectors of the old encoder, the one of the index, shape (n, old dimensions).
    """

    new: Floats
    old: Floats

    def __len__(self) -> int:
        return len(self.new)

    def take(self, rows: Ints) -> PairedVectors:
        """Some of the texts."""
        return PairedVectors(self.new[rows], self.old[rows])

    def encoded_by_both(self) -> PairedVectors:
        """The texts that neither encoder gives the zero vector."""
        return self.take(np.flatnonzero(self.new.any(axis=1) & self.old.any(axis=1)))


@dataclass(frozen=True)
class SwapVectors:
    """Queries and documents of a model swap.

    Attributes:
        documents: the searched documents.
        fitted: rows of the documents that maps are fitted on, in random order.
        train: queries that maps are fitted on.
        validation: queries that select the map.
    """

    documents: PairedVectors
    fitted: Ints
    train: PairedVectors
    validation: PairedVectors

    def training_documents(self, n: int) -> PairedVectors:
        """The first `n` fitted documents."""
        return self.documents.take(self.fitted[:n])


def search(queries: Floats, documents: Floats, depth: int) -> Ints:
    """Rows of the nearest documents of each query by inner product, best first, shape (n_queries, depth).

    Missing entries are −1; a zero query has none.
    """
    return nearest(queries, documents.__getitem__, range(len(documents)), min(depth, len(documents)))[0]
