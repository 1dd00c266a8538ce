"""Initialization of a smaller tower: the least-squares map from its vectors to the target vectors."""

from __future__ import annotations

import numpy as np

from darklode.pipeline.base.types import Doubles, Floats

RIDGES = 10.0 ** np.arange(-6, 1)
"""Ridge strengths to try, relative to the mean of the diagonal of XᵀX, where X are the inputs."""


def fit_linear_map(inputs: Floats | Doubles, targets: Floats | Doubles) -> Floats:
    """Fit the map W of ScalingNote, Eq. 14, by ridge regression; shape (target dim, input dim).

    The ridge strength is the one that predicts a held-out quarter of the rows best; W is then fitted on all rows. The
    paper initializes W at random.

    Args:
        inputs: vectors of the smaller tower, shape (n, input dim).
        targets: unit vectors, shape (n, target dim).
    """
    x = unit(inputs)
    y = np.asarray(targets, np.float64)
    is_fitted = np.arange(len(x)) % 4 > 0  # every fourth row is held out
    predictions = [unit(x[~is_fitted] @ _ridge(x[is_fitted], y[is_fitted], ridge)) for ridge in RIDGES]
    mean_distances = [np.linalg.norm(prediction - y[~is_fitted], axis=1).mean() for prediction in predictions]
    best_ridge = RIDGES[int(np.argmin(mean_distances))]
    return np.asarray(_ridge(x, y, best_ridge).T, np.float32)


def unit(vectors: Floats | Doubles) -> Doubles:
    """Normalize rows; zero rows stay zero."""
    array = np.asarray(vectors, np.float64)
    return np.asarray(array / np.linalg.norm(array, axis=1, keepdims=True).clip(1e-9))


def _ridge(
    inputs: Doubles,
    targets: Doubles,
    ridge: float,
) -> Doubles:
    """Solve ridge regression with the normal equations; returns shape (input dim, target dim)."""
    gram = inputs.T @ inputs
    mean_square = max(float(np.trace(gram)) / len(gram), 1e-9)  # not 0, so that the system can be solved
    return np.asarray(np.linalg.solve(gram + ridge * mean_square * np.eye(len(gram)), inputs.T @ targets))
