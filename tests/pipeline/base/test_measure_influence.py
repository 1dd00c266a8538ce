"""Expected measures against the mean over all label vectors, and influences against exact differences."""

from itertools import product

import numpy as np
import pytest

from darklode.pipeline.base.measure_influence import UncertainLabels, is_supported, measure_influence

PROBABILITY = np.array([0.9, 0.2, 0.5, 0.05, 0.3])
RANK = np.array([2, 1, 0, 3, 4])


def value(name: str, labels: np.ndarray, cutoff: int) -> float:
    """The measure of one label vector."""
    ranked = sorted((rank, label) for rank, label in zip(RANK, labels, strict=True) if 0 < rank <= cutoff)
    if name == "P":
        return sum(label for _, label in ranked) / cutoff
    ideal = sum(1 / np.log2(rank + 1) for rank in range(1, min(int(labels.sum()), cutoff) + 1))
    return sum(label / np.log2(rank + 1) for rank, label in ranked) / ideal if ideal else 0.0


def exact(name: str, cutoff: int, **fixed: float) -> float:
    """Mean over all label vectors, with some probabilities replaced."""
    probability = PROBABILITY.copy()
    for place, chance in fixed.items():
        probability[int(place[1:])] = chance
    total = 0.0
    for bits in product((0.0, 1.0), repeat=len(probability)):
        labels = np.array(bits)
        total += float(np.prod(np.where(labels > 0, probability, 1 - probability))) * value(name, labels, cutoff)
    return total


@pytest.mark.parametrize(("name", "cutoff"), [("P", 3), ("nDCG", 3), ("nDCG", 10)])
def test_expected_values_and_influences_are_those_of_all_label_vectors(name: str, cutoff: int) -> None:
    query = np.zeros(5, np.int64)
    found = [
        measure_influence(f"{name}@{cutoff}", RANK, UncertainLabels(query, PROBABILITY, 2), seed) for seed in range(20)
    ]
    expected = np.mean([measure.expected for measure in found], axis=0)
    assert expected[0] == pytest.approx(exact(name, cutoff), abs=0.005)
    assert expected[1] == 0, "a query without a pair"
    influence = np.mean([measure.influence for measure in found], axis=0)
    differences = [exact(name, cutoff, **{f"p{i}": 1}) - exact(name, cutoff, **{f"p{i}": 0}) for i in range(5)]
    assert influence == pytest.approx(differences, abs=0.01)


def test_certain_labels_give_the_measure_itself_and_systems_can_be_subtracted() -> None:
    labels = np.array([1.0, 0, 1, 0, 1])
    certain = UncertainLabels(np.zeros(5, np.int64), labels, 1)
    first, other = (measure_influence(name, RANK, certain, 1) for name in ("nDCG@3", "P@3"))
    assert first.expected[0] == pytest.approx(value("nDCG", labels, 3))
    assert (first - other).expected[0] == pytest.approx(value("nDCG", labels, 3) - value("P", labels, 3))
    assert (first - other).influence == pytest.approx(first.influence - other.influence)


def test_measures_without_an_influence_are_named() -> None:
    assert [name for name in ("P@5", "nDCG@10", "R@10", "Success@5", "Judged@10", "nDCG") if is_supported(name)] == [
        "P@5",
        "nDCG@10",
    ]
    with pytest.raises(ValueError, match=r"R@10: the influence of labels is known for P and nDCG"):
        measure_influence("R@10", RANK, UncertainLabels(np.zeros(5, np.int64), PROBABILITY, 1), 1)
