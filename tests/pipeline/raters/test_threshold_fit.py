"""Kappa, the threshold of the highest kappa, and its value on queries that it has not seen."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from pipeline.raters import Confusion, cohens_kappa, confusion, cross_validated_kappa, fit_threshold

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
