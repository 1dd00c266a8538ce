"""Where a smaller tower begins: the linear map of its own vectors that comes nearest to those it is to give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.train.weights import Floats

Doubles = NDArray[np.float64]

RIDGES = 10.0 ** np.arange(-6, 1)
"""Of the mean square of a number, tried in turn."""


def mapped(given: Floats | Doubles, wanted: Floats | Doubles) -> Floats:
    """The map W of ScalingNote, Eq. 14, by least squares with a ridge, shape (wanted numbers, given numbers).

    The ridge is the one with which three quarters of the rows tell the fourth best; the paper's W begins at random.

    Args:
        given: vectors that a tower gives, shape (n, given numbers).
        wanted: those that it is to give, of length 1, shape (n, wanted numbers).
    """
    has, is_to = unit(given), np.asarray(wanted, np.float64)
    learned = np.arange(len(has)) % 4 > 0
    told = [unit(has[~learned] @ _ridge(has[learned], is_to[learned], one)) for one in RIDGES]
    far = [np.linalg.norm(one - is_to[~learned], axis=1).mean() for one in told]
    return np.asarray(_ridge(has, is_to, RIDGES[int(np.argmin(far))]).T, np.float32)


def unit(vectors: Floats | Doubles) -> Doubles:
    """Rows of length 1; those of zeros stay."""
    found = np.asarray(vectors, np.float64)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True).clip(1e-9))


def _ridge(
    given: Doubles,
    wanted: Doubles,
    ridge: float,
) -> Doubles:
    squares = given.T @ given
    mean = max(float(np.trace(squares)) / len(squares), 1e-9)
    return np.asarray(np.linalg.solve(squares + ridge * mean * np.eye(len(squares)), given.T @ wanted))
