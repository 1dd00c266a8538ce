"""Stratified estimates for the whole run from a labelled sample, and bootstrap intervals over queries."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.bootstrap import ENDS, interval

_Counts = NDArray[np.int64]


@dataclass(frozen=True)
class LabelledStrata:
    """Strata of a part of the run, adjacent ones next to each other.

    Attributes:
        pairs: number of pairs in the run, shape (n_strata,).
        is_found: the judge's label is relevant, shape (n_strata,).
        labelled: number of labelled pairs per query, shape (n_queries, n_strata).
        relevant: number of them labelled relevant by people, same shape.
    """

    pairs: _Counts
    is_found: NDArray[np.bool_]
    labelled: _Counts
    relevant: _Counts

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
    n = strata.n_labelled
    non_empty = np.flatnonzero(n)
    to = np.full(len(n), -1)
    for side in (True, False):
        own, labelled = np.flatnonzero(strata.is_found == side), non_empty[strata.is_found[non_empty] == side]
        if len(labelled):
            nearest = np.abs(own[:, None] - labelled[None, :]).argmin(axis=1)
            to[own] = np.searchsorted(non_empty, labelled)[nearest]
    pairs = np.bincount(to[to >= 0], strata.pairs[to >= 0], minlength=len(non_empty)).astype(np.int64)
    return LabelledStrata(
        pairs, strata.is_found[non_empty], strata.labelled[:, non_empty], strata.relevant[:, non_empty]
    ), to


DRAWS = 10_000
PRIOR = 0.5
"""Prior pseudo-counts of relevant, and of not relevant, shared by the strata with the same verdict."""

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class IntervalEstimate:
    """An estimate with its 95 % interval; NaN where it is unknown."""

    value: float
    low: float
    high: float

    def columns(self, name: str) -> dict[str, float | None]:
        """The columns `name`, `name_low` and `name_high`; null if unknown."""
        values = {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}
        return {column: value if math.isfinite(value) else None for column, value in values.items()}


UNKNOWN = IntervalEstimate(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class RunEstimates:
    """Precision and recall (0 to 1) of the judge over the run, and the number of positives it missed."""

    precision: IntervalEstimate
    recall: IntervalEstimate
    missed: IntervalEstimate


def estimate(
    strata: LabelledStrata, queries_share: float, random: np.random.Generator, draws: int = DRAWS
) -> RunEstimates:
    """Estimate the judge's precision and recall over all pairs of the strata.

    Values are stratified sums: each stratum's pairs × the relevant share of its labels. Intervals come from a
    beta-binomial posterior (Webber, 2013): a stratum's share is beta distributed with an effective sample size of `n` ÷
    design effect (Korn & Graubard, 1998), and its unlabelled pairs are binomial. The prior is half a label relevant and
    half not, as Webber recommends, but shared by all strata with the same verdict: per stratum it would add up to too
    many positives over many thin strata. If no missed positive was seen, the upper end of recall is 1; if no false
    positive was seen, that of precision is (Brown, Cai & DasGupta, 2001).

    Args:
        strata: may include strata without labels; see `merge_empty`.
        queries_share: share of the queries in the sample, 0 to 1; the design effect vanishes as it approaches 1.
        random: for the posterior draws.
        draws: number of posterior draws.
    """
    estimable = {side: strata.is_estimable(side) for side in (True, False)}
    merged, _ = merge_empty(strata)
    drawn, counted = _draw_positives(merged, queries_share, random, draws), _known_positives(merged)
    seen_missed = int(merged.n_relevant[~merged.is_found].sum())
    seen_false = int((merged.n_labelled - merged.n_relevant)[merged.is_found].sum())
    precision = missed = recall = UNKNOWN
    size = int(merged.pairs[merged.is_found].sum())
    if estimable[True] and size:
        low, high = np.percentile(drawn[True] / size, ENDS)
        precision = IntervalEstimate(counted[True] / size, float(low), float(high) if seen_false else 1.0)
    if estimable[False]:
        low, high = np.percentile(drawn[False], ENDS)
        missed = IntervalEstimate(counted[False], float(low) if seen_missed else 0.0, float(high))
    if all(estimable.values()) and counted[True] + counted[False] > 0:
        low, high = np.percentile(drawn[True] / (drawn[True] + drawn[False]), ENDS)
        value = counted[True] / (counted[True] + counted[False])
        recall = IntervalEstimate(value, float(low) if counted[True] else 0.0, float(high) if seen_missed else 1.0)
    return RunEstimates(precision, recall, missed)


def _known_positives(strata: LabelledStrata) -> dict[bool, float]:
    """Estimated number of positives among the judge's positives (True) and negatives (False)."""
    positives = strata.pairs * strata.n_relevant / strata.n_labelled
    return {side: float(positives[strata.is_found == side].sum()) for side in (True, False)}


def _draw_positives(
    strata: LabelledStrata, queries_share: float, random: np.random.Generator, draws: int
) -> dict[bool, _Floats]:
    """Posterior draws of the same, shape (draws,) each."""
    positives = {}
    for side in (True, False):
        own = np.flatnonzero(strata.is_found == side)
        effect = design_effect(strata, own, queries_share)
        n, x, pairs = strata.n_labelled[own] / effect, strata.n_relevant[own] / effect, strata.pairs[own]
        prior = PRIOR / max(len(own), 1)
        shares = random.beta(x + prior, n - x + prior, size=(draws, len(own)))
        unlabelled = random.binomial(np.maximum(pairs - strata.n_labelled[own], 0), shares)
        positives[side] = strata.n_relevant[own].sum() + unlabelled.sum(axis=1).astype(np.float64)
    return positives


def design_effect(strata: LabelledStrata, own: NDArray[np.int64], queries_share: float) -> float:
    """Design effect of the estimated positives: their variance ÷ that of independent labels, at least 1.

    Between-query variance of weighted residuals ÷ stratified binomial variance, with a t correction for few queries
    (Korn & Graubard, 1998). It is 1 if all labels within each stratum are equal, which says nothing about it.

    Args:
        strata: all with labels.
        own: indices of the strata to use.
        queries_share: share of the queries in the sample.
    """
    from scipy.stats import t as student

    n, x = strata.n_labelled[own], strata.n_relevant[own]
    weight, share = strata.pairs[own] / n, x / n
    residuals = (strata.relevant[:, own] - strata.labelled[:, own] * share) @ weight
    queries = int((strata.labelled[:, own].sum(axis=1) > 0).sum())
    unrelated = float(np.sum(weight**2 * n * share * (1 - share)))
    if queries < 2 or not unrelated:
        return 1.0
    ratio = float(np.sum(residuals**2)) * queries / (queries - 1) / unrelated
    effect = 1 + (1 - queries_share) * max(ratio - 1, 0.0)
    few = student.ppf(0.975, queries - 1) / student.ppf(0.975, max(int(n.sum()) - 1, 1))
    return float(effect * few**2) if effect > 1 else 1.0


def bootstrap(counts: _Floats, figure: Callable[[_Floats], _Floats], resamples: int, seed: int) -> IntervalEstimate:
    """A statistic of all queries with its bootstrap interval over queries; see `base.bootstrap.interval`."""
    value = float(figure(counts.sum(axis=0)))
    if len(counts) < 2 or not np.isfinite(value):
        return IntervalEstimate(value, float("nan"), float("nan"))
    low, high = interval(counts, figure, resamples, seed)
    return IntervalEstimate(value, float(low), float(high))
