"""Heads: where they begin, how many numbers they train, and the same head in other forms."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.fit.heads import Head, dense, layers_of
from darklode.pipeline.train.fit.weights import as_rows, from_rows
from darklode.pipeline.train.types import Layers


def vectors(n: int = 5, dimensions: int = 8) -> Floats:
    drawn = np.random.default_rng(1).standard_normal((n, dimensions))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def moved(layers: int) -> Head:
    """A head that is no longer the base."""
    torch.manual_seed(3)
    head = Head(8, layers)
    with torch.no_grad():
        for number in head.parameters():
            number.add_(torch.randn_like(number) * 0.2)
    return head


def plainly(layers: Layers, given: Floats) -> Floats:
    """What plain layers with GELU between them give."""
    found = torch.from_numpy(given)
    for number, (weight, bias) in enumerate(layers):
        found = functional.gelu(found) if number else found
        found = found @ torch.from_numpy(weight).T + torch.from_numpy(bias)
    return np.asarray(functional.normalize(found, dim=1).numpy())


@pytest.mark.parametrize("layers", [1, 3])
def test_a_head_begins_as_the_base(layers: int) -> None:
    np.testing.assert_allclose(Head(8, layers).apply_to(vectors()), vectors(), atol=1e-7)


@pytest.mark.parametrize(
    ("layers", "dimensions", "wanted"),
    [(1, 1024, 1_049_600), (3, 1024, 3_148_800), (1, 2560, 6_556_160), (3, 2560, 19_668_480)],
)
def test_as_many_numbers_are_trained_as_table_5_says(layers: int, dimensions: int, wanted: int) -> None:
    with torch.device("meta"):
        head = Head(dimensions, layers)
    assert sum(number.numel() for number in head.parameters()) == wanted


@pytest.mark.parametrize("layers", [1, 3])
def test_plain_layers_give_the_same(layers: int) -> None:
    head = moved(layers)
    np.testing.assert_allclose(plainly(dense(head.weights()), vectors()), head.apply_to(vectors()), atol=1e-6)


@pytest.mark.parametrize("layers", [1, 3])
def test_no_share_is_the_base_and_half_lies_between(layers: int) -> None:
    head, given = moved(layers), vectors()
    np.testing.assert_allclose(Head.from_layers(head.weights(0.0)).apply_to(given), given, atol=1e-7)
    half = Head.from_layers(head.weights(0.5)).apply_to(given)
    whole = head.apply_to(given)
    assert ((half * given).sum(axis=1) > (whole * given).sum(axis=1)).all()


@pytest.mark.parametrize("layers", [1, 3])
def test_weights_come_back_from_their_rows(layers: int) -> None:
    wanted = moved(layers).weights()
    for found, given in zip(layers_of(from_rows(as_rows(2, moved(layers).state()))), wanted, strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(found, given, strict=True))


def test_a_zero_vector_stays_zero() -> None:
    assert not moved(1).apply_to(np.zeros((2, 8), np.float32)).any()
