"""Which pair is on whose screen: so that no two reviewers label one that needs a single label."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

HOLD_SECONDS = 600.0
"""How long a pair that was shown to one reviewer is kept from the others."""


class Holds:
    """Pairs by row, each held by one reviewer at most, and for a while only.

    Args:
        pairs: how many there are.
        clock: seconds that only grow.
    """

    def __init__(self, pairs: int, clock: Callable[[], float]) -> None:
        self._holder = np.full(pairs, -1)
        self._until = np.zeros(pairs)
        self._clock = clock

    def hold(self, row: int, reviewer: int) -> None:
        """Keep a pair from all but the reviewer of this number."""
        self._holder[row], self._until[row] = reviewer, self._clock() + HOLD_SECONDS

    def release(self, row: int) -> None:
        """Let anyone have it."""
        self._holder[row] = -1

    def of_others(self, reviewer: int) -> NDArray[np.bool_]:
        """Whether each pair is on the screen of somebody else, shape (n_pairs,)."""
        held: NDArray[np.bool_] = (self._holder >= 0) & (self._until > self._clock()) & (self._holder != reviewer)
        return held
