"""The solved head: the ridge's own equation, and a target that it can reach."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.labels import Labels
from darklode.pipeline.train.data.negatives import Negatives
from darklode.pipeline.train.fit.closed_form import RIDGES, solutions
from darklode.schemas.adaptation import AdaptSettings


def unit(n: int, seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    drawn = np.random.default_rng(seed).standard_normal((n, 6))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def task_of(queries: Any, texts: Any, weight: Any = None) -> Task:
    """A task with one positive per query: the text of the same number."""
    n, unused = np.arange(len(queries)), Labels(np.empty(0, np.int64), 1)
    train: Any = Vectors(queries)
    frozen: Any = SimpleNamespace(take=lambda positions: texts[positions])
    return Task(frozen, train, train, n, n, unused, unused, None, pair_weight=weight)


class Vectors(SimpleNamespace):
    """Queries that have vectors only."""

    def __init__(self, vectors: Any) -> None:
        super().__init__(vectors=vectors)

    def __len__(self) -> int:
        return len(self.vectors)


def test_it_solves_the_ridge_towards_the_losses_gradient() -> None:
    queries, texts = unit(20, 0), unit(30, 1)
    right, wrong = np.arange(20), np.column_stack([np.arange(20, 30), np.full(10, -1)]).repeat(2, axis=0)
    task = task_of(queries, texts)
    found = dict(solutions(task, Negatives(wrong, np.zeros(wrong.shape, bool)), AdaptSettings(temperature=0.1)))
    assert tuple(found) == RIDGES
    near, far = np.einsum("ij,ij->i", queries, texts[right]), np.einsum("ij,ij->i", queries, texts[wrong[:, 0]])
    weight = 1 / (1 + np.exp((far - near) / 0.1))
    moves = texts[right] - weight[:, None] * texts[right] - (1 - weight)[:, None] * texts[wrong[:, 0]]
    for ridge, [(solved, bias)] in found.items():
        wanted = np.linalg.solve(queries.T @ queries + ridge * np.eye(6), queries.T @ moves).T
        np.testing.assert_allclose(solved, wanted, atol=1e-5)
        assert not bias.any()


def test_weights_make_it_weighted_least_squares_and_equal_ones_change_no_digit() -> None:
    queries, texts = unit(20, 0), unit(30, 1)
    wrong = np.column_stack([np.arange(20, 30), np.full(10, -1)]).repeat(2, axis=0)
    negatives, settings = Negatives(wrong, np.zeros(wrong.shape, bool)), AdaptSettings(temperature=0.1)
    weights = np.linspace(0.1, 1, 20).astype(np.float32)
    unweighted, alike, weighted = (
        dict(solutions(task_of(queries, texts, weight), negatives, settings))
        for weight in (None, np.full(20, 0.7, np.float32), weights)
    )
    near, far = np.einsum("ij,ij->i", queries, texts[:20]), np.einsum("ij,ij->i", queries, texts[wrong[:, 0]])
    share = 1 / (1 + np.exp((near - far) / 0.1))
    moves = share[:, None] * (texts[:20] - texts[wrong[:, 0]])
    rows = queries * (weights / weights.mean())[:, None]
    for ridge in RIDGES:
        np.testing.assert_array_equal(unweighted[ridge][0][0], alike[ridge][0][0])
        wanted = np.linalg.solve(rows.T @ queries + ridge * np.eye(6), rows.T @ moves).T
        np.testing.assert_allclose(weighted[ridge][0][0], wanted, atol=1e-5)


def test_a_query_moves_to_the_weighted_mean_of_its_positives() -> None:
    queries, texts = unit(6, 0), unit(12, 1)
    task = task_of(queries, texts, np.array([0.9, 0.3] * 6, np.float32))
    both = replace(task, pair_query=np.arange(12) // 2, pair_position=np.arange(12))
    none = Negatives(np.full((12, 1), -1), np.zeros((12, 1), bool))
    assert not any(layers[0][0].any() for _, layers in solutions(both, none, AdaptSettings())), "nothing to leave"
    wrong = Negatives(np.arange(12).reshape(6, 2).repeat(2, axis=0)[:, ::-1], np.zeros((12, 2), bool))
    apart = dict(solutions(both, wrong, AdaptSettings(temperature=1e6)))
    direction = 0.75 * texts[::2] + 0.25 * texts[1::2]
    centre = (texts[::2] + texts[1::2]) / 2
    # At an infinite temperature the softmax is even over the positive and both negatives.
    expected = (direction * 2 / 3) - centre * 2 / 3
    wanted = np.linalg.solve(queries.T @ queries + np.eye(6), queries.T @ expected).T
    np.testing.assert_allclose(apart[1.0][0][0], wanted, atol=1e-4)
