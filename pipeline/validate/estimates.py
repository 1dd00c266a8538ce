"""Stratified estimates for the whole run from a labelled sample, and bootstrap intervals over queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.bootstrap import INTERVAL_PERCENTILES, IntervalEstimate, interval
from darklode.pipeline.base.label_weights import nearest_labelled

_Counts = NDArray[np.int64]
_Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class LabelledStrata:
    """Strata of a part of the run, with their human labels; adjacent strata are next to each other.

    Attributes:
        pairs: number of pairs in the run, shape (n_strata,).
        is_found: whether the judge's label is relevant, shape (n_strata,).
        labelled: number of labelled pairs per query, shape (n_queries, n_strata).
        relevant: number of them labelled relevant by people, same shape.
    """

    pairs: _Counts
    is_found: NDArray[np.bool_]
    labelled: _Counts
    relevant: _Counts

    @classmethod
    def count(
        cls, pairs: _Counts, is_found: NDArray[np.bool_], query: _Counts, stratum: _Counts, is_relevant: _Flags
    ) -> LabelledStrata:
        """Count labels.

        Args:
            pairs: number of pairs in the run, shape (n_strata,).
            is_found: whether the judge's label is relevant, shape (n_strata,).
            query: query of each label, from 0, shape (n_labels,).
            stratum: index of its stratum, shape (n_labels,).
            is_relevant: the labels, shape (n_labels,).
        """
        labelled, relevant = (np.zeros((int(query.max(initial=-1)) + 1, len(pairs)), np.int64) for _ in range(2))
        np.add.at(labelled, (query, stratum), 1)
        np.add.at(relevant, (query, stratum), is_relevant)
        return cls(pairs, is_found, labelled, relevant)

    @property
    def n_labelled(self) -> _Counts:
        """Number of labelled pairs per stratum."""
        return np.asarray(self.labelled.sum(axis=0))

    @property
    def n_relevant(self) -> _Counts:
        """Number of pairs labelled relevant per stratum."""
        return np.asarray(self.relevant.sum(axis=0))

    def is_estimable(self, side: bool) -> bool:
        """Whether the judge's positives (or negatives) have a label, or there are none to label."""
        in_side = self.is_found == side
        return bool(self.n_labelled[in_side].sum() > 0 or not self.pairs[in_side].sum())


def merge_empty(strata: LabelledStrata) -> tuple[LabelledStrata, _Counts]:
    """Merge strata without labels into the nearest stratum with labels and the same verdict.

    Returns:
        The strata with labels, and for each given stratum the index of the one that it was merged into, or -1.
    """
    labelled_strata = np.flatnonzero(strata.n_labelled)
    nearest = nearest_labelled(strata.n_labelled, strata.is_found)
    target = np.where(nearest >= 0, np.searchsorted(labelled_strata, nearest), -1)
    pairs = np.bincount(target[target >= 0], strata.pairs[target >= 0], minlength=len(labelled_strata)).astype(np.int64)
    return LabelledStrata(
        pairs,
        strata.is_found[labelled_strata],
        strata.labelled[:, labelled_strata],
        strata.relevant[:, labelled_strata],
    ), target


POSTERIOR_DRAWS = 10_000
"""Number of posterior draws; more make the ends of the intervals vary less with the seed."""
PRIOR_COUNT = 0.5
"""Prior pseudo-counts of relevant, and of not relevant, shared by the strata with the same verdict."""

_Floats = NDArray[np.float64]


