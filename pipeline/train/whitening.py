"""Whitening: query vectors stretched where texts and queries spread little; a linear head that needs no label.

Encoders put most of what a collection's texts have in common into few directions, which then decide every score. A map
of the query alone takes that back: q·W·d weighs each direction by its spread to a negative power, and no text is moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from darklode.pipeline.train.weights import Floats

if TYPE_CHECKING:
    from darklode.pipeline.train.task import Task

POWERS = (0.25, 0.5, 0.75)
"""Of the covariance: 0 would be the base, 1 whitens scores in full."""

SHRUNK = 0.1
"""Of the mean variance, added to each direction's: what hardly varies is noise."""

_TEXTS = 8192

Doubles = NDArray[np.float64]


def whitenings(task: Task) -> Iterator[tuple[float, Floats]]:
    """Each power p of `POWERS` and the map C^-p, C being the mean of the texts' and the train queries' covariances.

    Maps are scaled so that train queries keep their mean length, shape (dimensions, dimensions), symmetric. No label is
    read.

    Args:
        task: the texts' vectors and the train queries'.

    Source: Mu and Viswanath 2018 and Su et al. 2021 whiten both sides; here texts stay as they are, and the power is
    the validation queries' to choose.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        queries = task.train.vectors.astype(np.float64)
        spread = (_covariance(iter([queries])) + _covariance(_texts(task))) / 2
        values, axes = np.linalg.eigh(spread)
        values = np.maximum(values, 0) + max(SHRUNK * float(np.mean(values)), 1e-12)
        for power in POWERS:
            whitening = (axes * values**-power) @ axes.T
            lengths = np.linalg.norm(queries @ whitening, axis=1)
            yield power, (whitening / max(float(lengths.mean()), 1e-12)).astype(np.float32)


def _texts(task: Task) -> Iterator[Doubles]:
    for low in range(0, len(task.frozen), _TEXTS):
        yield task.frozen.take(np.arange(low, min(low + _TEXTS, len(task.frozen)))).astype(np.float64)


def _covariance(parts: Iterator[Doubles]) -> Doubles:
    """Of rows that come in parts, about their mean."""
    count, total, squares = 0, np.zeros(1), np.zeros((1, 1))
    for rows in parts:
        count, total, squares = count + len(rows), total + rows.sum(axis=0), squares + rows.T @ rows
    mean = total / max(count, 1)
    return np.asarray(squares / max(count, 1) - np.outer(mean, mean))


def whiten(vectors: Floats, weight: Floats) -> Floats:
    """Vectors after a map, of length 1; a zero vector stays zero."""
    whitened_vectors = vectors @ weight.T
    return np.asarray(
        whitened_vectors / np.maximum(np.linalg.norm(whitened_vectors, axis=1, keepdims=True), 1e-12), np.float32
    )


def best_whitening(task: Task) -> Floats | None:
    """The map that is best on the validation queries; None where the base is."""
    queries, best_weight = task.validation, None
    best_ndcg = queries.ndcg(task.frozen, queries.vectors)
    for _, weight in whitenings(task):
        ndcg = queries.ndcg(task.frozen, whiten(queries.vectors, weight))
        if ndcg > best_ndcg:
            best_weight, best_ndcg = weight, ndcg
    return best_weight
