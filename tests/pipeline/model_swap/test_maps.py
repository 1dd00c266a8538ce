"""Linear maps recover a known relation of two spaces."""

import numpy as np
import pytest

from darklode.pipeline.model_swap import maps
from darklode.pipeline.model_swap.recall import share_found
from darklode.pipeline.model_swap.vectors import search
from darklode.pipeline.train.fit.heads import apply_layers
from darklode.pipeline.train.types import Layers
from helpers.swapped import pairs, rotation, swap_vectors


def recall(layers: Layers, transform: np.ndarray[tuple[int, int], np.dtype[np.float32]], noise: float = 0.0) -> float:
    vectors = swap_vectors(transform, noise=noise)
    reference = search(vectors.validation.new, vectors.documents.new, 10)
    results = search(apply_layers(layers, vectors.validation.new), vectors.documents.old, 10)
    return float(share_found(results, reference, 10).mean())


def distance(layers: Layers, transform: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> float:
    """Mean distance of mapped queries to the old encoder's."""
    queries = swap_vectors(transform).validation
    return float(np.linalg.norm(apply_layers(layers, queries.new) - queries.old, axis=1).mean())


def test_procrustes_undoes_a_rotation_exactly() -> None:
    turn = rotation(8)
    ((weights, bias),) = maps.procrustes([pairs(50, turn, 5)], centered=False)
    assert np.allclose(weights, turn.T, atol=1e-5)
    assert not bias.any()
    assert recall([(weights, bias)], turn) == 1.0


@pytest.mark.parametrize(("new", "old"), [(12, 8), (8, 12)])
def test_procrustes_pads_the_smaller_space(new: int, old: int) -> None:
    embedding = rotation(12)[:new, :old]
    ((weights, bias),) = maps.procrustes([pairs(200, embedding, 5)], centered=True)
    assert weights.shape == (old, new)
    assert np.allclose(np.linalg.svd(weights)[1], 1, atol=1e-5), "as orthogonal as its shape allows"
    assert bias.shape == (old,)


def test_ridge_and_low_rank_undo_a_scaling_that_a_rotation_cannot() -> None:
    stretch = rotation(8) * np.linspace(0.3, 3, 8, dtype=np.float32)
    parts = [pairs(400, stretch, 5), pairs(100, stretch, 6)]
    ridge = maps.ridge(parts, 1e-3)
    full_rank = maps.low_rank(parts, 1e-3, 8)
    assert np.allclose(ridge[0][0], full_rank[0][0], atol=1e-4)
    assert distance(ridge, stretch) < distance(maps.procrustes(parts, centered=True), stretch) / 2
    assert np.linalg.matrix_rank(maps.low_rank(parts, 1e-3, 3)[0][0], tol=1e-4) == 3


def test_groups_have_equal_weight_whatever_their_size() -> None:
    first, second = pairs(40, rotation(8), 5), pairs(40, rotation(8, 9), 6)
    twice = second.take(np.tile(np.arange(40), 5))
    assert np.allclose(maps.ridge([first, second], 0.1)[0][0], maps.ridge([first, twice], 0.1)[0][0], atol=1e-5)


def test_score_regression_gives_old_vectors_the_new_scores() -> None:
    stretch = rotation(8) * np.linspace(0.3, 3, 8, dtype=np.float32)
    vectors = swap_vectors(stretch)
    ((weights, bias),) = maps.score_regression(vectors.documents, 1e-6)
    mapped = vectors.validation.new @ weights.T @ vectors.documents.old.T
    scores = vectors.validation.new @ vectors.documents.new.T
    correlation = [np.corrcoef(*rows)[0, 1] for rows in zip(mapped, scores, strict=True)]
    assert min(correlation) > 0.95
    assert not bias.any()


def test_baselines_learn_nothing() -> None:
    vector = np.array([[0.6, 0.8, 0]], np.float32)
    assert apply_layers(maps.zero_padding(3, 4), vector).tolist() == [pytest.approx([0.6, 0.8, 0, 0])]
    ((weights, _),) = maps.random_orthogonal(12, 8, 1)
    assert weights.shape == (8, 12)
    assert np.allclose(weights @ weights.T, np.eye(8), atol=1e-5)
    assert recall(maps.random_orthogonal(8, 8, 1), rotation(8)) < 0.4
