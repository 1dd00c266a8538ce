"""How much of a reference list a search finds: Recall@k with another system's first k as the relevant documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from darklode.pipeline.base.types import Doubles, Ints
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired

CUTOFFS = (10, 100)


def share_found(results: Ints, reference: Ints, k: int) -> Doubles:
    """Share of the reference's first k that are among the first k results, shape (n_queries,).

    NaN for a query without a reference. If there are fewer than k documents, k is their number.

    Args:
        results: rows of documents, best first, shape (n_queries, depth); −1: none.
        reference: the same of the reference.
        k: cutoff.
    """
    found, wanted = results[:, :k], reference[:, :k]
    is_found = (wanted[:, :, None] == found[:, None, :]).any(axis=2) & (wanted >= 0)
    counts = (wanted >= 0).sum(axis=1)
    shares = np.full(len(wanted), np.nan)
    np.divide(is_found.sum(axis=1), counts, out=shares, where=counts > 0)
    return shares


@dataclass(frozen=True)
class MeanShare:
    """Mean of a share over queries.

    Attributes:
        value: the mean; NaN without queries.
        low, high: 95 % studentized bootstrap interval over queries; NaN for fewer than two queries.
        bounded_low: 97.5 % lower bound for any distribution (Gaffke 2005), see `evaluate.paired.lower_bound`.
        queries: number of queries with a value.
    """

    value: float
    low: float
    high: float
    bounded_low: float
    queries: int


def mean_share(shares: Doubles, seed: int) -> MeanShare:
    """Mean, interval and lower bound of shares between 0 and 1; NaN is left out.

    Args:
        shares: a value per query.
        seed: seed of the resamples.
    """
    values = shares[~np.isnan(shares)][:, None]
    if not len(values):
        nan = float("nan")
        return MeanShare(nan, nan, nan, nan, 0)
    # The bound assumes differences of at least −1: those of shares to 1 are −1 to 0.
    below_one = compare_paired(values, np.ones_like(values), np.arange(len(values)), ResamplingSettings(seed=seed))
    ends = (below_one.low[0], below_one.high[0], below_one.bounded_low[0])
    low, high, bounded_low = (float(np.clip(1 + end, 0, 1)) for end in ends)
    return MeanShare(float(values.mean()), low, high, bounded_low, len(values))
