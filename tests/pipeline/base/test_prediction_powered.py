"""Corrected figures: unbiased whatever the judge, narrower with a good one, no wider with a useless one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from darklode.pipeline.base import prediction_powered as module
from darklode.pipeline.base.label_weights import weigh_labels
from darklode.pipeline.base.measure_influence import ExpectedMeasure, measure_influence
from darklode.pipeline.base.prediction_powered import (
    MIN_QUERIES,
    PRIOR_LABELS,
    Calibration,
    CorrectedEstimate,
    LabelSample,
    _correction,
    _sampling_variance,
    calibrate,
    correct_mean,
    correct_ratio,
    tune,
)
from darklode.pipeline.base.types import Mask

QUERIES, PER_QUERY = 40, 50
QUERY = np.repeat(np.arange(QUERIES), PER_QUERY)
Floats = NDArray[np.float64]


def population(seed: int = 0) -> tuple[Floats, Floats]:
    """Score of a good judge, and people's labels, 1 in five relevant."""
    random = np.random.default_rng(seed)
    truth = (random.random(len(QUERY)) < 0.2).astype(float)
    return truth * 2 + random.normal(size=len(QUERY)), truth


def labelled(truth: Floats, size: int, seed: int) -> LabelSample:
    """A simple random sample."""
    drawn = np.random.default_rng(seed).permutation(len(truth))[:size]
    label, weight = np.full(len(truth), np.nan), np.full(len(truth), np.nan)
    label[drawn], weight[drawn] = truth[drawn], len(truth) / size
    return LabelSample(QUERY, label, weight, np.zeros(len(truth), np.int64), np.arange(QUERIES))


def share(sample: LabelSample, calibration: Calibration) -> CorrectedEstimate:
    """The share of relevant pairs."""
    expected = np.bincount(QUERY, calibration.probability) / PER_QUERY
    return correct_mean(sample, calibration, ExpectedMeasure(expected, np.full(len(QUERY), 1 / PER_QUERY)))


def repeat(size: int, judge: Callable[[Floats], Floats], n: int = 150) -> tuple[Floats, Floats, float]:
    """Estimates and half widths over samples, and the truth."""
    score, truth = population()
    estimates = []
    for seed in range(n):
        sample = labelled(truth, size, seed)
        estimates.append(share(sample, calibrate(sample, judge(score), seed)))
    values, lows, highs = (np.array([getattr(part, name) for part in estimates]) for name in ("value", "low", "high"))
    return values, (highs - lows) / 2, float(truth.mean())


def test_the_estimate_is_unbiased_and_covered_and_a_good_judge_narrows_it() -> None:
    values, half, truth = repeat(150, lambda score: score)
    assert abs(values.mean() - truth) < 0.01
    assert (np.abs(values - truth) <= half).mean() >= 0.9
    useless, wide, _ = repeat(150, lambda score: np.random.default_rng(1).normal(size=len(score)))
    assert abs(useless.mean() - truth) < 0.01
    assert half.mean() < 0.85 * wide.mean()


@pytest.mark.parametrize("judge", [lambda score: np.random.default_rng(1).normal(size=len(score)), lambda s: -s])
def test_a_judge_that_people_do_not_support_costs_nothing(judge: Callable[[Floats], Floats]) -> None:
    _, truth = population()
    widths = []
    for seed in range(60):
        sample = labelled(truth, 60, seed)
        calibration = calibrate(sample, judge(np.random.default_rng(2).normal(size=len(truth))), seed)
        people = share(sample, replace(calibration, probability=calibration.base))
        found = share(sample, calibration)
        widths.append((found.high - found.low, people.high - people.low))
    with_judge, people_only = np.mean(widths, axis=0)
    assert with_judge < 1.1 * people_only


def test_probabilities_come_from_labels_of_other_clusters_and_respect_weights() -> None:
    score, truth = population()
    sample = labelled(truth, 400, 1)
    before = calibrate(sample, score, 3)
    own = before.fold == before.fold[0]
    changed = replace(sample, label=np.where(own & sample.is_labelled, 1 - sample.label, sample.label))
    after = calibrate(changed, score, 3)
    assert (before.probability[own] == after.probability[own]).all()
    assert (before.probability[~own] != after.probability[~own]).all()
    many = np.where(truth > 0, 5.0, 1.0) * np.where(sample.is_labelled, 1.0, np.nan)
    assert calibrate(replace(sample, weight=many), score, 3).base.mean() > before.base.mean() + 0.2
    assert (calibrate(replace(sample, weight=3 * sample.weight), score, 3).probability == before.probability).all()


