"""Calibration of a distilled judge, its agreement with intervals, and the bands of a cascade."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from darklode.pipeline.reranker.distil.comparison import (
    HeldOutPairs,
    LogitCalibration,
    QueryBootstrap,
    cascade_bands,
    cascade_choices,
    compare,
    interval,
)

N_QUERIES, PER_QUERY = 60, 20


def pairs(seed: int = 1, labelled: float = 1.0) -> HeldOutPairs:
    """Scores that tell the teacher's labels to some degree; people agree with the teacher at nine of ten pairs."""
    random = np.random.default_rng(seed)
    n = N_QUERIES * PER_QUERY
    logit = random.normal(size=n)
    teacher = random.random(n) < 1 / (1 + np.exp(-3 * logit))
    people = np.where(random.random(n) < 0.9, teacher, ~teacher).astype(np.float64)
    people[random.random(n) >= labelled] = np.nan
    return HeldOutPairs(np.repeat(np.arange(N_QUERIES), PER_QUERY), logit, teacher, people, np.ones(n))


def test_calibration_recovers_the_curve_and_inverts() -> None:
    data = pairs()
    fitted = LogitCalibration.fit(data.logit, data.teacher)
    assert fitted is not None
    assert fitted.slope == pytest.approx(3, rel=0.25)
    assert fitted.probability(np.array([fitted.logit_at(0.3)])).tolist() == pytest.approx([0.3])
    assert fitted.logit_at(1.0) == np.inf


def test_scores_against_the_labels_are_not_calibrated() -> None:
    data = pairs()
    assert LogitCalibration.fit(-data.logit, data.teacher) is None
    assert LogitCalibration.fit(data.logit, np.ones(len(data.logit), bool)) is None


def test_a_pair_is_calibrated_by_other_queries_only() -> None:
    data = pairs()
    before, _ = data.cross_fitted(3, on_people=False)
    flipped = replace(data, teacher=np.where(data.query == 7, ~data.teacher, data.teacher))
    after, _ = flipped.cross_fitted(3, on_people=False)
    assert (before[data.query == 7] == after[data.query == 7]).all()
    assert (before != after).any()


def test_kappas_of_the_bootstrap_are_paired_and_weighted() -> None:
    data = pairs()
    bootstrap = QueryBootstrap(data.query, 1)
    same = bootstrap.kappas(data.teacher, data.teacher)
    assert np.allclose(same, 1)
    labels = data.logit > 0
    difference = interval(bootstrap.kappas(labels, data.teacher) - bootstrap.kappas(labels, data.teacher))
    assert (difference.value, difference.low, difference.high) == (0, 0, 0)
    right = (labels == data.teacher).astype(np.float64)
    assert bootstrap.kappas(labels, data.teacher, right)[0] == pytest.approx(1)
    values = interval(bootstrap.kappas(labels, data.teacher))
    assert values.low is not None
    assert values.high is not None
    assert values.low < (values.value or 0) < values.high


def test_undefined_kappas_are_null() -> None:
    data = pairs()
    everything = np.ones(len(data.query), bool)
    assert interval(QueryBootstrap(data.query, 1).kappas(everything, everything)).value is None


def test_the_comparison_uses_labelled_pairs_and_is_empty_without_any() -> None:
    data = pairs(labelled=0.3)
    relevant = data.logit > 0
    compared = compare(data, relevant, 1)
    assert compared.labels == np.isfinite(data.people).sum()
    teacher, student = compared.people_kappas
    assert compared.difference is not None
    assert compared.difference.value == pytest.approx((student.value or 0) - (teacher.value or 0))
    assert (compared.difference.high or 0) < 0  # the student knows less than its teacher
    unlabelled = replace(data, people=np.full(len(data.people), np.nan))
    assert compare(unlabelled, relevant, 1).difference is None
    assert not unlabelled.fits_people


def test_bands_grow_from_the_small_judge_alone_to_the_teacher_alone() -> None:
    data = pairs()
    final = LogitCalibration(1.0, 0.5, 0.5)
    rows = cascade_bands(data, final, 2)
    shares = [row["teacher_share"] or 0.0 for row in rows]
    assert shares[0] == 0
    assert shares == sorted(shares)
    assert (rows[-1]["teacher_share"], rows[-1]["low"], rows[-1]["high"], rows[-1]["kappa"]) == (1, None, None, 1)
    kappas = [row["kappa"] or 0.0 for row in rows]
    assert all(later >= earlier - 0.01 for earlier, later in pairwise(kappas))
    # The edges are probabilities of the final calibration: applied to it, they leave about as many pairs.
    middle = rows[8]
    probability = final.probability(data.logit)
    inside = (probability > (middle["low"] or 0)) & (probability < (middle["high"] or 1))
    assert inside.mean() == pytest.approx(middle["teacher_share"], abs=0.03)


def test_useless_scores_leave_everything_to_the_teacher() -> None:
    data = pairs()
    rows = cascade_bands(replace(data, logit=-data.logit), LogitCalibration(1.0, 0.0, 0.5), 2)
    assert [row["teacher_share"] for row in rows] == [1.0]


def test_figures_of_a_chosen_band_come_from_other_queries() -> None:
    data = pairs()
    rows = cascade_bands(data, LogitCalibration(1.0, 0.5, 0.5), 2)
    for row in rows:
        *counts, n_teacher = np.sum(row["fold_counts"], axis=0)
        assert sum(counts) == len(data.query)
        assert n_teacher / sum(counts) == pytest.approx(row["teacher_share"])
        assert (counts[0] + counts[3]) / sum(counts) == pytest.approx(row["agreement"])
    choices = cascade_choices(rows).to_pylist()
    assert [row["agreement"] for row in choices] == [0.6, 0.7, 0.8, 0.9, 0.95]
    shares = [row["teacher_share"] for row in choices]
    assert shares == sorted(shares)
    assert 0 < shares[1] < shares[-1] < 1
    for row in choices:
        assert row["kappa"] == pytest.approx(row["agreement"], abs=0.1)
