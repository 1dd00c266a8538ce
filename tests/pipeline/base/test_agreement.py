"""Kappa and alpha by hand and against scikit-learn, and the threshold of the highest kappa."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, confusion_matrix, precision_score, recall_score

from darklode.pipeline.base.agreement import (
    Confusion,
    alpha,
    cohens_kappa,
    confusion,
    cross_validated_kappa,
    fit_threshold,
    kappa_of_table,
    quadratic,
)

LABELS = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 50)), min_size=2, max_size=60)
GRADES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), min_size=2, max_size=60)


@pytest.mark.slow
@given(LABELS)
def test_weighed_counts_and_kappa_are_those_of_scikit_learn(pairs: list[tuple[bool, bool, int]]) -> None:
    said, positive, weight = (np.array(column) for column in zip(*pairs, strict=True))
    counts = confusion(said, positive, weight.astype(np.float64))
    (tn, fp), (fn, tp) = confusion_matrix(positive, said, sample_weight=weight, labels=[False, True])
    assert [float(one) for one in counts] == pytest.approx([tp, fp, fn, tn])
    given_ = {"sample_weight": weight, "zero_division": 0.0}
    hits, false, missed, _ = (float(one) for one in counts)
    assert hits / max(hits + false, 1) == pytest.approx(precision_score(positive, said, **given_))
    assert hits / max(hits + missed, 1) == pytest.approx(recall_score(positive, said, **given_))
    ours = float(cohens_kappa(counts))
    if math.isnan(ours):
        assert len({*said, *positive}) == 1
    else:
        assert ours == pytest.approx(cohen_kappa_score(said, positive, sample_weight=weight))


@given(GRADES, st.sampled_from([None, "linear", "quadratic"]))
def test_weighted_kappa_is_that_of_scikit_learn(pairs: list[tuple[int, int, int]], kind: str | None) -> None:
    one, two, weight = (np.array(column) for column in zip(*pairs, strict=True))
    table = np.zeros((4, 4))
    np.add.at(table, (one, two), weight)
    values = np.arange(4.0)
    apart = np.abs(values[:, None] - values)
    cost = {None: (apart > 0).astype(float), "linear": apart, "quadratic": quadratic(values)}[kind]
    ours = float(kappa_of_table(table, cost))
    if math.isnan(ours):
        assert len({*one, *two}) == 1
    else:
        assert ours == pytest.approx(cohen_kappa_score(one, two, weights=kind, sample_weight=weight, labels=range(4)))


def test_many_tables_at_once() -> None:
    tables = np.random.default_rng(0).integers(1, 9, (5, 3, 3)).astype(float)
    cost = quadratic(np.arange(3.0))
    assert kappa_of_table(tables, cost) == pytest.approx([float(kappa_of_table(one, cost)) for one in tables])


def coincidences(units: list[list[int]]) -> float:
    """Krippendorff's alpha (nominal) the long way: a matrix of coincidences, label by label."""
    matrix = np.zeros((2, 2))
    for labels in units:
        for place, one in enumerate(labels):
            for other, two in enumerate(labels):
                if place != other:
                    matrix[one, two] += 1 / (len(labels) - 1)
    totals, n = matrix.sum(axis=1), matrix.sum()
    expected = sum(totals[one] * totals[two] for one in range(2) for two in range(2) if one != two) / (n - 1)
    observed = matrix.sum() - np.trace(matrix)
    return float(1 - observed / expected) if expected else math.nan


@given(st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=6), min_size=1, max_size=25))
def test_alpha_is_that_of_coincidences(units: list[list[int]]) -> None:
    yes = np.array([sum(labels) for labels in units])
    no = np.array([len(labels) - sum(labels) for labels in units])
    assert float(alpha(yes, no, np.ones(len(units)))) == pytest.approx(coincidences(units), nan_ok=True)


def test_alpha_of_many_samples_at_once() -> None:
    yes, no = np.array([2, 1, 0, 3]), np.array([0, 1, 2, 1])
    pairs = np.random.default_rng(0).integers(1, 9, (6, 4))
    assert alpha(yes, no, pairs) == pytest.approx([float(alpha(yes, no, one)) for one in pairs], nan_ok=True)


def test_weights_are_copies() -> None:
    chance = np.random.default_rng(0)
    probability = chance.random(150).astype(np.float32)
    positive = chance.random(150) < probability
    query, weight = np.arange(150) // 5, chance.integers(1, 6, 150)
    copies = np.repeat(np.arange(150), weight)
    threshold, kappa = fit_threshold(probability, positive, weight.astype(float)) or (0, 0)
    assert fit_threshold(probability[copies], positive[copies]) == (threshold, pytest.approx(kappa))
    crossed = cross_validated_kappa(probability, positive, query, 1, weight.astype(float))
    assert crossed == pytest.approx(cross_validated_kappa(probability[copies], positive[copies], query[copies], 1))


PAIRS = st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=1, max_size=60)


