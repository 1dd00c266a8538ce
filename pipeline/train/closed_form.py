"""The linear head that is solved for: one step against the loss's gradient at the base, by ridge regression."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from darklode.pipeline.train.heads import Layers
from darklode.pipeline.train.negatives import Negatives
from darklode.pipeline.train.task import Task
from darklode.schemas.adaptation import AdaptSettings

RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0)
STEPS = (0.5, 1.0, 2.0, 4.0)
"""Lengths of the step, as shares of the weights that a ridge gives for length 1."""

_PAIRS = 1024

Doubles = NDArray[np.float64]


def solutions(task: Task, negatives: Negatives, settings: AdaptSettings) -> Iterator[tuple[float, Layers]]:
    """For each of `RIDGES` the D that is nearest to D·q = g(q) over the train queries: min Σ|Dq − g|² + ridge·|D|².

    g is what the loss at the base would have a query vector move by: its positive less the mean of its candidates,
    weighted by their softmax. One factorisation serves all ridges.

    Args:
        task: queries and positives.
        negatives: of its pairs, mined with the base's vectors.
        settings: temperature.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        queries = task.train.vectors.astype(np.float64)
        values, axes = np.linalg.eigh(queries.T @ queries)
        moves = _moves(task, negatives, settings.temperature).T @ queries @ axes
        for ridge in RIDGES:
            weight = (moves / (np.maximum(values, 0) + ridge)) @ axes.T
            yield ridge, [(weight.astype(np.float32), np.zeros(len(weight), np.float32))]


def _moves(task: Task, negatives: Negatives, temperature: float) -> Doubles:
    """Mean over each query's positives, shape (n_queries, dimensions)."""
    targets = np.zeros(task.train.vectors.shape)
    for start in range(0, len(task.pair_query), _PAIRS):
        pairs = slice(start, start + _PAIRS)
        query = task.pair_query[pairs]
        positions = np.column_stack([task.pair_position[pairs], negatives.positions[pairs]])
        vectors = (
            task.frozen.take(np.maximum(positions, 0).reshape(-1)).reshape(*positions.shape, -1).astype(np.float64)
        )
        logits = np.einsum("ijk,ik->ij", vectors, task.train.vectors[query].astype(np.float64)) / temperature
        logits[positions < 0] = -np.inf
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        np.add.at(targets, query, vectors[:, 0] - np.einsum("ij,ijk->ik", weights, vectors))
    counts = np.bincount(task.pair_query, minlength=len(targets))
    return targets / np.maximum(counts, 1)[:, None]
