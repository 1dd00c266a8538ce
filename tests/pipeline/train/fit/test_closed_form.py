"""The solved head: the ridge's own equation, and a target that it can reach."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from darklode.pipeline.train.data.negatives import Negatives
from darklode.pipeline.train.fit.closed_form import RIDGES, solutions
from darklode.schemas.adaptation import AdaptSettings


def unit(n: int, seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    drawn = np.random.default_rng(seed).standard_normal((n, 6))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def test_it_solves_the_ridge_towards_the_losses_gradient() -> None:
    queries, texts = unit(20, 0), unit(30, 1)
    right, wrong = np.arange(20), np.column_stack([np.arange(20, 30), np.full(10, -1)]).repeat(2, axis=0)
    task: Any = SimpleNamespace(
        train=SimpleNamespace(vectors=queries),
        frozen=SimpleNamespace(take=lambda positions: texts[positions]),
        pair_query=np.arange(20),
        pair_position=right,
    )
    found = dict(solutions(task, Negatives(wrong, np.zeros(wrong.shape, bool)), AdaptSettings(temperature=0.1)))
    assert tuple(found) == RIDGES
    near, far = np.einsum("ij,ij->i", queries, texts[right]), np.einsum("ij,ij->i", queries, texts[wrong[:, 0]])
    weight = 1 / (1 + np.exp((far - near) / 0.1))
    moves = texts[right] - weight[:, None] * texts[right] - (1 - weight)[:, None] * texts[wrong[:, 0]]
    for ridge, [(solved, bias)] in found.items():
        wanted = np.linalg.solve(queries.T @ queries + ridge * np.eye(6), queries.T @ moves).T
        np.testing.assert_allclose(solved, wanted, atol=1e-5)
        assert not bias.any()
