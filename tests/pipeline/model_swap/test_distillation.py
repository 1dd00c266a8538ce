"""Distilled maps rank as the new encoder ranks."""

import numpy as np
import pytest
import torch

from darklode.pipeline.model_swap.distillation import DistillationSettings, ResidualMap, _loss, distill
from darklode.pipeline.model_swap.maps import random_orthogonal, zero_padding
from darklode.pipeline.model_swap.selection import Validation
from darklode.pipeline.train.fit.heads import apply_layers
from helpers.swapped import rotation, swap_vectors, unit


@pytest.mark.parametrize("hidden", [0, 5])
def test_exported_layers_give_the_same_vectors(hidden: int) -> None:
    model = ResidualMap(random_orthogonal(6, 4, 2), hidden)
    if model.output is not None:
        torch.nn.init.normal_(model.output.weight)
    vectors = unit(np.random.default_rng(0).standard_normal((7, 6)))
    with torch.no_grad():
        expected = torch.nn.functional.normalize(model(torch.from_numpy(vectors)), dim=1).numpy()
    assert np.allclose(apply_layers(model.layers(), vectors), expected, atol=1e-6)


def test_training_improves_a_poor_map_and_keeps_the_best_step() -> None:
    vectors = swap_vectors(rotation(8))
    validation = Validation(vectors)
    settings = DistillationSettings(0, documents_as_queries=True, learning_rate=1e-2, seed=1)
    poor = random_orthogonal(8, 8, 1)
    layers, step = distill(poor, vectors, settings, lambda layers: validation.recall(layers)[0])
    assert step > 0
    assert validation.recall(layers)[0] > validation.recall(poor)[0] + 0.3
    again, _ = distill(poor, vectors, settings, lambda layers: validation.recall(layers)[0])
    assert np.array_equal(layers[0][0], again[0][0]), "the same seed gives the same map"


def test_the_initial_map_stays_if_nothing_is_better() -> None:
    vectors = swap_vectors(rotation(8))
    settings = DistillationSettings(4, documents_as_queries=False, learning_rate=1e-2, seed=1)
    perfect = [(np.ascontiguousarray(rotation(8).T), np.zeros(8, np.float32))]
    layers, step = distill(perfect, vectors, settings, lambda _layers: 1.0)
    assert step == 0
    assert np.allclose(apply_layers(layers, vectors.train.new), vectors.train.old, atol=1e-5)


def test_a_document_is_no_result_of_itself() -> None:
    scores = torch.tensor([[1.0, 0.5, 0.1]])
    same = _loss(torch.tensor([[9.0, 0.5, 0.1]]), scores)
    assert torch.isclose(same, _loss(torch.tensor([[-9.0, 0.5, 0.1]]), scores)), "its own score changes nothing"
    assert _loss(torch.tensor([[0.0, 0.1, 0.5]]), scores) > same


def test_no_map_fits_a_space_that_is_the_same() -> None:
    vectors = swap_vectors(np.eye(8, dtype=np.float32))
    assert Validation(vectors).recall(zero_padding(8, 8)) == (1.0, 1.0)
