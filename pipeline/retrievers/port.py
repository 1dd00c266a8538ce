"""What a retriever is: queries in, the best chunks of one tenant's corpus out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


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

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """The `depth` best chunks of each query (`depth` ≥ 1); a query it knows nothing of has none."""
        ...
