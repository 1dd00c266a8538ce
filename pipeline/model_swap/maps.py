"""Linear maps from a new encoder's query vectors into the space of an index.

A map is a list of layers as in `train.fit.heads.apply_layers`: weights of shape (old dimensions, new dimensions) and a
bias, then normalization. Two things can be learned:

- to give the query the vector of the old encoder (`procrustes`, `ridge`, `low_rank`). Such a map is at best as good as
  the old encoder;
- to give every old document vector the score that the new encoder gives the document (`score_regression`). Such a map
  is at best as good as embedding all documents again.

Sources: Schönemann 1966 (Procrustes); Izenman 1975 (reduced-rank regression); Vejendla 2025, Drift-Adapter,
arXiv:2509.23471 (orthogonal, low-rank affine and MLP maps from new queries to an old index).
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.model_swap.vectors import PairedVectors
from darklode.pipeline.train.types import Layers

RIDGES = (1e-3, 1e-2, 1e-1)
"""Ridge strengths to try, relative to the mean variance of an input."""

RANKS = (32, 64, 128, 256)
"""Ranks to try; those of the smaller dimensions and above equal the full map."""


def zero_padding(new_dimensions: int, old_dimensions: int) -> Layers:
    """No map: the vector itself, cut or padded with zeros."""
    return [(np.eye(old_dimensions, new_dimensions, dtype=np.float32), np.zeros(old_dimensions, np.float32))]


def random_orthogonal(new_dimensions: int, old_dimensions: int, seed: int) -> Layers:
    """A random map with orthonormal rows or columns; a baseline."""
    shape = (max(new_dimensions, old_dimensions),) * 2
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal(shape))[0]
    return _layers(basis[:old_dimensions, :new_dimensions], np.zeros(old_dimensions))


def procrustes(parts: list[PairedVectors], *, centered: bool) -> Layers:
    """The orthogonal map nearest to the pairs: the smaller vectors are padded with zeros.

    Args:
        parts: groups of pairs; every group has the same weight.
        centered: subtract the means first, which adds a bias.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        x, y, weight = _stacked(parts)
        x_mean, y_mean = (_mean(x, weight), _mean(y, weight)) if centered else (0 * x[0], 0 * y[0])
        left, _, right = np.linalg.svd((y - y_mean).T @ ((x - x_mean) * weight), full_matrices=False)
        rotation = left @ right
        return _layers(rotation, y_mean - rotation @ x_mean)


def ridge(parts: list[PairedVectors], strength: float) -> Layers:
    """The affine map by ridge regression of old on new vectors; the bias is not penalized.

    Args:
        parts: groups of pairs; every group has the same weight.
        strength: see `RIDGES`.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        x, y, weight = _stacked(parts)
        x_mean, y_mean = _mean(x, weight), _mean(y, weight)
        coefficients = _regress(x - x_mean, y - y_mean, weight, strength)
        return _layers(coefficients, y_mean - coefficients @ x_mean)


def low_rank(parts: list[PairedVectors], strength: float, rank: int) -> Layers:
    """Reduced-rank ridge regression: the affine map whose predictions have the best `rank` directions.

    Args:
        parts: groups of pairs; every group has the same weight.
        strength: see `RIDGES`.
        rank: maximum rank of the weights.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        x, y, weight = _stacked(parts)
        x_mean, y_mean = _mean(x, weight), _mean(y, weight)
        coefficients = _regress(x - x_mean, y - y_mean, weight, strength)
        predictions = (x - x_mean) @ coefficients.T * np.sqrt(weight)
        axes = np.linalg.eigh(predictions.T @ predictions)[1][:, -rank:]
        coefficients = axes @ (axes.T @ coefficients)
        return _layers(coefficients, y_mean - coefficients @ x_mean)


def score_regression(documents: PairedVectors, strength: float) -> Layers:
    """The map M with M(q)·d_old ≈ q·d_new for all documents: ridge regression of new on old vectors, transposed.

    A constant that all scores of a query share does not change its list, so vectors are centered and no bias is kept.

    Args:
        documents: pairs of document vectors.
        strength: see `RIDGES`.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        x, y, weight = _stacked([PairedVectors(documents.old, documents.new)])
        coefficients = _regress(x - _mean(x, weight), y - _mean(y, weight), weight, strength)
        return _layers(coefficients.T, np.zeros(coefficients.shape[1]))


def _stacked(parts: list[PairedVectors]) -> tuple[Doubles, Doubles, Doubles]:
    """New and old vectors of all groups, and a column of weights that sum to 1."""
    encoded = [part.encoded_by_both() for part in parts]
    encoded = [part for part in encoded if len(part)]
    weight = np.concatenate([np.full((len(part), 1), 1 / len(part) / len(encoded)) for part in encoded])
    x, y = (np.concatenate([getattr(part, side) for part in encoded]).astype(np.float64) for side in ("new", "old"))
    return x, y, weight


def _mean(vectors: Doubles, weight: Doubles) -> Doubles:
    return np.asarray((vectors * weight).sum(axis=0))


def _regress(x: Doubles, y: Doubles, weight: Doubles, strength: float) -> Doubles:
    """Coefficients of y on x, shape (y dimensions, x dimensions)."""
    covariance = (x * weight).T @ x
    penalty = strength * max(float(np.trace(covariance)) / len(covariance), 1e-12) * np.eye(len(covariance))
    return np.asarray(np.linalg.solve(covariance + penalty, (x * weight).T @ y).T)


def _layers(weights: Doubles, bias: Doubles) -> Layers:
    return [(np.ascontiguousarray(weights, np.float32), np.asarray(bias, np.float32))]
