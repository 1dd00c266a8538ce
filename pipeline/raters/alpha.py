"""Agreement of any number of raters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]


def alpha(yes: NDArray[Any], no: NDArray[Any], pairs: NDArray[Any]) -> _Floats:
    """Krippendorff's alpha of two labels; 1 is agreement, 0 is chance, NaN where only one label was ever given.

    Source: Krippendorff, 2004, chapter 11. Pairs that a rater left out count with the labels they have.

    Args:
        yes: votes for relevant of a kind of pair, shape (n_kinds,); so is no.
        no: votes against; yes + no is at least 2.
        pairs: how many pairs got these votes, shape (..., n_kinds).

    Returns:
        Shape (...).
    """
    pairs = np.asarray(pairs, np.float64)
    ones, zeros = pairs @ yes, pairs @ no
    differing = pairs @ (2 * yes * no / (yes + no - 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - (ones + zeros - 1) * differing / (2 * ones * zeros))
