"""A linear head in closed form: one gradient step of the loss at the base, fitted by ridge regression."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.negatives import Negatives
from darklode.pipeline.train.types import Layers
from darklode.schemas.adaptation import AdaptSettings

RIDGES = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Ridges to try; validation selects."""

STEP_LENGTHS = (0.5, 1.0, 2.0, 4.0)
"""Step lengths, as multiples of the ridge solution."""

_PAIRS_PER_BLOCK = 1024
"""Pairs per block: each needs all of its negatives' vectors in float64."""


def solutions(task: Task, negatives: Negatives, settings: AdaptSettings) -> Iterator[tuple[float, Layers]]:
    """For each of `RIDGES`, the matrix D with D·q ≈ g(q) over the train queries: min Σ w|Dq − g|² + ridge·|D|².

    g is the negative gradient direction of the loss at the base: the positive minus the softmax-weighted mean of the
    candidates, as the weighted mean over a query's positives. w is the mean relative weight of these. One factorization
    serves all ridges.

    Args:
        task: queries and positives.
        negatives: mined with the base vectors.
        settings: temperature.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        queries = task.train.vectors.astype(np.float64)
        pair_weight = task.relative_weights(one_per_query=True).astype(np.float64)
        query_weight = _mean_over_pairs(task, pair_weight)
        weighted_queries = queries * np.sqrt(query_weight)[:, None]
        values, axes = np.linalg.eigh(weighted_queries.T @ weighted_queries)
        moves = _moves(task, negatives, settings.temperature, pair_weight).T @ queries @ axes
        for ridge in RIDGES:
            weight = (moves / (np.maximum(values, 0) + ridge)) @ axes.T
            yield ridge, [(weight.astype(np.float32), np.zeros(len(weight), np.float32))]


def _moves(task: Task, negatives: Negatives, temperature: float, pair_weight: Doubles) -> Doubles:
    """w·g of each query: mean over its positives of weight × target, shape (n_queries, dimensions)."""
    targets = np.zeros(task.train.vectors.shape)
    for start in range(0, len(task.pair_query), _PAIRS_PER_BLOCK):
        pairs = slice(start, start + _PAIRS_PER_BLOCK)
        query = task.pair_query[pairs]
        positions = np.column_stack([task.pair_position[pairs], negatives.positions[pairs]])
        vectors = (
            task.frozen.take(np.maximum(positions, 0).reshape(-1)).reshape(*positions.shape, -1).astype(np.float64)
        )
        logits = np.einsum("ijk,ik->ij", vectors, task.train.vectors[query].astype(np.float64)) / temperature
        logits[positions < 0] = -np.inf
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        moves = vectors[:, 0] - np.einsum("ij,ijk->ik", weights, vectors)
        np.add.at(targets, query, moves * pair_weight[pairs, None])
    counts = np.bincount(task.pair_query, minlength=len(targets))
    return targets / np.maximum(counts, 1)[:, None]


def _mean_over_pairs(task: Task, values: Doubles) -> Doubles:
    """Mean of the values of each query's pairs, shape (n_queries,); 1 for a query without a pair."""
    n_queries = len(task.train)
    counts = np.bincount(task.pair_query, minlength=n_queries)
    sums = np.bincount(task.pair_query, values, minlength=n_queries)
    return np.where(counts > 0, sums / np.maximum(counts, 1), 1.0)
