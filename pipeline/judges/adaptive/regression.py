"""Two logistic regressions: a linear one over all queries, and one in a kernel for each query, on top of the first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

RIDGE = 3.0
_STEPS = 12
_LIMIT = 20.0
_Floats = NDArray[np.float64]


def fit_linear(features: _Floats, labels: _Floats) -> _Floats:
    """Weights of a ridge logistic regression, by Newton's method, shape (n_features,).

    Args:
        features: shape (n_rows, n_features); the first column, of ones, is hardly shrunk.
        labels: 0 or 1, shape (n_rows,).
    """
    ridge = np.full(features.shape[1], RIDGE)
    ridge[0] = 1e-3
    weights = np.zeros(features.shape[1])
    for _ in range(_STEPS):
        probability = sigmoid(features @ weights)
        slope = np.maximum(probability * (1 - probability), 1e-6)
        gradient = features.T @ (labels - probability) - ridge * weights
        curvature = (features * slope[:, None]).T @ features + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-4:
            break
    return weights


def fit_kernel(kernel: _Floats, labels: _Floats, offset: _Floats) -> _Floats:
    """Dual weights of a kernel logistic regression around `offset`, shape (n_rows,).

    A row of the kernel with new pairs times these weights is what is added to their offset. This is the mode of a
    Gaussian process classifier (Rasmussen & Williams 2006, algorithm 3.1).

    Args:
        kernel: of the judged pairs, positive semidefinite, shape (n_rows, n_rows).
        labels: 0 or 1, shape (n_rows,).
        offset: log-odds before this query's own verdicts are seen, shape (n_rows,).
    """
    latent, dual = np.zeros(len(labels)), np.zeros(len(labels))
    for _ in range(_STEPS if len(labels) else 0):
        probability = sigmoid(latent + offset)
        slope = np.maximum(probability * (1 - probability), 1e-4)
        root = np.sqrt(slope)
        target = slope * latent + labels - probability
        inner = root[:, None] * kernel * root
        inner[np.diag_indices_from(inner)] += 1
        dual = target - root * cho_solve(cho_factor(inner, lower=True), root * (kernel @ target))
        before, latent = latent, kernel @ dual
        if np.abs(latent - before).max() < 1e-2:
            break
    return dual


def sigmoid(log_odds: _Floats) -> _Floats:
    """Probability of log-odds."""
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -_LIMIT, _LIMIT))))
