"""The release test of an adapter that many tenants share: random-effects meta-analysis over tenants.

A tenant with few test clusters cannot show a lift by itself. The lifts of many such tenants can, as far as tenants are
alike: each tenant's true lift is a draw from a normal distribution whose mean and spread are estimated from all
tenants, and the tenant's own test moves its estimate away from the mean by as much as it is precise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from darklode.pipeline.base.types import Doubles, Ints
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired, is_gain

MIN_TENANTS = 10
"""Minimum number of tenants with test clusters: a spread of fewer is not estimable (as `MIN_CLUSTERS`)."""

MEAN_FALSE_SIGN_RATE = 0.025
"""Maximum expected share of tenants without a lift among those released: the level of the test of a single tenant."""
MAX_LOSS_PROBABILITY = 0.1
"""Maximum probability that a released tenant has no lift; a tenant above it is not outweighed by others."""

PRIOR_CLUSTERS = 10
"""Clusters that the pooled variance counts as in a tenant's own variance: 1 to 9 clusters do not show it alone."""

_SPREADS = np.concatenate([np.zeros(1), np.geomspace(1e-3, 0.5, 120)])
"""Grid of the standard deviation of true lifts, in nDCG@10; its prior is uniform (Gelman 2006)."""


@dataclass(frozen=True)
class PooledEvidence:
    """The test of a shared adapter, for each of n tenants.

    Attributes:
        clusters: test clusters of each tenant, shape (n,).
        difference: mean difference over them; NaN without clusters.
        expected: estimate of the true lift: the posterior mean.
        low: lower end of its 95 % interval.
        loss_probability: posterior probability that the true lift is not above 0.
        released: whether the adapter is released for each tenant.
        n_tenants: tenants with test clusters.
        mean: mean of `difference` over these.
        mean_low: lower end of its 95 % interval; None for one tenant.
        spread: standard deviation of true lifts over tenants, posterior mean.
        passed: whether the mean is a gain by the release test, with tenants as clusters.
    """

    clusters: Ints
    difference: Doubles
    expected: Doubles
    low: Doubles
    loss_probability: Doubles
    released: NDArray[np.bool_]
    n_tenants: int
    mean: float
    mean_low: float | None
    spread: float
    passed: bool


def decide_pooled_release(values: Doubles, tenants: Ints, n_tenants: int, chance: ResamplingSettings) -> PooledEvidence:
    """Test a shared adapter on many tenants, and decide for which it is released.

    Two conditions. First, the mean lift over tenants must be a gain by the release test of one tenant (`is_gain`), with
    tenants in the place of clusters; this assumes no distribution. Then tenants are released in the order of their
    probability of no lift, as long as its mean over the released ones is at most `MEAN_FALSE_SIGN_RATE` and each is at
    most `MAX_LOSS_PROBABILITY`. Tenants without test clusters have the probability of a new tenant.

    Args:
        values: mean difference in nDCG@10 of each test cluster, shape (n_clusters,).
        tenants: tenant of each cluster, from 0, shape (n_clusters,).
        n_tenants: number of tenants, with test clusters or without.
        chance: number of resamples and sign flips, and seed.

    Source: DerSimonian and Laird 1986; Gelman et al., Bayesian Data Analysis, 5.4 (the grid); Higgins, Thompson and
    Spiegelhalter 2009 (prediction for a new tenant); Stephens 2017 (false sign rate).
    """
    clusters = np.bincount(tenants, minlength=n_tenants)
    tested = np.flatnonzero(clusters)
    difference = np.full(n_tenants, np.nan)
    difference[tested] = np.bincount(tenants, values, minlength=n_tenants)[tested] / clusters[tested]
    unknown = np.full(n_tenants, np.nan)
    if len(tested) < MIN_TENANTS:
        mean = float(difference[tested].mean()) if len(tested) else float("nan")
        nobody = np.zeros(n_tenants, bool)
        return PooledEvidence(
            clusters, difference, unknown, unknown, unknown, nobody, len(tested), mean, None, float("nan"), False
        )
    gain = compare_paired(difference[tested][:, None], np.zeros((len(tested), 1)), np.arange(len(tested)), chance).row(
        0
    )
    common, error = _standard_errors(values, tenants, clusters, difference)
    weight, center, precision = _population(difference[tested], common[tested])
    expected, low, loss_probability = _posteriors(difference, error, weight, center, precision)
    passed = is_gain(gain)
    released = _lowest_false_sign_rate(loss_probability) & passed
    return PooledEvidence(
        clusters,
        difference,
        expected,
        low,
        loss_probability,
        released,
        len(tested),
        gain["difference"],
        gain["low"],
        float(weight @ _SPREADS),
        passed,
    )


