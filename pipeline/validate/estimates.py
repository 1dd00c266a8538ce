"""Estimates for the run from the labelled pairs of its strata, and bootstrap intervals of sums over queries."""

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
    """Strata of some part of the run, neighbours beside one another.

    Attributes:
        pairs: pairs of the run, shape (n_strata,).
        is_found: the judge found them relevant, shape (n_strata,).
        labelled: labelled pairs of each query, shape (n_queries, n_strata).
        relevant: those of them that people found relevant, same shape.
    """

    pairs: _Counts
    is_found: NDArray[np.bool_]
    labelled: _Counts
    relevant: _Counts

    @property
    def n(self) -> _Counts:
        """Labelled pairs of each stratum."""
        return np.asarray(self.labelled.sum(axis=0))

    @property
    def x(self) -> _Counts:
        """Relevant ones."""
        return np.asarray(self.relevant.sum(axis=0))

    def is_fully_known(self, side: bool) -> bool:
        """Whether anything is labelled of what the judge found, or did not find; nothing to label is known, too."""
        in_side = self.is_found == side
        return bool(self.n[in_side].sum() > 0 or not self.pairs[in_side].sum())


def merge_empty(strata: LabelledStrata) -> tuple[LabelledStrata, _Counts]:
    """Give the pairs of strata without a label to the nearest stratum that has one, on the same side of the verdict.

    Returns:
        The strata that have labels, and for each of the given strata which of them it went to, -1 where there is none.
    """
    n = strata.n
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
"""Pseudo-labels for relevant, and as many against, shared by the strata on one side of the verdict."""

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class IntervalEstimate:
    """An estimate with its 95 % interval; NaN where it is unknown."""

    value: float
    low: float
    high: float

    def columns(self, name: str) -> dict[str, float | None]:
        """The columns `name`, `name_low` and `name_high`; what is unknown is null."""
        values = {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}
        return {column: value if math.isfinite(value) else None for column, value in values.items()}


UNKNOWN = IntervalEstimate(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class RunEstimates:
    """Precision and recall (0 to 1) of the judge over the run, and the positives it missed (pairs)."""

    precision: IntervalEstimate
    recall: IntervalEstimate
    missed: IntervalEstimate


def estimate(
    strata: LabelledStrata, queries_share: float, random: np.random.Generator, draws: int = DRAWS
) -> RunEstimates:
    """Estimate the judge's precision and recall over all pairs of the strata.

    The values are stratified sums: of each stratum, its pairs times the share of its labelled pairs that is relevant.
    The intervals come from a beta-binomial posterior (Webber, 2013): in each stratum the share has a beta distribution,
    in which the sample counts as `n` ÷ design effect labels (Korn & Graubard, 1998), and the pairs without a label a
    binomial one. The prior is half a label for relevant and half against, as Webber recommends, but shared by all
    strata of a side: half a label for each would add up over thin strata to more positives than there are. Where no
    missed positive was seen recall may be 1, and where none of the judge's positives was wrong precision may be (Brown,
    Cai & DasGupta, 2001).

    Args:
        strata: may have strata without labels; see `merge_empty`.
        queries_share: share of the queries that were sampled, 0 to 1: how far labels of one query are like one another
            matters only where other queries were left out.
        random: of the posterior draws.
        draws: how many.
    """
    fully_known = {side: strata.is_fully_known(side) for side in (True, False)}
    merged, _ = merge_empty(strata)
    drawn, counted = _draw_positives(merged, queries_share, random, draws), _known_positives(merged)
    seen_missed = int(merged.x[~merged.is_found].sum())
    seen_false = int((merged.n - merged.x)[merged.is_found].sum())
    precision = missed = recall = UNKNOWN
    size = int(merged.pairs[merged.is_found].sum())
    if fully_known[True] and size:
        low, high = np.percentile(drawn[True] / size, ENDS)
        precision = IntervalEstimate(counted[True] / size, float(low), float(high) if seen_false else 1.0)
    if fully_known[False]:
        low, high = np.percentile(drawn[False], ENDS)
        missed = IntervalEstimate(counted[False], float(low) if seen_missed else 0.0, float(high))
    if all(fully_known.values()) and counted[True] + counted[False] > 0:
        low, high = np.percentile(drawn[True] / (drawn[True] + drawn[False]), ENDS)
        value = counted[True] / (counted[True] + counted[False])
        recall = IntervalEstimate(value, float(low) if counted[True] else 0.0, float(high) if seen_missed else 1.0)
    return RunEstimates(precision, recall, missed)


def _known_positives(strata: LabelledStrata) -> dict[bool, float]:
    """Estimated positives that the judge found (True), and that it did not."""
    positives = strata.pairs * strata.x / strata.n
    return {side: float(positives[strata.is_found == side].sum()) for side in (True, False)}


def _draw_positives(
    strata: LabelledStrata, queries_share: float, random: np.random.Generator, draws: int
) -> dict[bool, _Floats]:
    """Draws of the same from the posterior, shape (draws,)."""
    positives = {}
    for side in (True, False):
        own = np.flatnonzero(strata.is_found == side)
        effect = design_effect(strata, own, queries_share)
        n, x, pairs = strata.n[own] / effect, strata.x[own] / effect, strata.pairs[own]
        prior = PRIOR / max(len(own), 1)
        shares = random.beta(x + prior, n - x + prior, size=(draws, len(own)))
        unlabelled = random.binomial(np.maximum(pairs - strata.n[own], 0), shares)
        positives[side] = strata.x[own].sum() + unlabelled.sum(axis=1).astype(np.float64)
    return positives


def design_effect(strata: LabelledStrata, own: NDArray[np.int64], queries_share: float) -> float:
    """How many times the variance of the estimated positives is what labels of unrelated pairs would give; at least 1.

    The variance over queries of the strata's weighted residuals, over the stratified binomial one, and what few queries
    leave unknown about it (Korn & Graubard, 1998). It is 1 where no label differs from the others of its stratum: then
    nothing can be said of it.

    Args:
        strata: all have labels.
        own: the strata to look at.
        queries_share: of the queries that were sampled.
    """
    from scipy.stats import t as student

    n, x = strata.n[own], strata.x[own]
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
    """The figure of all queries, with its interval over resamples of the queries; see `base.bootstrap.interval`."""
    value = float(figure(counts.sum(axis=0)))
    if len(counts) < 2 or not np.isfinite(value):
        return IntervalEstimate(value, float("nan"), float("nan"))
    low, high = interval(counts, figure, resamples, seed)
    return IntervalEstimate(value, float(low), float(high))
