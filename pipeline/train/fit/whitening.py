"""Whitening of query vectors as a linear head that needs no labels.

Encoders put what a collection's texts have in common into few directions, which then dominate every score. A map of the
query alone reverses that: in q·W·d each direction is weighted by a negative power of its variance; no text vector
changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.types import Doubles, Floats

if TYPE_CHECKING:
    from darklode.pipeline.train.data.dataset import Task

COVARIANCE_POWERS = (0.25, 0.5, 0.75)
"""Powers of the covariance: 0 is the base, 1 whitens scores completely."""

SHRINKAGE = 0.1
"""Shrinkage: share of the mean variance added to each direction, because directions with little variance are noise."""

_TEXTS_PER_BLOCK = 8192


def whitenings(task: Task) -> Iterator[tuple[float, Floats]]:
    """For each power p of `COVARIANCE_POWERS` the map C^-p, where C is the mean covariance of texts and train queries.

    Maps are symmetric, shape (dimensions, dimensions), and scaled so that train queries keep their mean length. No
    label is used.

    Args:
        task: text vectors and train queries.

    Source: Mu and Viswanath 2018 and Su et al. 2021 whiten both sides; here texts stay fixed, and validation selects
    the power.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        queries = task.train.vectors.astype(np.float64)
        spread = (_covariance(iter([queries])) + _covariance(_texts(task))) / 2
        values, axes = np.linalg.eigh(spread)
        values = np.maximum(values, 0) + max(SHRINKAGE * float(np.mean(values)), 1e-12)
        for power in COVARIANCE_POWERS:
            whitening = (axes * values**-power) @ axes.T
            lengths = np.linalg.norm(queries @ whitening, axis=1)
            yield power, (whitening / max(float(lengths.mean()), 1e-12)).astype(np.float32)


def _texts(task: Task) -> Iterator[Doubles]:
    for low in range(0, len(task.frozen), _TEXTS_PER_BLOCK):
        yield task.frozen.take(np.arange(low, min(low + _TEXTS_PER_BLOCK, len(task.frozen)))).astype(np.float64)


def _covariance(parts: Iterator[Doubles]) -> Doubles:
    """Covariance about the mean, of rows given in parts."""
    count, total, squares = 0, np.zeros(1), np.zeros((1, 1))
    for rows in parts:
        count, total, squares = count + len(rows), total + rows.sum(axis=0), squares + rows.T @ rows
    mean = total / max(count, 1)
    return np.asarray(squares / max(count, 1) - np.outer(mean, mean))


def whiten(vectors: Floats, weight: Floats) -> Floats:
    """Apply a map and normalize; a zero vector stays zero."""
    whitened_vectors = vectors @ weight.T
    return np.asarray(
        whitened_vectors / np.maximum(np.linalg.norm(whitened_vectors, axis=1, keepdims=True), 1e-12), np.float32
    )


def best_whitening(task: Task) -> Floats | None:
    """The best map on the validation queries; None if the base is better."""
    queries, best_weight = task.validation, None
    best_ndcg = queries.ndcg(task.frozen, queries.vectors)
    for _, weight in whitenings(task):
        ndcg = queries.ndcg(task.frozen, whiten(queries.vectors, weight))
        if ndcg > best_ndcg:
            best_weight, best_ndcg = weight, ndcg
    return best_weight
