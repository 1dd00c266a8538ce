"""A linear head that many tenants share, and each tenant's offset from it: partial pooling by ridge regression.

Whitening and ridge regression need sums over queries only, so tenants add up without meeting: a query is compared with
its own tenant's texts, and no negative crosses a tenant. A tenant's offset is ridge regression of what the shared head
leaves unexplained on its own queries; the penalty is the strength of pooling: infinite, and all tenants have the shared
head; 0, and each has its own. It is selected on the validation queries of all tenants (empirical Bayes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.types import Doubles, Floats, Ints
from darklode.pipeline.train.fit.moments import Moments
from darklode.pipeline.train.fit.whitening import covariance_powers, whiten

RIDGES = (10.0, 30.0, 100.0)
"""Ridges of the shared head; those of `closed_form` without the smallest two, which many tenants do not need."""
ROUNDS = 4
"""Ridge regressions in a row, each of the gradient at the head before (as in gradient boosting)."""
STEP_LENGTH = 2.0
"""Step length, as a multiple of the ridge solution: the second of the middle two that `closed_form` tries."""
OFFSET_RIDGES = (np.inf, 30.0, 10.0, 3.0)
"""Penalties of a tenant's offset; infinite: none."""

MAX_QUERIES = 256
"""Maximum train queries of a tenant in the shared head, so that large tenants do not decide it alone."""
MAX_POOLED_QUERIES = 50_000
"""Maximum train queries of all tenants: their candidates are in memory together (14 kB per pair at 384 dimensions)."""

_PAIRS_PER_BLOCK = 1024


@dataclass(frozen=True)
class TrainingPairs:
    """Training pairs of one or more tenants.

    Attributes:
        queries: base vectors, unit length, shape (n_queries, dimensions).
        query: query of each pair, ascending, shape (n_pairs,).
        candidates: positive and hard negatives of each pair, shape (n_pairs, n_candidates, dimensions).
        allowed: whether a candidate exists, shape (n_pairs, n_candidates).
    """

    queries: Floats
    query: Ints
    candidates: Floats
    allowed: NDArray[np.bool_]

    @classmethod
    def concat(cls, parts: Sequence[TrainingPairs]) -> TrainingPairs:
        """The pairs of several tenants."""
        starts = np.cumsum([0, *(len(part.queries) for part in parts)])
        return cls(
            np.concatenate([part.queries for part in parts]),
            np.concatenate([part.query + start for part, start in zip(parts, starts, strict=False)]),
            np.concatenate([part.candidates for part in parts]),
            np.concatenate([part.allowed for part in parts]),
        )


def whitening_maps(queries: Moments, texts: Moments) -> dict[float, Floats]:
    """The whitening of each power, as `whitenings` has it for one tenant, but without its scale."""
    spread = (queries.covariance + texts.covariance) / 2
    return {power: weight.astype(np.float32) for power, weight in covariance_powers(spread)}


def shared_maps(pairs: TrainingPairs, start: Floats, temperature: float) -> Iterator[tuple[float, int, Floats]]:
    """Ridge, round and map of each candidate for the shared head; round 0 is the start.

    Args:
        pairs: of all tenants.
        start: the map that the first round begins with, shape (dimensions, dimensions).
        temperature: of the loss.
    """
    yield 0.0, 0, start
    for ridge in RIDGES:
        weight = start
        for number in range(1, ROUNDS + 1):
            with threadpool_limits(limits=1, user_api="blas"):
                vectors, moves = gradient(pairs, weight, temperature)
                gram = vectors.T @ vectors + ridge * np.eye(vectors.shape[1])
                update = np.linalg.solve(gram, vectors.T @ moves).T
                weight = (weight + STEP_LENGTH * (update @ weight)).astype(np.float32)
            yield ridge, number, weight


def offset_map(pairs: TrainingPairs, shared: Floats, ridge: float, temperature: float) -> Floats:
    """One tenant's map: the shared one, and one more round on the tenant's own queries.

    Args:
        pairs: of the tenant; may be empty.
        shared: map of the shared head.
        ridge: penalty of the offset.
        temperature: of the loss.
    """
    if np.isinf(ridge) or not len(pairs.query):
        return shared
    with threadpool_limits(limits=1, user_api="blas"):
        vectors, moves = gradient(pairs, shared, temperature)
        # By the kernel matrix, which is smaller than the covariance: a tenant has fewer queries than dimensions.
        kernel = vectors @ vectors.T + ridge * np.eye(len(vectors))
        update = moves.T @ (np.linalg.solve(kernel, vectors) @ shared)
        return np.asarray(shared + STEP_LENGTH * update, np.float32)


def gradient(pairs: TrainingPairs, weight: Floats, temperature: float) -> tuple[Doubles, Doubles]:
    """Vectors of the queries under a map, and the negative gradient of the loss at each, as in `closed_form`.

    Returns:
        Two arrays of shape (n_queries, dimensions).
    """
    vectors = whiten(pairs.queries, weight)
    moves = np.zeros(vectors.shape)
    for start in range(0, len(pairs.query), _PAIRS_PER_BLOCK):
        block = slice(start, start + _PAIRS_PER_BLOCK)
        query, candidates = pairs.query[block], pairs.candidates[block]
        logits = np.einsum("ijk,ik->ij", candidates, vectors[query]) / temperature
        logits[~pairs.allowed[block]] = -np.inf
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        pair_moves = candidates[:, 0] - np.einsum("ij,ijk->ik", shares, candidates)
        first = np.flatnonzero(np.diff(query, prepend=-1))  # of each query; pairs are in the order of queries
        moves[query[first]] += np.add.reduceat(pair_moves, first, axis=0)
    counts = np.bincount(pairs.query, minlength=len(moves))
    return vectors.astype(np.float64), moves / np.maximum(counts, 1)[:, None]
