"""Where a smaller tower begins: the linear map of its own vectors that comes nearest to those it is to give."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.train.weights import Floats

Doubles = NDArray[np.float64]

RIDGES = 10.0 ** np.arange(-6, 1)
"""Of the mean square of a number, tried in turn."""


def fit_linear_map(inputs: Floats | Doubles, targets: Floats | Doubles) -> Floats:
    """The map W of ScalingNote, Eq. 14, by least squares with a ridge, shape (wanted numbers, given numbers).

    The ridge is the one with which three quarters of the rows tell the fourth best; the paper's W begins at random.

    Args:
        inputs: vectors that a tower gives, shape (n, given numbers).
        targets: those that it is to give, of length 1, shape (n, wanted numbers).
    """
    has, is_to = unit(inputs), np.asarray(targets, np.float64)
    learned = np.arange(len(has)) % 4 > 0
    fits = [unit(has[~learned] @ _ridge(has[learned], is_to[learned], ridge)) for ridge in RIDGES]
    far = [np.linalg.norm(ridge - is_to[~learned], axis=1).mean() for ridge in fits]
    return np.asarray(_ridge(has, is_to, RIDGES[int(np.argmin(far))]).T, np.float32)


def unit(vectors: Floats | Doubles) -> Doubles:
    """Rows of length 1; those of zeros stay."""
    array = np.asarray(vectors, np.float64)
    return np.asarray(array / np.linalg.norm(array, axis=1, keepdims=True).clip(1e-9))


def _ridge(
    inputs: Doubles,
    targets: Doubles,
    ridge: float,
) -> Doubles:
    squares = inputs.T @ inputs
    mean = max(float(np.trace(squares)) / len(squares), 1e-9)
    return np.asarray(np.linalg.solve(squares + ridge * mean * np.eye(len(squares)), inputs.T @ targets))
