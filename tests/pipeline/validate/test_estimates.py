"""The interval of recall: how often it holds the truth, and what it says where little is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from darklode.pipeline.validate.estimates import LabelledStrata, design_effect, estimate, merge_empty
from helpers.made_reviews import SAMPLED, Scenario, make, review
from helpers.repeats import mostly_slow

TRIALS = 1000
BAD_JUDGE = "a bad judge, misses are common, relevance clusters"
SCENARIOS = {
    "a good judge, misses are rare": Scenario(0.15, 0.97, 0.3, queries=60, pairs=400),
    BAD_JUDGE: Scenario(0.8, 0.75, 1.5, queries=20, pairs=200),
}


@pytest.mark.parametrize("name", mostly_slow(SCENARIOS, fast=[BAD_JUDGE]))
@pytest.mark.slow
def test_95_percent_intervals_hold_the_truth_as_often_as_they_say(name: str) -> None:
    run = make(SCENARIOS[name], seed=1)
    held: dict[str, list[bool]] = {"recall": [], "precision": []}
    values = []
    for seed in range(TRIALS):
        random = np.random.default_rng(seed)
        found = estimate(review(run, SCENARIOS[name], random), SAMPLED, random, draws=500)
        values.append(found.recall.value)
        held["recall"].append(found.recall.low <= run.recall <= found.recall.high)
        held["precision"].append(found.precision.low <= run.precision <= found.precision.high)
    for of in held.values():
        assert 0.93 <= np.mean(of) <= 0.99  # 0.95, give or take three standard errors; intervals may be too wide
    assert np.mean(values) == pytest.approx(run.recall, abs=0.03)


def strata(sizes: list[int], found: list[bool], labelled: list[list[int]], relevant: list[list[int]]) -> LabelledStrata:
    return LabelledStrata(np.array(sizes), np.array(found), np.array(labelled), np.array(relevant))


def estimated(of: LabelledStrata, share: float = 0.1) -> object:
    return estimate(of, share, np.random.default_rng(0))


def test_one_stratum_a_side_is_a_jeffreys_interval() -> None:
    # One label a query: no design effect can be above what few queries leave unknown.
    one, n = np.ones((80, 1), np.int64), 40
    labelled = np.block([[one[:n], 0 * one[:n]], [0 * one[n:], one[n:]]])
    relevant = labelled * (np.arange(80) % 4 == 0)[:, None]
    strata = LabelledStrata(np.array([10**6, 10**6]), np.array([True, False]), labelled, relevant)
    found = estimate(strata, 1.0, np.random.default_rng(0))
    low, high = beta.ppf([0.025, 0.975], 10.5, 30.5)
    assert found.precision.value == 0.25
    assert (found.precision.low, found.precision.high) == pytest.approx((low, high), abs=0.01)
    assert (found.missed.low / 1e6, found.missed.high / 1e6) == pytest.approx((low, high), abs=0.01)


def test_without_a_missed_positive_seen_recall_may_be_one_and_may_be_less() -> None:
    of = strata([100, 10_000], [True, False], [[10, 30], [10, 30]], [[9, 0], [8, 0]])
    found = estimate(of, 0.1, np.random.default_rng(0))
    assert (found.recall.value, found.recall.high, found.missed.value, found.missed.low) == (1.0, 1.0, 0.0, 0.0)
    assert 0.1 < found.recall.low < 0.25  # 60 labels speak for 10,000 pairs: up to 410, beside 85 that were found
    assert 350 < found.missed.high < 500
    large = strata([10**6, 10**8], [True, False], [[10, 30], [10, 30]], [[9, 0], [8, 0]])
    found = estimate(large, 0.1, np.random.default_rng(0))
    assert (found.recall.high, found.missed.low) == (1.0, 0.0)


def test_more_thin_strata_do_not_make_up_positives() -> None:
    whole = strata([100, 10_000], [True, False], [[40, 200]], [[40, 0]])
    parts = strata([100, *[500] * 20], [True, *[False] * 20], [[40, *[10] * 20]], [[40, *[0] * 20]])
    one, many = (estimate(of, 0.1, np.random.default_rng(0)).missed.high for of in (whole, parts))
    assert many == pytest.approx(one, rel=0.5)


def test_a_run_that_is_labelled_to_the_last_pair_is_known() -> None:
    of = strata([20, 60], [True, False], [[10, 30], [10, 30]], [[9, 1], [8, 0]])
    found = estimate(of, 1.0, np.random.default_rng(0))
    assert (found.recall.value, found.recall.low, found.recall.high) == pytest.approx((17 / 18,) * 3)
    assert found.missed.low == found.missed.high == 1


def test_pairs_without_a_label_are_as_uncertain_as_coins() -> None:
    # 100 of 200 pairs are labelled, half of them relevant: of the others 50, give or take sqrt(100² · ¼/100 + 100 · ¼).
    labelled = np.full((100, 1), 1)
    of = LabelledStrata(np.array([200]), np.array([False]), labelled, labelled * (np.arange(100) % 2)[:, None])
    found = estimate(of, 1.0, np.random.default_rng(0))
    assert found.missed.value == 100
    assert found.missed.high - found.missed.low == pytest.approx(2 * 1.96 * np.sqrt(50), abs=1.5)


@pytest.mark.parametrize(
    ("labelled", "unknown"),
    [
        ([[0, 5]], {"precision", "recall"}),
        ([[5, 0]], {"recall", "missed"}),
        ([[0, 0]], {"precision", "recall", "missed"}),
    ],
)
def test_what_nobody_labelled_is_unknown(labelled: list[list[int]], unknown: set[str]) -> None:
    found = estimate(strata([10, 10], [True, False], labelled, [[0, 0]]), 0.1, np.random.default_rng(0))
    assert {name for name in ("precision", "recall", "missed") if math.isnan(getattr(found, name).value)} == unknown


def test_a_judge_that_found_nothing_has_recall_zero_and_no_precision() -> None:
    found = estimate(strata([50], [False], [[20]], [[4]]), 0.1, np.random.default_rng(0))
    assert (found.recall.value, found.recall.low) == (0.0, 0.0)
    assert math.isnan(found.precision.value)
    assert found.missed.value == 10


def test_a_stratum_without_labels_goes_to_the_nearest_on_its_side() -> None:
    of = strata(
        [1, 2, 4, 8, 16, 32],
        [True, True, False, False, False, False],
        [[0, 3, 0, 2, 0, 5]],
        [[0, 1, 0, 1, 0, 1]],
    )
    merged, to = merge_empty(of)
    assert merged.pairs.tolist() == [3, 4 + 8 + 16, 32]
    assert merged.is_found.tolist() == [True, False, False]
    assert to.tolist() == [0, 0, 1, 1, 1, 2]
    unlabelled = replace(of, labelled=np.where(of.is_found, 0, of.labelled))
    assert merge_empty(unlabelled)[1].tolist() == [-1, -1, 0, 0, 0, 1]


def test_labels_that_come_in_clusters_count_less() -> None:
    # Twenty queries of ten labels: all of a query alike, or none like another.
    alike = np.repeat([[10], [0]], 10, axis=0)
    mixed = np.full((20, 1), 5)
    one = np.full((20, 1), 10)
    effects = {
        name: design_effect(LabelledStrata(np.array([1000]), np.array([True]), one, of), np.array([0]), share)
        for name, of, share in (("alike", alike, 0.0), ("mixed", mixed, 0.0), ("all queries", alike, 1.0))
    }
    assert effects["alike"] == pytest.approx(10 * 20 / 19 * (2.0930 / 1.9720) ** 2, rel=1e-3)
    assert effects["mixed"] == effects["all queries"] == 1.0