def test_probabilities_fit_the_labels_where_few_pairs_have_a_high_score() -> None:
    """Most pairs share the lowest grade: Newton's method without a line search diverges there."""
    shares, relevant = (0.88, 0.06, 0.034, 0.026), np.array([0.03, 0.3, 0.6, 0.9])
    for seed in range(20):
        random = np.random.default_rng(seed)
        grade = random.choice(4, len(QUERY), p=shares)
        sample = labelled((random.random(len(QUERY)) < relevant[grade]).astype(float), 300, seed)
        calibration, rows = calibrate(sample, np.array([-2.0, -0.7, 0.7, 2.0])[grade], seed), sample.is_labelled
        assert calibration.probability[rows].mean() == pytest.approx(sample.label[rows].mean(), abs=0.02)
        assert calibration.probability[grade == 3].min() > 0.3 > calibration.probability[grade == 0].max()


def test_an_oversampled_stratum_does_not_bias_the_estimate() -> None:
    score, truth = population()
    likely = score > 1.5
    values = []
    for seed in range(150):
        random = np.random.default_rng(seed)
        label, weight = np.full(len(truth), np.nan), np.full(len(truth), np.nan)
        stratum = likely.astype(np.int64)
        parts = ((likely, 100), (~likely, 60))
        rows = np.concatenate([random.permutation(np.flatnonzero(part))[:size] for part, size in parts])
        label[rows], weight[rows] = truth[rows], weigh_labels(stratum[rows], np.bincount(stratum), np.array([0, 1]) > 0)
        sample = LabelSample(QUERY, label, weight, stratum, np.arange(QUERIES))
        assert np.nansum(sample.weight) == pytest.approx(len(truth))
        values.append(share(sample, calibrate(sample, score, seed)).value)
    assert abs(np.mean(values) - truth.mean()) < 0.01
    assert truth[likely].mean() > truth.mean() + 0.2, "unweighted labels would be biased"


def test_the_ratio_of_two_sums_is_covered() -> None:
    score, truth = population()
    found = (score > 1).astype(float)
    recall, estimates = float(found @ truth / truth.sum()), []
    for seed in range(150):
        sample = labelled(truth, 150, seed)
        estimates.append(correct_ratio(sample, calibrate(sample, score, seed), found, np.ones(len(found))))
    assert abs(np.mean([part.value for part in estimates]) - recall) < 0.03
    assert np.mean([part.low <= recall <= part.high for part in estimates]) >= 0.9


def test_the_difference_of_a_system_and_itself_is_zero() -> None:
    score, truth = population()
    sample = labelled(truth, 150, 1)
    calibration = calibrate(sample, score, 1)
    rank = np.tile(np.arange(1, PER_QUERY + 1), QUERIES)
    ndcg = measure_influence("nDCG@10", rank, calibration.labels(sample))
    assert np.isnan(correct_mean(sample, calibration, ndcg - ndcg, (-1, 1)).value), "no label says anything about it"
    alone = correct_mean(sample, calibration, ndcg)
    general = correct_mean(sample, calibration, ndcg, generalize=True)
    assert general.value == alone.value
    assert general.high - general.low > alone.high - alone.low, "other queries vary, too"


def test_too_few_labels_are_unknown() -> None:
    score, truth = population()
    sample = labelled(truth, 150, 1)
    few = replace(sample, label=np.where(QUERY < MIN_QUERIES - 1, sample.label, np.nan))
    found = share(few, calibrate(few, score, 1))
    assert np.isnan([found.value, found.low, found.high]).all()
    assert (found.labels, found.clusters) == (int(few.is_labelled.sum()), MIN_QUERIES - 1)
    one_dominates = replace(sample, weight=np.where(np.arange(len(QUERY)) == np.argmax(sample.is_labelled), 1e6, 1.0))
    dominated = share(one_dominates, calibrate(one_dominates, score, 1))
    assert dominated.effective_labels < 2
    assert np.isnan(dominated.value)


def test_labels_apart_from_the_pairs_that_matter_are_not_enough() -> None:
    score, truth = population()
    first = np.arange(len(QUERY)) % PER_QUERY == 0
    sample = labelled(truth, 150, 1)
    sample = replace(sample, label=np.where(first, np.nan, sample.label), weight=np.where(first, np.nan, sample.weight))
    calibration = calibrate(sample, score, 1)
    influence = np.where(first, 1.0, 0.001)
    found = correct_mean(sample, calibration, ExpectedMeasure(np.zeros(QUERIES), influence))
    assert found.effective_labels > 50
    assert np.isnan(found.value)