UNKNOWN_ESTIMATE = IntervalEstimate(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class RunEstimates:
    """Precision and recall (0 to 1) of the judge over the run, and the number of positives it missed."""

    precision: IntervalEstimate
    recall: IntervalEstimate
    missed: IntervalEstimate


def estimate(
    strata: LabelledStrata, queries_share: float, random: np.random.Generator, draws: int = POSTERIOR_DRAWS
) -> RunEstimates:
    """Estimate the judge's precision and recall over all pairs of the strata.

    Values are stratified sums: each stratum's pairs × the relevant share of its labels. Intervals come from a
    beta-binomial posterior (Webber, 2013): a stratum's share is beta distributed with an effective sample size of `n` ÷
    design effect (Korn & Graubard, 1998), and its unlabelled pairs are binomial. The prior is half a label relevant and
    half not, as Webber recommends, but shared by all strata with the same verdict: per stratum it would add up to too
    many positives over many thin strata. If no missed positive was seen, the upper end of recall is 1; if no false
    positive was seen, that of precision is 1 (Brown, Cai & DasGupta, 2001).

    Args:
        strata: strata of the run; those without labels are merged into others, see `merge_empty`.
        queries_share: share of the queries in the sample, 0 to 1; the design effect vanishes as it approaches 1.
        random: generator of the posterior draws.
        draws: number of posterior draws.
    """
    estimable = {side: strata.is_estimable(side) for side in (True, False)}
    merged, _ = merge_empty(strata)
    posterior = _draw_positives(merged, queries_share, random, draws)
    expected = _estimate_positives(merged)
    n_missed_labels = int(merged.n_relevant[~merged.is_found].sum())
    n_false_labels = int((merged.n_labelled - merged.n_relevant)[merged.is_found].sum())
    precision = missed = recall = UNKNOWN_ESTIMATE
    n_found = int(merged.pairs[merged.is_found].sum())
    if estimable[True] and n_found:
        low, high = np.percentile(posterior[True] / n_found, INTERVAL_PERCENTILES)
        precision = IntervalEstimate(expected[True] / n_found, float(low), float(high) if n_false_labels else 1.0)
    if estimable[False]:
        low, high = np.percentile(posterior[False], INTERVAL_PERCENTILES)
        missed = IntervalEstimate(expected[False], float(low) if n_missed_labels else 0.0, float(high))
    if all(estimable.values()) and expected[True] + expected[False] > 0:
        low, high = np.percentile(posterior[True] / (posterior[True] + posterior[False]), INTERVAL_PERCENTILES)
        value = expected[True] / (expected[True] + expected[False])
        recall = IntervalEstimate(value, float(low) if expected[True] else 0.0, float(high) if n_missed_labels else 1.0)
    return RunEstimates(precision, recall, missed)


def _estimate_positives(strata: LabelledStrata) -> dict[bool, float]:
    """Estimate the number of positives among the judge's positives (True) and negatives (False)."""
    positives = strata.pairs * strata.n_relevant / strata.n_labelled
    return {side: float(positives[strata.is_found == side].sum()) for side in (True, False)}


def _draw_positives(
    strata: LabelledStrata, queries_share: float, random: np.random.Generator, draws: int
) -> dict[bool, _Floats]:
    """Draw the number of positives among the judge's positives (True) and negatives (False), shape (draws,) each."""
    positives = {}
    for side in (True, False):
        same_verdict = np.flatnonzero(strata.is_found == side)
        effect = design_effect(strata, same_verdict, queries_share)
        effective_labelled = strata.n_labelled[same_verdict] / effect
        effective_relevant = strata.n_relevant[same_verdict] / effect
        pairs = strata.pairs[same_verdict]
        prior = PRIOR_COUNT / max(len(same_verdict), 1)
        shares = random.beta(
            effective_relevant + prior, effective_labelled - effective_relevant + prior, size=(draws, len(same_verdict))
        )
        unlabelled = random.binomial(np.maximum(pairs - strata.n_labelled[same_verdict], 0), shares)
        positives[side] = strata.n_relevant[same_verdict].sum() + unlabelled.sum(axis=1).astype(np.float64)
    return positives


def design_effect(strata: LabelledStrata, own: NDArray[np.int64], queries_share: float) -> float:
    """Compute the design effect of the estimated positives: their variance ÷ that of independent labels, at least 1.

    Between-query variance of weighted residuals ÷ stratified binomial variance, with a t correction for few queries
    (Korn & Graubard, 1998). It is 1 if all labels within each stratum are equal: such labels say nothing about it.

    Args:
        strata: strata that all have labels.
        own: indices of the strata to use.
        queries_share: share of the queries in the sample.
    """
    from scipy.stats import t as student

    n_labelled = strata.n_labelled[own]
    weight = strata.pairs[own] / n_labelled
    share = strata.n_relevant[own] / n_labelled
    residuals = (strata.relevant[:, own] - strata.labelled[:, own] * share) @ weight
    n_queries = int((strata.labelled[:, own].sum(axis=1) > 0).sum())
    independent_variance = float(np.sum(weight**2 * n_labelled * share * (1 - share)))
    if n_queries < 2 or not independent_variance:
        return 1.0
    ratio = float(np.sum(residuals**2)) * n_queries / (n_queries - 1) / independent_variance
    effect = 1 + (1 - queries_share) * max(ratio - 1, 0.0)
    t_correction = student.ppf(0.975, n_queries - 1) / student.ppf(0.975, max(int(n_labelled.sum()) - 1, 1))
    return float(effect * t_correction**2) if effect > 1 else 1.0


def bootstrap(counts: _Floats, figure: Callable[[_Floats], _Floats], resamples: int, seed: int) -> IntervalEstimate:
    """Compute a statistic of all queries with its bootstrap interval over queries; see `base.bootstrap.interval`."""
    value = float(figure(counts.sum(axis=0)))
    if len(counts) < 2 or not np.isfinite(value):
        return IntervalEstimate(value, float("nan"), float("nan"))
    low, high = interval(counts, figure, resamples, seed)
    return IntervalEstimate(value, float(low), float(high))
