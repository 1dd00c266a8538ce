"""Expected measures and influences against the plain mean over all label vectors."""

from itertools import product

import numpy as np
import pytest

from darklode.pipeline.base import measure_influence as module
from darklode.pipeline.base.measure_influence import (
    UncertainLabels,
    estimate_spread,
    is_supported,
    measure_influence,
)
from darklode.pipeline.base.types import Doubles, Ints


def value(measure: str, labels: Doubles, rank: Ints) -> float:
    """The measure of one label vector."""
    name, _, depth = measure.partition("@")
    cutoff = int(depth)
    ranked = sorted((place, label) for place, label in zip(rank, labels, strict=True) if 0 < place <= cutoff)
    if name == "P":
        return float(sum(label for _, label in ranked) / cutoff)
    ideal = sum(1 / np.log2(place + 1) for place in range(1, min(int(labels.sum()), cutoff) + 1))
    return float(sum(label / np.log2(place + 1) for place, label in ranked) / ideal) if ideal else 0.0


def mean_value(measure: str, probability: Doubles, rank: Ints) -> float:
    """Mean over all label vectors."""
    total = 0.0
    for bits in product((0.0, 1.0), repeat=len(probability)):
        labels = np.array(bits)
        total += float(np.prod(np.where(labels > 0, probability, 1 - probability))) * value(measure, labels, rank)
    return total


def replaced(probability: Doubles, pair: int, label: float) -> Doubles:
    """The probabilities with one label known."""
    copy = probability.copy()
    copy[pair] = label
    return copy


def some_pairs(seed: int) -> tuple[Ints, Ints, Doubles, int]:
    """Queries with 0 to 7 pairs, ranks (0: not ranked), and probabilities of which some are 0 or 1."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 8, 6)
    query = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.concatenate([random.permutation(size + 3)[:size] for size in sizes]).astype(np.int64)
    probability = np.clip(random.normal(0.4, 0.5, len(query)), 0, 1)
    return query, rank, probability, len(sizes)


@pytest.mark.parametrize("measure", ["P@3", "nDCG@1", "nDCG@3", "nDCG@10"])
@pytest.mark.parametrize("block_numbers", [1, 200, module.BLOCK_NUMBERS])
@pytest.mark.parametrize("seed", range(3))
def test_values_and_influences_are_those_of_all_label_vectors(
    measure: str, block_numbers: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_NUMBERS", block_numbers)
    query, rank, probability, n_queries = some_pairs(seed)
    computed = measure_influence(measure, rank, UncertainLabels(query, probability, n_queries))
    for number in range(n_queries):
        rows = np.flatnonzero(query == number)
        own, ranks = probability[rows], rank[rows]
        assert computed.expected[number] == pytest.approx(mean_value(measure, own, ranks), abs=1e-12)
        differences = [
            mean_value(measure, replaced(own, pair, 1), ranks) - mean_value(measure, replaced(own, pair, 0), ranks)
            for pair in range(len(own))
        ]
        assert computed.influence[rows] == pytest.approx(differences, abs=1e-12)


def test_many_positives_are_computed_as_drawn() -> None:
    """More pairs than can be enumerated."""
    random = np.random.default_rng(0)
    probability, rank = random.random(60), random.permutation(80)[:60].astype(np.int64)
    labels = (random.random((4000, 60)) < probability).astype(float)
    values = np.array([value("nDCG@10", vector, rank) for vector in labels])
    computed = measure_influence("nDCG@10", rank, UncertainLabels(np.zeros(60, np.int64), probability, 1))
    assert computed.expected[0] == pytest.approx(values.mean(), abs=4 * values.std() / np.sqrt(len(values)))


def test_certain_labels_give_the_measure_itself_and_systems_can_be_subtracted() -> None:
    labels, rank = np.array([1.0, 0, 1, 0, 1]), np.array([2, 1, 0, 3, 4])
    certain = UncertainLabels(np.zeros(5, np.int64), labels, 1)
    first, other = (measure_influence(name, rank, certain) for name in ("nDCG@3", "P@3"))
    assert first.expected[0] == pytest.approx(value("nDCG@3", labels, rank))
    assert (first - other).expected[0] == pytest.approx(value("nDCG@3", labels, rank) - value("P@3", labels, rank))
    assert (first - other).influence == pytest.approx(first.influence - other.influence)


@pytest.mark.parametrize("spread", [0.5, 2.0])
def test_probabilities_are_means_over_the_deviations_of_a_query(spread: float) -> None:
    probability = np.array([0.0, 1e-6, 0.03, 0.5, 0.9, 1 - 1e-6, 1.0])
    parts = list(UncertainLabels(np.zeros(7, np.int64), probability, 1, spread).independent_parts())
    assert sum(weight for weight, _ in parts) == pytest.approx(1)
    assert sum(weight * each for weight, each in parts) == pytest.approx(probability, rel=1e-6)
    assert all(np.all(np.diff(each) >= 0) for _, each in parts)
    first, *_, last = (each for _, each in parts)
    assert np.all(first[1:-1] < last[1:-1])


def test_labels_with_a_shared_deviation_are_computed_as_drawn() -> None:
    """Queries whose log-odds deviate together: expected values are the means of drawn ones, and differ from those of
    independent labels.
    """
    random = np.random.default_rng(0)
    center, spread, rank = random.normal(-1.5, 1, 30), 2.5, random.permutation(40)[:30].astype(np.int64)
    drawn = 1 / (1 + np.exp(-center - spread * random.normal(size=(20_000, 1))))
    labels = (random.random(drawn.shape) < drawn).astype(float)
    values = np.array([value("nDCG@10", vector, rank) for vector in labels])
    query, probability = np.zeros(30, np.int64), drawn.mean(axis=0)
    shared, independent = (
        measure_influence("nDCG@10", rank, UncertainLabels(query, probability, 1, each)).expected[0]
        for each in (spread, 0.0)
    )
    error = 4 * values.std() / np.sqrt(len(values))
    assert shared == pytest.approx(values.mean(), abs=error)
    assert independent != pytest.approx(values.mean(), abs=error)


@pytest.mark.parametrize("spread", [0.0, 0.8, 1.5])
def test_the_spread_is_that_of_the_labels(spread: float) -> None:
    random = np.random.default_rng(2)
    query = np.repeat(np.arange(2000), 10)
    drawn = 1 / (1 + np.exp(1 - spread * random.normal(size=2000)[query]))
    label = (random.random(len(query)) < drawn).astype(float)
    probability = np.full(len(query), label.mean())
    assert estimate_spread(query, label, probability) == pytest.approx(spread, abs=0.15)


def test_the_spread_without_two_labels_of_a_query_is_the_prior_one() -> None:
    query, label = np.arange(5), np.array([0.0, 1, 0, 0, 1])
    assert estimate_spread(query, label, np.full(5, 0.3)) == pytest.approx(np.sqrt(module.PRIOR_VARIANCE), abs=1e-3)
    assert estimate_spread(query, np.zeros(5), np.zeros(5)) == 0


def test_measures_without_an_influence_are_named() -> None:
    assert [name for name in ("P@5", "nDCG@10", "R@10", "Success@5", "Judged@10", "nDCG") if is_supported(name)] == [
        "P@5",
        "nDCG@10",
    ]
    with pytest.raises(ValueError, match=r"R@10: the influence of labels is known for P and nDCG"):
        measure_influence("R@10", np.ones(1, np.int64), UncertainLabels(np.zeros(1, np.int64), np.ones(1), 1))
