"""Figures of a judge's labels, corrected by people's labels of a sample (prediction-powered inference).

API, plain numpy without input or output:

- `LabelSample`: all pairs of a scope, people's labels of some (NaN: not labelled) and the weights of these (1 / the
  probability that the pair is labelled, see `label_weights`).
- `calibrate(sample, score, seed)`: a `Calibration` with each pair's probability of relevance, from the judge's score,
  fitted to the labels of other clusters.
- `measure_influence.measure_influence(measure, rank, calibration.labels(sample))`: expected measure of each query and
  influence of each pair; `first - other` is the difference of two systems.
- `correct_mean(sample, calibration, measure)`: mean of a measure over queries, with a 95 % interval.
- `correct_ratio(sample, calibration, gain, base)`: ratio of two sums over the relevant pairs, such as recall.

A sampling plan for a measure takes each pair with a probability proportional to |influence| · √(p · (1 − p)).

Estimate of a mean: mean of E[m_q] + (1 / n_queries) · sum over labels of weight · influence · (label − probability).
Each label is compared with a probability that was fitted without its query, so the error does not depend on the judge;
a judge that agrees with people makes the differences, and so the interval, smaller. A judge that does not gets
probabilities near the people's mean (`Calibration.base`), and `tune` moves them there: the estimate is then that of
the labels alone.

Sources: Angelopoulos, Bates, Fannjiang, Jordan and Zrnic 2023 (prediction-powered inference); Angelopoulos, Duchi and
Zrnic 2023 (PPI++, power tuning); Zrnic and Candès 2024 (cross-fitting); Särndal, Swensson and Wretman 1992, 6.3
(difference estimator).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import t as student

from darklode.pipeline.base.agreement import folds
from darklode.pipeline.base.measure_influence import ExpectedMeasure, UncertainLabels, estimate_spread
from darklode.pipeline.base.types import Doubles, Ints, Mask

MIN_QUERIES = 10
"""Minimum number of labelled clusters; an estimate from fewer is unknown."""

MIN_EFFECTIVE = 5.0
"""Minimum effective number of labels (Kish 1965, of the expected squared contributions); an interval from fewer does
not have its nominal coverage."""

MIN_REPRESENTED = 0.25
"""Minimum of the expected variance of all pairs that the labels' weights account for (about 1 in a typical sample):
with less, no label lies where the figure is decided, and its interval would be far too narrow."""

PRIOR_LABELS = 10.0
"""Weight of what the probabilities say, in labels: of a power of 1, and of the variance p · (1 − p)."""

LABELS_ADDED = 1.0
"""Labels that each stratum gets for the variance, half of them relevant (Jeffreys' prior)."""


@dataclass(frozen=True)
class LabelSample:
    """Pairs of a scope, some of them labelled by people.

    Attributes:
        query: query of each pair, from 0, sorted, shape (n_pairs,).
        label: 1 relevant, 0 not relevant, NaN not labelled, shape (n_pairs,).
        weight: number of pairs that a labelled pair stands for, above 0; NaN for other pairs, shape (n_pairs,).
        stratum: sampling stratum of each pair, from 0, shape (n_pairs,).
        cluster: cluster of each query, from 0, shape (n_queries,); queries of different clusters are independent.
        query_share: share of the queries whose pairs could be sampled, above 0 to 1.
        stratum_labels: number of labels of each stratum, with those of pairs that `take` left out, shape (n_strata,);
            None: those of the pairs.
    """

    query: Ints
    label: Doubles
    weight: Doubles
    stratum: Ints
    cluster: Ints
    query_share: float = 1.0
    stratum_labels: Ints | None = None

    def __post_init__(self) -> None:
        if not np.isin(self.label[self.is_labelled], (0, 1)).all():
            raise ValueError("labels must be 0, 1 or NaN")
        if not (self.weight[self.is_labelled] > 0).all():
            raise ValueError("a labelled pair needs a weight above 0")

    def take(self, rows: Mask | slice) -> LabelSample:
        """Select pairs; their queries stay numbered as they are."""
        values = (self.query[rows], self.label[rows], self.weight[rows], self.stratum[rows])
        return LabelSample(*values, self.cluster, self.query_share, self.n_stratum_labels)

    def take_queries(self, rows: Mask | slice) -> LabelSample:
        """Select all pairs of some queries, which are numbered anew; those with a label count as sampled."""
        queries, query = np.unique(self.query[rows], return_inverse=True)
        cluster = np.unique(self.cluster[queries], return_inverse=True)[1].astype(np.int64)
        return replace(self.take(rows), query=query.astype(np.int64), cluster=cluster).with_query_share()

    def with_query_share(self) -> LabelSample:
        """A copy that takes the queries with a label as those whose pairs could be sampled.

        A review goes from query to query: until it ends, its labels are those of a part of the queries. If each query
        could be sampled, the interval is up to 4 % too wide.
        """
        n_labelled = len(np.unique(self.query[self.is_labelled]))
        return replace(self, query_share=max(n_labelled, 1) / max(self.n_queries, 1))

    @property
    def n_stratum_labels(self) -> Ints:
        """Number of labels of each stratum, shape (n_strata,)."""
        if self.stratum_labels is not None:
            return self.stratum_labels
        return np.bincount(self.stratum[self.is_labelled]).astype(np.int64)

    @property
    def is_labelled(self) -> Mask:
        """Whether people labelled each pair."""
        return np.asarray(np.isfinite(self.label))

    @property
    def n_queries(self) -> int:
        """Number of queries, with or without pairs."""
        return len(self.cluster)

    @property
    def pair_cluster(self) -> Ints:
        """Cluster of each pair."""
        return np.asarray(self.cluster[self.query])


@dataclass(frozen=True)
class Calibration:
    """Probabilities fitted to people's labels; arrays of shape (n_pairs,).

    Attributes:
        probability: probability of relevance, from the judge's score.
        base: probability without the judge: the weighted share of relevant labels.
        fold: cross-validation fold of the pair's cluster; both come from labels of other folds.
        spread: standard deviation between queries of a deviation that the log-odds of a query's pairs share.
    """

    probability: Doubles
    base: Doubles
    fold: Ints
    spread: float = 0.0

    def labels(self, sample: LabelSample) -> UncertainLabels:
        """The probabilities, for `measure_influence`."""
        return UncertainLabels(sample.query, self.probability, sample.n_queries, self.spread)

    def take(self, rows: Mask | slice) -> Calibration:
        """Select pairs."""
        return Calibration(self.probability[rows], self.base[rows], self.fold[rows], self.spread)


@dataclass(frozen=True)
class CorrectedEstimate:
    """A figure with its 95 % interval; NaN where it is unknown.

    Attributes:
        value: estimate.
        low: lower end of the interval.
        high: upper end.
        labels: number of labelled pairs.
        effective_labels: effective number of labels for this figure.
        clusters: number of clusters with a label.
        reason: why the figure is unknown; None if it is known.
    """

    value: float
    low: float
    high: float
    labels: int
    effective_labels: float
    clusters: int
    reason: str | None = None


def calibrate(sample: LabelSample, score: Doubles, seed: int) -> Calibration:
    """Fit the probability of relevance to the labels, by weighted logistic regression on the score (Platt 1999).

    Each pair's probability comes from the labels of other folds of clusters. The prior of the slope keeps a judge's
    slope near 0 until labels support it: 1 label's worth per standard deviation of the score.

    Args:
        sample: the pairs; at least one of them labelled.
        score: the judge's score of each pair, higher: more relevant, such as the log-odds of its probability; finite,
            shape (n_pairs,).
        seed: assigns clusters to folds.
    """
    labelled, fold = sample.is_labelled, folds(sample.pair_cluster, seed)
    probability, base = np.empty(len(score)), np.empty(len(score))
    standard = (score - score.mean()) / (score.std() or 1.0)
    for held_out in np.unique(fold):
        training, in_fold = labelled & (fold != held_out), fold == held_out
        training = training if training.any() else labelled
        weight = sample.weight[training] / sample.weight[training].mean()
        mean = (weight @ sample.label[training] + 0.5) / (weight.sum() + 1)
        slope, intercept = _fit_logistic(standard[training], sample.label[training], weight, float(logit(mean)))
        probability[in_fold] = expit(standard[in_fold] * slope + intercept)
        base[in_fold] = mean
    spread = estimate_spread(sample.query[labelled], sample.label[labelled], probability[labelled])
    return Calibration(probability, base, fold, spread)


def _fit_logistic(score: Doubles, label: Doubles, weight: Doubles, intercept: float) -> tuple[float, float]:
    """Slope with a standard normal prior, and intercept."""
    features = np.column_stack([score, np.ones(len(score))])
    start = np.array([0.0, intercept])
    precision = np.array([1.0, 1e-3])  # the intercept's keeps it finite if all labels are equal

    def loss(coefficients: Doubles) -> tuple[float, Doubles]:
        log_odds, shift = features @ coefficients, coefficients - start
        value = weight @ (np.logaddexp(0, log_odds) - label * log_odds) + shift @ (precision * shift) / 2
        return float(value), features.T @ (weight * (expit(log_odds) - label)) + precision * shift

    def curvature(coefficients: Doubles) -> Doubles:
        probability = expit(features @ coefficients)
        return np.asarray((features.T * (weight * probability * (1 - probability))) @ features + np.diag(precision))

    # Newton's method alone diverges where few labels have a high score.
    slope, fitted_intercept = minimize(loss, start, jac=True, hess=curvature, method="trust-exact", tol=1e-6).x
    return float(slope), float(fitted_intercept)


def correct_mean(
    sample: LabelSample,
    calibration: Calibration,
    measure: ExpectedMeasure,
    bounds: tuple[float, float] = (0.0, 1.0),
    *,
    generalize: bool = False,
) -> CorrectedEstimate:
    """Estimate the mean of a measure over the queries.

    Args:
        sample: the pairs and labels.
        calibration: their probabilities.
        measure: expected measure and influences under these probabilities.
        bounds: lowest and highest possible value; (-1, 1) for a difference.
        generalize: whether the interval is for all queries like these, as that of a mean over queries, and not for
            these queries alone.
    """
    n = sample.n_queries
    influence = measure.influence / n
    tuned = tune(sample, calibration, influence)
    value = float(measure.expected.mean() - influence @ (calibration.probability - tuned))
    value += _correction(sample, influence, tuned)
    extra = _query_variance(sample, measure, calibration.probability) if generalize else 0.0
    return _estimate(sample, influence, tuned, value, bounds, extra)


def correct_ratio(
    sample: LabelSample,
    calibration: Calibration,
    gain: Doubles,
    base: Doubles,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> CorrectedEstimate:
    """Estimate the sum of `gain` over the relevant pairs ÷ the sum of `base` over them; both of shape (n_pairs,).

    The interval is that of the linearized ratio, for these queries; other arguments as of `correct_mean`.
    """
    probability = calibration.probability
    expected = float(gain @ probability) / max(float(base @ probability), 1e-12)
    tuned = tune(sample, calibration, gain - expected * base)
    numerator, denominator = (float(part @ tuned) + _correction(sample, part, tuned) for part in (gain, base))
    if denominator <= 0:
        return _unknown(sample, 0.0, "no relevant pair is expected")
    value = numerator / denominator
    return _estimate(sample, (gain - value * base) / denominator, tuned, value, bounds)


def tune(sample: LabelSample, calibration: Calibration, influence: Doubles) -> Doubles:
    """Move the probabilities towards those without the judge, by the power (0 to 1) with the least variance.

    Args:
        sample: the pairs and labels.
        calibration: their probabilities; a fold's power comes from the labels of the others.
        influence: influence of each pair on the figure, shape (n_pairs,).

    Source: Angelopoulos, Duchi and Zrnic 2023, 6 (power tuning).
    """
    base, shift = calibration.base, calibration.probability - calibration.base
    labelled = np.flatnonzero(sample.is_labelled)
    scale = (sample.weight[labelled] * influence[labelled]) ** 2
    gained = scale * (sample.label[labelled] - base[labelled]) * shift[labelled]
    squared = scale * shift[labelled] ** 2
    power = np.ones(int(calibration.fold.max(initial=-1)) + 1)
    for fold in range(len(power)):
        training = calibration.fold[labelled] != fold
        prior = PRIOR_LABELS * squared[training].mean() if training.any() else 0.0
        denominator = squared[training].sum() + prior
        if denominator > 0:
            power[fold] = np.clip((gained[training].sum() + prior) / denominator, 0, 1)
    return np.asarray(base + power[calibration.fold] * shift)


def _correction(sample: LabelSample, influence: Doubles, probability: Doubles) -> float:
    labelled = sample.is_labelled
    residual = sample.label[labelled] - probability[labelled]
    return float(np.sum(sample.weight[labelled] * influence[labelled] * residual))


def _estimate(
    sample: LabelSample,
    influence: Doubles,
    probability: Doubles,
    value: float,
    bounds: tuple[float, float],
    extra_variance: float = 0.0,
) -> CorrectedEstimate:
    """The estimate with its interval; unknown with too few labels."""
    labelled = sample.is_labelled
    contributions = (sample.weight * influence)[labelled] ** 2 * (probability * (1 - probability))[labelled]
    squares = float((contributions**2).sum())
    effective = float(contributions.sum()) ** 2 / squares if squares > 0 else 0.0
    clusters = len(np.unique(sample.pair_cluster[labelled]))
    spread = influence**2 * probability * (1 - probability)
    is_represented = float(sample.weight[labelled] @ spread[labelled]) >= MIN_REPRESENTED * float(spread.sum())
    # Labels that are all equal fit probabilities of almost 0 or 1, whose variance would be far too small.
    has_both_labels = len(np.unique(sample.label[labelled])) == 2
    rounded = np.floor(10 * effective) / 10
    reasons = {
        f"{clusters} of {MIN_QUERIES} necessary query clusters with labels": clusters < MIN_QUERIES,
        "all labels are equal": not has_both_labels,
        "no label can change it": not spread.any(),
        f"{rounded:.1f} of {MIN_EFFECTIVE:g} necessary effective labels": effective < MIN_EFFECTIVE,
        "hardly a label where the figure is decided": not is_represented,
    }
    for reason, is_true in reasons.items():
        if is_true:
            return _unknown(sample, effective, reason)
    variance, freedom = _sampling_variance(sample, influence, probability)
    if extra_variance > 0:
        total = variance + extra_variance
        n = len(np.unique(sample.cluster))
        freedom = total**2 / (variance**2 / freedom + extra_variance**2 / max(n - 1, 1))  # Satterthwaite 1946
        variance = total
    half = float(student.ppf(0.975, freedom) * np.sqrt(variance))
    low, high = (float(np.clip(end, *bounds)) for end in (value - half, value + half))
    return CorrectedEstimate(float(np.clip(value, *bounds)), low, high, int(labelled.sum()), effective, clusters)


def _unknown(sample: LabelSample, effective: float, reason: str) -> CorrectedEstimate:
    labelled = sample.is_labelled
    clusters = len(np.unique(sample.pair_cluster[labelled]))
    return CorrectedEstimate(np.nan, np.nan, np.nan, int(labelled.sum()), effective, clusters, reason)


def _sampling_variance(sample: LabelSample, influence: Doubles, probability: Doubles) -> tuple[float, float]:
    """Variance of the correction and its degrees of freedom.

    Within strata, residuals are compared with their mean, in which labels of pairs that `take` left out count as 0
    (Särndal et al. 1992, 5.8: estimates for domains). A few labels rarely show an error that is rare and heavily
    weighted: the variance p · (1 − p) counts like `PRIOR_LABELS` more labels, and each stratum gets `LABELS_ADDED`. If
    only some queries were sampled, the excess of the variance between clusters is added in proportion to the queries
    left out (Korn and Graubard 1998). The degrees of freedom fall where a few labels dominate (Satterthwaite 1946).
    """
    labelled = sample.is_labelled
    weight = sample.weight[labelled]
    positions, stratum = np.unique(sample.stratum[labelled], return_inverse=True)
    sizes = sample.n_stratum_labels[positions]
    scale, chance = weight * influence[labelled], probability[labelled]
    contributions = scale * (sample.label[labelled] - chance)
    means = np.where(sizes > 1, np.bincount(stratum, contributions) / sizes, 0.0)
    sizes_here = np.bincount(stratum)
    remaining = np.clip(1 - sample.query_share * sizes_here / np.bincount(stratum, weight), 0, 1)
    correction = np.sqrt(remaining * np.where(sizes > 1, sizes / np.maximum(sizes - 1, 1), 1.0))
    residuals = (contributions - means[stratum]) * correction[stratum]
    left_out = (sizes - sizes_here) * (means * correction) ** 2
    added = LABELS_ADDED * np.bincount(stratum, scale**2 * (chance**2 + (1 - chance) ** 2) / 2) * remaining / sizes
    observed = (np.bincount(stratum, residuals**2) + left_out + added) * sizes / (sizes + LABELS_ADDED)
    expected = scale**2 * chance * (1 - chance) * remaining[stratum]
    n, squares = len(weight), float((residuals**2).sum())
    variance = (n * float(observed.sum()) + PRIOR_LABELS * float(expected.sum())) / (n + PRIOR_LABELS)
    freedom = float(max(n - len(sizes), 1))
    if sample.query_share < 1:
        _, cluster = np.unique(sample.pair_cluster[labelled], return_inverse=True)
        sums = np.bincount(cluster, residuals)
        between = len(sums) / max(len(sums) - 1, 1) * float((sums**2).sum())
        variance += (1 - sample.query_share) * max(between - squares, 0.0)
        freedom = float(max(len(sums) - 1, 1))
    spread = float((residuals**4).sum()) - squares**2 / n
    dominated = 2 * squares**2 / spread if spread > 0 else freedom
    return variance, max(min(freedom, dominated), 2.0)


def _query_variance(sample: LabelSample, measure: ExpectedMeasure, probability: Doubles) -> float:
    """Variance of the mean over queries, from its variance between clusters under the probabilities and the variance of
    labels within queries.
    """
    n = sample.n_queries
    deviations = np.bincount(sample.cluster, measure.expected - measure.expected.mean())
    sizes = np.bincount(sample.cluster)
    n_clusters = int((sizes > 0).sum())
    between = n_clusters / max(n_clusters - 1, 1) * float((deviations**2).sum())
    within = float((measure.influence**2 * probability * (1 - probability)).sum())
    return (between + within) / n**2