def test_labels_of_part_of_the_queries_widen_the_interval() -> None:
    score, truth = population()
    query_effect = np.repeat(np.random.default_rng(5).random(QUERIES) < 0.3, PER_QUERY)
    sample = labelled(np.where(query_effect, 1.0, truth), 300, 1)
    calibration = calibrate(sample, score, 1)
    whole, part = share(sample, calibration), share(replace(sample, query_share=0.2), calibration)
    assert part.high - part.low > whole.high - whole.low


def test_labels_outside_a_domain_count_in_its_interval() -> None:
    """The number of a sample's labels in a part of the pairs varies, and so does a correction that is not 0 there."""
    random = np.random.default_rng(3)
    domain, truth = np.tile(np.arange(PER_QUERY) < 10, QUERIES), (random.random(len(QUERY)) < 0.6).astype(float)
    calibration = Calibration(np.full(len(QUERY), 0.05), np.full(len(QUERY), 0.05), QUERY % 5)
    measure = ExpectedMeasure(np.full(QUERIES, 0.05), np.full(int(domain.sum()), 0.1))
    in_domain = Calibration(*(part[domain] for part in (calibration.probability, calibration.base, calibration.fold)))
    estimates = [
        correct_mean(labelled(truth, 300, seed).take(domain), in_domain, measure, bounds=(-9, 9)) for seed in range(200)
    ]
    value, low, high = (np.array([getattr(part, name) for part in estimates]) for name in ("value", "low", "high"))
    assert value.mean() == pytest.approx(truth[domain].mean(), abs=0.03)
    assert ((high - low) / 2).mean() / 1.97 == pytest.approx(value.std(), rel=0.15)
    assert ((low <= truth[domain].mean()) & (truth[domain].mean() <= high)).mean() > 0.92


def test_the_variance_of_a_domain_is_that_of_all_labels_without_influence_outside() -> None:
    random = np.random.default_rng(3)
    domain, truth = np.tile(np.arange(PER_QUERY) < 10, QUERIES), (random.random(len(QUERY)) < 0.6).astype(float)
    probability, influence = np.full(len(QUERY), 0.05), np.where(domain, 0.1, 0.0)

    def sampling_variance(sample: LabelSample, rows: Mask) -> float:
        """Without the factor that counts a sample's labels beside those of the prior."""
        n_labels = sample.is_labelled.sum()
        return float(_sampling_variance(sample, influence[rows], probability[rows])[0] * (1 + PRIOR_LABELS / n_labels))

    for seed in range(5):
        sample = labelled(truth, 300, seed)
        whole = sampling_variance(sample, np.ones(len(QUERY), bool))
        assert sampling_variance(sample.take(domain), domain) == pytest.approx(whole, rel=0.03)


