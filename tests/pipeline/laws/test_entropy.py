"""Contrastive entropy: chance, what a good score gives, and negatives that nobody labelled."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from darklode.pipeline.laws.entropy import sample_negatives
from darklode.pipeline.laws.points import N_NEGATIVES
from darklode.pipeline.train.data.labels import Labels

N = 400
PAIRS = np.array([0, 0, 1]), np.array([7, 3, 9])


def labels(width: int = 5) -> Labels:
    query = np.repeat(np.arange(2), width)
    return Labels.from_pairs(query, np.tile(np.arange(width), 2), N)


def frozen(vectors: Any) -> Any:
    return SimpleNamespace(take=lambda positions: vectors[positions])


def test_equal_scores_give_the_logarithm_of_257() -> None:
    found = sample_negatives(["a", "b"], PAIRS, labels(), N, 0)
    same = np.tile(np.float32([1, 0]), (N, 1))
    values = found.entropy(frozen(same), np.float32([[1, 0], [0.6, 0.8]]), 0.05)
    assert values == pytest.approx([np.log(257)] * 3)


def test_a_pair_is_minus_the_logarithm_of_its_share() -> None:
    draws = np.random.default_rng(0)
    vectors = draws.normal(size=(N, 8)).astype(np.float32)
    asked = draws.normal(size=(2, 8)).astype(np.float32)
    found = sample_negatives(["a", "b"], PAIRS, labels(), N, 0)
    values = found.entropy(frozen(vectors), asked, 0.5)
    assert found.position.tolist() == [3, 7, 9]  # ascending within a query
    for at, (query, position) in enumerate(zip(found.query, found.position, strict=True)):
        own = np.exp(vectors[position] @ asked[query] / 0.5)
        others = np.exp(vectors[found.negatives[query]] @ asked[query] / 0.5).sum()
        assert values[at] == pytest.approx(-np.log(own / (own + others)), rel=1e-5)


def test_negatives_are_unlabelled_different_and_the_querys_own() -> None:
    found = sample_negatives(["a", "b"], PAIRS, labels(100), N, 0)
    assert found.negatives.shape == (2, N_NEGATIVES)
    assert (found.negatives >= 100).all()
    assert all(len(set(row)) == N_NEGATIVES for row in found.negatives.tolist())
    assert found.negatives[0].tolist() != found.negatives[1].tolist()
    alone = sample_negatives(
        ["b"], (np.array([0]), np.array([9])), Labels.from_pairs(np.zeros(100, int), np.arange(100), N), N, 0
    )
    assert alone.negatives[0].tolist() == found.negatives[1].tolist()
    assert sample_negatives(["a", "b"], PAIRS, labels(100), N, 1).negatives.tolist() != found.negatives.tolist()


def test_few_texts_give_few_negatives_and_less_chance() -> None:
    n = 30
    few = Labels.from_pairs(np.zeros(5, int), np.arange(5), n)
    found = sample_negatives(["a"], (np.array([0]), np.array([2])), few, n, 0)
    assert found.counts.tolist() == [25]
    same = np.tile(np.float32([1, 0]), (n, 1))
    assert found.entropy(frozen(same), np.float32([[1, 0]]), 1)[0] == pytest.approx(np.log(26))
