"""The release of a shared adapter: on the evidence of many tenants, and not for those that differ."""

import numpy as np
import pytest

from darklode.pipeline.base.types import Doubles, Ints
from darklode.pipeline.evaluate.paired import ResamplingSettings
from darklode.pipeline.train.release.pooled_evidence import (
    MAX_LOSS_PROBABILITY,
    MEAN_FALSE_SIGN_RATE,
    MIN_TENANTS,
    PooledEvidence,
    decide_pooled_release,
)

CHANCE = ResamplingSettings(resamples=400, flips=1000)
NOISE = 0.2
"""Standard deviation of a cluster's difference."""


def decide(lifts: Doubles, clusters: Ints, seed: int = 0) -> PooledEvidence:
    """The decision for tenants with these true lifts and numbers of clusters."""
    random = np.random.default_rng(seed)
    owners = np.repeat(np.arange(len(lifts)), clusters)
    values = np.clip(lifts[owners] + NOISE * random.standard_normal(len(owners)), -1, 1)
    return decide_pooled_release(values, owners, len(lifts), CHANCE)


def test_many_small_tenants_show_together_what_none_shows_alone() -> None:
    clusters = np.tile([1, 2, 3, 9], 100)
    clusters[-1] = 0
    found = decide(np.full(400, 0.1), clusters)
    assert found.passed
    assert found.n_tenants == 399
    assert found.released[-1], "a tenant without test clusters has the lift of a new tenant"
    assert np.isnan(found.difference[-1])
    assert found.released.mean() > 0.9
    assert found.expected[-1] == pytest.approx(0.1, abs=0.02)
    assert found.mean_low is not None
    assert found.mean_low < 0.1 < found.mean + 0.02
    assert found.spread < 0.04


def test_the_estimate_goes_from_the_mean_to_the_own_difference_with_the_clusters() -> None:
    clusters = np.full(200, 5)
    clusters[:3] = [1, 20, 2000]
    lifts = np.random.default_rng(1).normal(0.05, 0.05, 200)
    lifts[:3] = -0.1
    found = decide(lifts, clusters)
    assert found.expected[2] == pytest.approx(-0.1, abs=0.02)
    assert found.expected[1] < found.expected[3:].mean() - 0.03
    assert found.loss_probability[2] > 0.99
    assert not found.released[:3][found.loss_probability[:3] > MAX_LOSS_PROBABILITY].any()
    assert (np.diff(found.low[:3] - found.expected[:3]) > 0).all(), "more clusters, narrower intervals"


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_nobody_is_released_without_a_lift_on_average(spread: float) -> None:
    lifts = np.random.default_rng(2).normal(0, spread, 300) if spread else np.zeros(300)
    assert sum(decide(lifts - lifts.mean(), np.full(300, 4), seed).released.any() for seed in range(20)) <= 1


def test_the_probabilities_are_those_of_the_truth() -> None:
    """Over many tenants, as many have no lift as the probabilities say, also among those that are released."""
    random = np.random.default_rng(3)
    lifts = random.normal(0.05, 0.04, 3000)
    found = decide(lifts, random.integers(1, 10, 3000))
    is_loss = lifts <= 0
    assert found.loss_probability.mean() == pytest.approx(is_loss.mean(), abs=0.02)
    for low, high in ((0, 0.05), (0.05, 0.2), (0.2, 0.6)):
        chosen = (found.loss_probability >= low) & (found.loss_probability < high)
        assert found.loss_probability[chosen].mean() == pytest.approx(is_loss[chosen].mean(), abs=0.08)
    assert (lifts < found.low).mean() == pytest.approx(0.025, abs=0.015)
    assert is_loss[found.released].mean() < 2 * MEAN_FALSE_SIGN_RATE
    assert found.loss_probability[found.released].mean() <= MEAN_FALSE_SIGN_RATE
    assert found.loss_probability[found.released].max() <= MAX_LOSS_PROBABILITY


def test_few_tenants_decide_nothing() -> None:
    lifts = np.full(MIN_TENANTS - 1, 0.9)
    found = decide(lifts, np.full(len(lifts), 9))
    assert not found.passed
    assert not found.released.any()
    assert np.isnan(found.expected).all()
    assert found.mean == pytest.approx(0.9, abs=0.1)
    nothing = decide(lifts, np.zeros(len(lifts), np.int64))
    assert (nothing.n_tenants, nothing.released.any()) == (0, False)


def test_one_cluster_each_is_enough_for_the_mean_but_shows_no_spread() -> None:
    found = decide(np.full(500, 0.1), np.ones(500, np.int64))
    assert found.passed
    assert found.released.any()