def test_correction_and_variance_are_exact_over_all_samples_of_two_strata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the labels that count as a prior, the mean of the estimated variance is the variance of the estimate."""
    monkeypatch.setattr(module, "PRIOR_LABELS", 0.0)
    monkeypatch.setattr(module, "LABELS_ADDED", 0.0)
    random = np.random.default_rng(1)
    truth, stratum = (random.random(10) < 0.4).astype(float), np.tile([0, 1], 5)
    probability, influence = random.uniform(0.1, 0.6, 10), random.normal(size=10)
    corrections, variances = [], []
    for first, second in product(combinations(range(0, 10, 2), 3), combinations(range(1, 10, 2), 2)):
        drawn = [*first, *second]
        label, weight = np.full(10, np.nan), np.full(10, np.nan)
        label[drawn], weight[drawn] = truth[drawn], [5 / 3] * 3 + [5 / 2] * 2
        sample = LabelSample(np.repeat(np.arange(5), 2), label, weight, stratum, np.arange(5))
        corrections.append(_correction(sample, influence, probability))
        variances.append(_sampling_variance(sample, influence, probability)[0])
    assert np.mean(corrections) == pytest.approx(influence @ (truth - probability))
    assert np.mean(variances) == pytest.approx(np.var(corrections))


def test_a_rare_error_that_no_label_shows_widens_the_interval() -> None:
    """Where 3 % are relevant, 30 labels show none in 4 samples of 10: the variance must not be 0 then."""
    random, n_rare, n_labels = np.random.default_rng(0), 1600, 30
    stratum = (np.arange(len(QUERY)) >= n_rare).astype(np.int64)
    truth = (random.random(len(QUERY)) < np.where(stratum, 0.5, 0.03)).astype(float)
    covered = []
    for seed in range(150):
        draw = np.random.default_rng(seed)
        drawn = [draw.choice(np.flatnonzero(stratum == each), n_labels, replace=False) for each in (0, 1)]
        label, weight = np.full(len(QUERY), np.nan), np.full(len(QUERY), np.nan)
        for rows, size in zip(drawn, (n_rare, len(QUERY) - n_rare), strict=True):
            label[rows], weight[rows] = truth[rows], size / n_labels
        sample = LabelSample(QUERY, label, weight, stratum, np.arange(QUERIES))
        estimate = share(sample, calibrate(sample, stratum.astype(float), seed))
        covered.append(estimate.low <= truth.mean() <= estimate.high)
    assert np.mean(covered) >= 0.93


def test_queries_with_more_relevant_pairs_than_others_bias_ndcg_less_with_the_spread() -> None:
    """The judge does not know which queries have many relevant pairs."""
    random = np.random.default_rng(4)
    deviation = 1.5 * random.normal(size=QUERIES)[QUERY]
    score = random.normal(size=len(QUERY))
    truth = (random.random(len(QUERY)) < 1 / (1 + np.exp(1.5 - score - deviation))).astype(float)
    rank = np.tile(np.arange(PER_QUERY) + 1, QUERIES)
    everything = LabelSample(QUERY, truth, np.ones(len(QUERY)), np.zeros(len(QUERY), np.int64), np.arange(QUERIES))
    known = Calibration(truth, truth, QUERY % 5)
    true_value = measure_influence("nDCG@10", rank, known.labels(everything)).expected.mean()
    errors = {}
    for spread in (None, 0.0):
        values = []
        for seed in range(40):
            sample = labelled(truth, 400, seed)
            calibration = calibrate(sample, score, seed)
            assert calibration.spread > 1
            calibration = calibration if spread is None else replace(calibration, spread=spread)
            measure = measure_influence("nDCG@10", rank, calibration.labels(sample))
            values.append(correct_mean(sample, calibration, measure).value)
        errors[spread] = np.mean(values) - true_value
    assert abs(errors[None]) < 0.8 * abs(errors[0.0])


def test_the_power_is_low_where_the_judge_misleads() -> None:
    score, truth = population()
    sample = labelled(truth, 400, 1)
    honest = calibrate(sample, score, 1)
    ones = np.ones(len(truth))
    assert tune(sample, honest, ones) == pytest.approx(honest.probability, abs=0.1)
    wrong = replace(honest, probability=np.clip(2 * honest.base - honest.probability, 0.01, 0.99))
    assert np.abs(tune(sample, wrong, ones) - wrong.base).max() < 0.05


@pytest.mark.parametrize(
    ("label", "weight", "message"),
    [([2.0, np.nan], [1, np.nan], "labels must be"), ([1.0, np.nan], [np.nan, 1], "needs a weight")],
)
def test_labels_and_weights_are_checked(label: list[float], weight: list[float], message: str) -> None:
    zeros = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match=message):
        LabelSample(zeros, np.array(label), np.array(weight), zeros, np.zeros(1, np.int64))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_labels_that_are_all_equal_leave_the_figure_unknown(value: float) -> None:
    """50 equal labels do not exclude that 1 in 50 of the other pairs has the other label."""
    query, rank = np.repeat(np.arange(20), 5), np.tile(np.arange(1, 6), 20)
    label = np.where(np.arange(100) % 2, value, np.nan)
    weight = np.where(np.isfinite(label), 2.0, np.nan)
    sample = LabelSample(query, label, weight, np.zeros(100, np.int64), np.arange(20))
    calibration = calibrate(sample, np.zeros(100), seed=0)
    measure = measure_influence("P@3", rank, calibration.labels(sample))
    assert np.isnan(correct_mean(sample, calibration, measure).value)


def test_errors_of_the_judge_at_the_top_are_corrected() -> None:
    """Scores that are right elsewhere and call each query's first ten relevant, which they are not."""
    score, truth = population()
    in_top = np.tile(np.arange(PER_QUERY) < 10, QUERIES)
    score, truth = np.where(in_top, 3.0, score), np.where(in_top, 0.0, truth)
    values = []
    for seed in range(60):
        sample = labelled(truth, 300, seed)
        calibration = calibrate(sample, score, seed)
        expected = np.bincount(QUERY, in_top * calibration.probability) / 10
        estimate = correct_mean(sample, calibration, ExpectedMeasure(expected, in_top / 10))
        assert expected.mean() > 0.1, "the judge alone is wrong"
        values.append(estimate.value)
    assert np.mean(values) < 0.05