def columns(pairs: list[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([p for p, _ in pairs], dtype=np.float32), np.array([y for _, y in pairs], dtype=bool)


def test_kappa_by_hand() -> None:
    # 20 of 50 yes by both, 15 no by both, 5 by the first alone, 10 by the second alone: observed .7, by chance .5.
    counts = Confusion(*(np.array(count) for count in (20, 5, 10, 15)))
    assert float(cohens_kappa(counts)) == pytest.approx((0.7 - 0.5) / (1 - 0.5))


def test_kappa_is_unknown_where_nothing_can_differ() -> None:
    assert math.isnan(cohens_kappa(confusion(np.ones(3, bool), np.ones(3, bool))))
    assert math.isnan(cohens_kappa(confusion(np.zeros(0, bool), np.zeros(0, bool))))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=50))
def test_kappa_is_that_of_scikit_learn(pairs: list[tuple[bool, bool]]) -> None:
    said, positive = (np.array(column) for column in zip(*pairs, strict=True))
    ours = float(cohens_kappa(confusion(said, positive)))
    if math.isnan(ours):
        assert len({*said, *positive}) == 1
    else:
        assert ours == pytest.approx(cohen_kappa_score(said, positive))


@given(PAIRS)
def test_no_other_threshold_agrees_better(pairs: list[tuple[float, bool]]) -> None:
    probability, positive = columns(pairs)
    found = fit_threshold(probability, positive)
    threshold, kappa = found or (0.0, 0.0)
    assert float(f"{threshold:g}") == threshold  # a judge_id shows all of it
    at = float(cohens_kappa(confusion(probability >= np.float32(threshold), positive)))
    assert kappa == pytest.approx(0.0 if found is None else at)
    values = np.unique(probability).astype(np.float64)
    if len(values) > 1 and np.diff(values).min() > 1e-5:
        others = [float(cohens_kappa(confusion(probability >= np.float32(value), positive))) for value in values]
        assert all(math.isnan(other) or other <= kappa + 1e-9 for other in others)


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_change_the_threshold(pairs: list[tuple[float, bool]], random: object) -> None:
    mixed = list(pairs)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert fit_threshold(*columns(pairs)) == fit_threshold(*columns(mixed))


def test_a_threshold_lies_between_the_classes_and_near_one_half() -> None:
    apart = columns([(0.1, False), (0.2, False), (0.4, True), (0.9, True)])
    assert fit_threshold(*apart) == (pytest.approx(0.3), 1.0)
    mirrored = columns([(0.1, False), (0.2, True), (0.8, False), (0.9, True)])
    threshold, _ = fit_threshold(*mirrored) or (0, 0)
    assert threshold == pytest.approx(0.15)  # as far from one half as 0.85, and as good: the lower one


def test_of_equally_good_thresholds_the_nearest_to_one_half_is_taken() -> None:
    equal = columns([(0.1, False), (0.2, True), (0.45, False), (0.9, True)])
    assert fit_threshold(*equal) == (pytest.approx(0.675), pytest.approx(0.5))  # at 0.15 kappa is 0.5, too


WORTHLESS: list[list[tuple[float, bool]]] = [
    [],
    [(0.5, True)],
    [(0.5, True), (0.5, False)],
    [(0.2, True), (0.8, True)],
    [(0.2, True), (0.8, False)],
]


@pytest.mark.parametrize("pairs", WORTHLESS)
def test_where_no_threshold_beats_chance_none_is_fitted(pairs: list[tuple[float, bool]]) -> None:
    assert fit_threshold(*columns(pairs)) is None


def sample(n: int, per_query: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    probability = draw.random(n).astype(np.float32)
    return probability, draw.random(n) < probability, np.arange(n) // per_query


def test_the_cross_validated_kappa_is_lower_on_the_whole_and_the_same_each_time() -> None:
    gaps = []
    for seed in range(20):
        probability, positive, query = sample(120, 4, seed)
        _, fitted = fit_threshold(probability, positive) or (0, 0)
        crossed = cross_validated_kappa(probability, positive, query, seed=13)
        assert crossed == cross_validated_kappa(probability, positive, query, seed=13)
        gaps.append(fitted - crossed)
    assert np.mean(gaps) > 0.02


def test_the_label_of_a_query_does_not_choose_its_own_threshold() -> None:
    # Each query's pairs are told apart at another threshold: seen from the others, none is told apart well.
    probability = np.concatenate([np.array([place / 10, place / 10 + 0.05]) for place in range(5)]).astype(np.float32)
    positive = np.array([False, True] * 5)
    query = np.repeat(np.arange(5), 2)
    for held in range(5):
        flipped = np.where(query == held, ~positive, positive)
        others = query != held
        assert fit_threshold(probability[others], positive[others]) == fit_threshold(
            probability[others], flipped[others]
        )
    assert cross_validated_kappa(probability, positive, query, 1) < 0.5


def test_one_query_cannot_be_cross_validated() -> None:
    probability, positive, _ = sample(50, 1)
    assert math.isnan(cross_validated_kappa(probability, positive, np.zeros(50, np.int64), 1))
