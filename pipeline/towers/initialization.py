"""Initialization of a smaller tower: the least-squares map from its vectors to the target vectors."""

from __future__ import annotations

import numpy as np

from darklode.pipeline.base.types import Doubles, Floats

RIDGES = 10.0 ** np.arange(-6, 1)
"""Ridge strengths to try, relative to the mean square of an input."""


def fit_linear_map(inputs: Floats | Doubles, targets: Floats | Doubles) -> Floats:
    """The map W of ScalingNote, Eq. 14, by ridge regression, shape (target dim, input dim).

    The ridge is the one that predicts a held-out quarter of the rows best; the paper initializes W at random.

    Args:
        inputs: shape (n, input dim).
        targets: unit vectors, shape (n, target dim).
    """
    has, is_to = unit(inputs), np.asarray(targets, np.float64)
    learned = np.arange(len(has)) % 4 > 0
    fits = [unit(has[~learned] @ _ridge(has[learned], is_to[learned], ridge)) for ridge in RIDGES]
    far = [np.linalg.norm(ridge - is_to[~learned], axis=1).mean() for ridge in fits]
    return np.asarray(_ridge(has, is_to, RIDGES[int(np.argmin(far))]).T, np.float32)


def unit(vectors: Floats | Doubles) -> Doubles:
    """Normalize rows; zero rows stay zero."""
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
