"""Covariances of vectors that are added in parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from darklode.pipeline.base.types import Doubles, Floats, Ints

_VECTORS_PER_PART = 8192


class Moments:
    """Count, sum and sum of squares of vectors, to which tenants add theirs.

    Args:
        dimensions: length of a vector.
    """

    def __init__(self, dimensions: int) -> None:
        self.count, self.total = 0, np.zeros(dimensions)
        self.squares = np.zeros((dimensions, dimensions))

    def add(self, vectors: Floats) -> None:
        """Add rows of shape (n, dimensions)."""
        rows = vectors.astype(np.float64)
        self.count, self.total = self.count + len(rows), self.total + rows.sum(axis=0)
        self.squares += rows.T @ rows

    def add_parts(self, take: Callable[[Ints], Floats], count: int) -> None:
        """Add `count` vectors that `take` returns by position, in parts."""
        for low in range(0, count, _VECTORS_PER_PART):
            self.add(take(np.arange(low, min(low + _VECTORS_PER_PART, count))))

    @property
    def covariance(self) -> Doubles:
        """Covariance about the mean."""
        mean = self.total / max(self.count, 1)
        return np.asarray(self.squares / max(self.count, 1) - np.outer(mean, mean))
