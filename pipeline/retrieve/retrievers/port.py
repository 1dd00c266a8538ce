"""What a retriever is: queries in, the best chunks of one tenant's corpus out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.retrievers.approximate import Recall
    from darklode.pipeline.retrieve.retrievers.corpus import Corpus


@dataclass(frozen=True)
class Hits:
    """The chunks found for each query, best first.

    Attributes:
        rows: chunk rows, shape (n_queries, k) with k = min(depth, n_chunks); -1 where fewer were found.
        scores: same shape, descending, equal scores in ascending row order; NaN where the row is -1.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


class Retriever(Protocol):
    """Finds chunks for queries; equal corpora and queries give equal hits."""

    name: str

    @property
    def recall(self) -> Recall | None:
        """Of the latest approximate search against an exact one; None where the search is exact."""
        return None

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """The `depth` best chunks of each query (`depth` ≥ 1); a query it knows nothing of has none."""
        ...


class Factory(Protocol):
    """Builds a retriever on a tenant's chunks; one that is to travel to another machine is plain data."""

    @property
    def shares(self) -> str:
        """Those that name the same fit the same things, and are kept together."""
        ...

    def __call__(self, corpus: Corpus) -> Retriever:
        """Fit, index or open what is searched."""
        ...
