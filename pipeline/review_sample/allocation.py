"""How many pairs of each stratum are drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Counts = NDArray[np.int64]
_Floats = NDArray[np.float64]


def allot(total: int, shares: _Floats, most: _Counts) -> _Counts:
    """Whole numbers in proportion to `shares`, none above `most`, that add up to `total`, or to all there is.

    What one cannot take goes to the others; remainders go to the largest fractions, the first of equal ones.

    Args:
        total: from 0.
        shares: from 0, shape (n,); what has none gets something only once the others are full.
        most: from 0, shape (n,).
    """
    left = min(total, int(most.sum()))
    given = np.zeros(len(most), np.int64)
    while left:
        room = most - given
        wish = np.where(room > 0, shares, 0.0)
        if not wish.sum():
            wish = (room > 0).astype(np.float64)
        quota = left * wish / wish.sum()
        if (quota > room).any():
            given = np.where(quota >= room, most, given)
        else:
            given += _rounded(quota, left)
        left = min(total, int(most.sum())) - int(given.sum())
    return given


def _rounded(quota: _Floats, total: int) -> _Counts:
    whole = np.floor(quota).astype(np.int64)
    rest = total - int(whole.sum())
    whole[np.argsort(whole - quota, kind="stable")[:rest]] += 1
    return whole
