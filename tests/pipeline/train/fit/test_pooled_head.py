"""A head that tenants share: sums over tenants, the gradient of the loss, and offsets on own rows."""

from dataclasses import replace

import numpy as np
import pytest

from darklode.pipeline.base.types import Doubles, Floats
from darklode.pipeline.train.fit.moments import Moments
from darklode.pipeline.train.fit.pooled_head import (
    RIDGES,
    ROUNDS,
    STEP_LENGTH,
    TrainingPairs,
    gradient,
    offset_map,
    shared_maps,
    whitening_maps,
)
from darklode.pipeline.train.fit.whitening import whiten

D, TEMPERATURE = 6, 0.3
EYE = np.eye(D, dtype=np.float32)


def unit(vectors: Doubles) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32)


def pairs(seed: int, n_queries: int = 9) -> TrainingPairs:
    """Two pairs per query but for the last, which has none; the last candidate of every second pair is missing."""
    random = np.random.default_rng(seed)
    query = np.repeat(np.arange(n_queries - 1), 2)
    candidates = unit(random.standard_normal((len(query), 4, D)))
    allowed = np.ones((len(query), 4), bool)
    allowed[::2, -1] = False
    return TrainingPairs(unit(random.standard_normal((n_queries, D))), query, candidates, allowed)


def loss(part: TrainingPairs, vectors: Doubles) -> float:
    """InfoNCE, mean over a query's pairs, sum over queries."""
    logits = np.einsum("ijk,ik->ij", part.candidates, vectors[part.query]) / TEMPERATURE
    logits[~part.allowed] = -np.inf
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[:, 0]
    return float((losses / np.bincount(part.query)[part.query]).sum())


def test_moves_are_the_negative_gradient_of_the_loss() -> None:
    part = pairs(0)
    vectors, moves = gradient(part, EYE, TEMPERATURE)
    numeric = np.zeros_like(moves)
    for place in np.ndindex(moves.shape):
        step = np.zeros_like(vectors)
        step[place] = 1e-5
        numeric[place] = (loss(part, vectors - step) - loss(part, vectors + step)) / 2e-5
    assert np.allclose(moves / TEMPERATURE, numeric, atol=1e-3)
    assert not moves[-1].any()


def test_the_shared_head_is_the_ridge_solution_over_all_tenants() -> None:
    parts = [pairs(1), pairs(2, 5)]
    together = TrainingPairs.concat(parts)
    start, *rest = shared_maps(together, EYE, TEMPERATURE)
    assert start[:2] == (0.0, 0)
    assert [(ridge, number) for ridge, number, _ in rest] == [(r, n + 1) for r in RIDGES for n in range(ROUNDS)]
    gram, cross = RIDGES[0] * np.eye(D), np.zeros((D, D))
    for part in parts:  # a tenant gives sums, no row
        vectors, moves = gradient(part, EYE, TEMPERATURE)
        gram, cross = gram + vectors.T @ vectors, cross + moves.T @ vectors
    assert np.allclose(rest[0][2], EYE + STEP_LENGTH * cross @ np.linalg.inv(gram), atol=1e-5)
    losses = [loss(together, whiten(together.queries, weight).astype(np.float64)) for _, _, weight in (start, *rest)]
    assert losses[ROUNDS] < losses[1] < losses[0]


def test_an_offset_is_ridge_regression_on_the_tenants_own_queries() -> None:
    part, shared = pairs(3), np.asarray(EYE + 0.1 * np.random.default_rng(3).standard_normal((D, D)), np.float32)
    vectors, moves = gradient(part, shared, TEMPERATURE)
    primal = moves.T @ vectors @ np.linalg.inv(vectors.T @ vectors + 3.0 * np.eye(D))
    assert np.allclose(offset_map(part, shared, 3.0, TEMPERATURE), shared + STEP_LENGTH * primal @ shared, atol=1e-5)
    distances = [
        float(np.abs(offset_map(part, shared, ridge, TEMPERATURE) - shared).max()) for ridge in (1e6, 30, 3, np.inf)
    ]
    assert distances[0] < 1e-4 < distances[1] < distances[2]
    assert distances[3] == 0


def test_a_tenant_without_pairs_has_the_shared_head() -> None:
    part = pairs(4)
    empty = replace(part, query=part.query[:0], candidates=part.candidates[:0], allowed=part.allowed[:0])
    assert offset_map(empty, EYE, 3.0, TEMPERATURE) is EYE


@pytest.mark.parametrize("power", [0.25, 0.5])
def test_whitening_makes_directions_more_equal(power: float) -> None:
    rows = np.random.default_rng(6).standard_normal((400, D)) * [4, 2, 1, 1, 1, 1]
    moments = Moments(D)
    moments.add(rows.astype(np.float32))
    maps = whitening_maps(moments, moments)
    assert np.allclose(maps[0.0], EYE, atol=1e-5)
    spread = np.linalg.eigvalsh(np.cov((rows @ maps[power].T).T))
    before = np.linalg.eigvalsh(np.cov(rows.T))
    assert spread[-1] / spread[0] < before[-1] / before[0] * (0.6 if power == 0.25 else 0.3)
