"""Kappa against scikit-learn with weights, and alpha against a matrix of coincidences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, confusion_matrix, precision_score, recall_score

from pipeline.raters import alpha, cohens_kappa, confusion, cross_validated_kappa, fit_threshold, kappa_of_table
from pipeline.raters.kappa import quadratic

LABELS = st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 50)), min_size=2, max_size=60)
GRADES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), min_size=2, max_size=60)


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
