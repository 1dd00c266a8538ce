"""The retriever interface: queries in, the best chunks of one tenant's corpus out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

UNUSED_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("reason", pa.string()),
        ("payload", pa.string()),
    ]
)
"""What a retriever read and could not use: columns of the table `rejects`."""


@dataclass(frozen=True)
class Hits:
    """The chunks found for each query, best first.

    Attributes:
        rows: chunk rows, shape (n_queries, k) with k = min(depth, n_chunks); -1 where fewer were found.
        scores: same shape, descending, equal scores in ascending row order, or as another system
            ranked them; NaN where the row is -1.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class Recall:
    """Recall of approximate against exact rankings, over a sample of queries."""

    queries: int
    depth: int
    n_found: int
    expected: int

    @property
    def share(self) -> float:
        return self.n_found / self.expected if self.expected else 1.0


class Retriever(Protocol):
    """Finds chunks for queries; equal corpora and queries give equal hits."""

    name: str

    @property
    def recall(self) -> Recall | None:
        """Recall of the latest approximate search against exact search; None if the search is exact."""
        return None

    @property
    def unused(self) -> pa.Table:
        """Rows of `UNUSED_SCHEMA` for what the searches so far could not use, such as hits of another corpus."""
        return UNUSED_SCHEMA.empty_table()

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """The `depth` best chunks of each query (`depth` ≥ 1); no hits for a query without any known term."""
        ...