def _standard_errors(values: Doubles, tenants: Ints, clusters: Ints, difference: Doubles) -> tuple[Doubles, Doubles]:
    """Two standard errors of each tenant's difference, shape (n_tenants,); infinite without clusters.

    The first has the variance of clusters within all tenants: a spread between tenants that were weighted by variances
    of a few clusters each would be too large. The second has the tenant's own, shrunk towards that (`PRIOR_CLUSTERS`).
    """
    squares = np.bincount(tenants, (values - difference[tenants]) ** 2, minlength=len(clusters))
    freedom = np.maximum(clusters - 1, 0)
    # With one cluster per tenant, the variance over tenants bounds that within.
    common = squares.sum() / freedom.sum() if freedom.sum() else np.var(values, ddof=1)
    own = (PRIOR_CLUSTERS * common + squares) / (PRIOR_CLUSTERS + freedom)
    with np.errstate(divide="ignore"):
        first, second = (np.sqrt(np.maximum(variance, 1e-12) / clusters) for variance in (common, own))
    return first, second


def _population(difference: Doubles, error: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Of each spread of `_SPREADS`: its posterior weight, and mean over tenants with its precision."""
    total = error**2 + _SPREADS[:, None] ** 2  # shape (n_spreads, n_tested)
    precision = (1 / total).sum(axis=1)
    center = (difference / total).sum(axis=1) / precision
    deviations = ((difference - center[:, None]) ** 2 / total).sum(axis=1)
    log_density = -0.5 * (np.log(precision) + np.log(total).sum(axis=1) + deviations)
    weight = np.gradient(_SPREADS) * np.exp(log_density - log_density.max())
    return weight / weight.sum(), center, precision


def _posteriors(
    difference: Doubles, error: Doubles, weight: Doubles, center: Doubles, precision: Doubles
) -> tuple[Doubles, Doubles, Doubles]:
    """Posterior mean, 2.5 % quantile and probability of no lift of each tenant.

    The own difference has a share that grows with its precision, the mean over tenants the rest.
    """
    squares = _SPREADS[:, None] ** 2
    share = np.where(np.isinf(error), 0.0, squares / (squares + error**2))
    mean = share * np.nan_to_num(difference) + (1 - share) * center[:, None]
    variance = np.where(np.isinf(error), squares, share * np.nan_to_num(error, posinf=0.0) ** 2)
    deviation = np.sqrt(variance + (1 - share) ** 2 / precision[:, None])
    return weight @ mean, _quantile(weight, mean, deviation), weight @ ndtr(-mean / deviation)


def _quantile(weight: Doubles, mean: Doubles, deviation: Doubles, probability: float = 0.025) -> Doubles:
    """Quantile of a mixture of normal distributions, by bisection: shape (n_tenants,)."""
    low, high = (mean - 10 * deviation).min(axis=0), (mean + 10 * deviation).max(axis=0)
    for _ in range(50):
        middle = (low + high) / 2
        below = weight @ ndtr((middle - mean) / deviation) < probability
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


def _lowest_false_sign_rate(loss_probability: Doubles) -> NDArray[np.bool_]:
    """The largest set of tenants with the lowest probabilities whose mean is at most `MEAN_FALSE_SIGN_RATE`."""
    order = np.argsort(loss_probability, kind="stable")
    ranked = loss_probability[order]
    running_mean = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    allowed = (running_mean <= MEAN_FALSE_SIGN_RATE) & (ranked <= MAX_LOSS_PROBABILITY)
    released = np.zeros(len(ranked), bool)
    released[order[allowed]] = True
    return released
