"""Stratification of pairs by verdict, probability and number of retrievers, and allocation of the sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Counts = NDArray[np.int64]
_Floats = NDArray[np.float64]


def allocate(total: int, shares: _Floats, capacity: _Counts) -> _Counts:
    """Divide `total` into integers proportional to `shares`, at most `capacity`, that sum to `total` (or to the total
    capacity).

    Excess over a capacity is redistributed; remainders go to the largest fractions, ties to the first.

    Args:
        total: number to divide, >= 0.
        shares: relative shares, >= 0, shape (n,); a zero share gets something only after the others are full.
        capacity: maximum of each integer, >= 0, shape (n,).
    """
    n_remaining = min(total, int(capacity.sum()))
    allotted = np.zeros(len(capacity), np.int64)
    while n_remaining:
        room = capacity - allotted
        open_shares = np.where(room > 0, shares, 0.0)
        if not open_shares.sum():
            open_shares = (room > 0).astype(np.float64)
        quota = n_remaining * open_shares / open_shares.sum()
        if (quota > room).any():
            allotted = np.where(quota >= room, capacity, allotted)
        else:
            allotted += _round_to_total(quota, n_remaining)
        n_remaining = min(total, int(capacity.sum())) - int(allotted.sum())
    return allotted


def _round_to_total(quota: _Floats, total: int) -> _Counts:
    """Round a quota to integers that sum to `total`: the largest fractions are rounded up."""
    floors = np.floor(quota).astype(np.int64)
    n_remaining = total - int(floors.sum())
    floors[np.argsort(floors - quota, kind="stable")[:n_remaining]] += 1
    return floors


MIN_PER_STRATUM = 5
"""Minimum sampled pairs of a stratum; smaller strata are merged with adjacent ones."""
MIN_PER_TENANT = 20
"""Minimum sampled pairs of a tenant; smaller tenants share strata."""
MAX_BANDS = 4
"""Maximum number of probability bands per verdict; a small sample has fewer."""
VERDICTS = ("relevant", "not relevant", "unreadable", "unjudged")
"""The judge's verdicts; SQL and `Cells` refer to them by index."""
FINDER_COUNTS = ("one", "several")
"""Number of retrievers that found a pair; `Cells` refers to it by index."""


@dataclass(frozen=True)
class Cells:
    """Groups of pairs with equal stratification values; each of shape (n_cells,).

    Attributes:
        tenant: index of the tenant.
        verdict: index in `VERDICTS`.
        found_by: index in `FINDER_COUNTS`.
        permille: probability × 1000, rounded; -1 if missing.
        pairs: number of pairs in the run.
        candidates: number of pairs of the sampled queries.
    """

    tenant: _Counts
    verdict: _Counts
    found_by: _Counts
    permille: _Counts
    pairs: _Counts
    candidates: _Counts


@dataclass(frozen=True)
class Stratum:
    """Cells that are sampled together.

    Attributes:
        tenant: index of the tenant; None: shared by several tenants.
        verdict: index in `VERDICTS`.
        cells: indices of the cells.
        sampled: number of pairs to sample from them.
    """

    tenant: int | None
    verdict: int
    cells: _Counts
    sampled: int


def stratify(cells: Cells, pairs: int) -> list[Stratum]:
    """Form strata and allocate the sample.

    - Tenants get pairs by the square root of their size: a compromise between equal allocation (best for each tenant)
      and proportional allocation (best for the whole; Bankier, 1988). Tenants with less than `MIN_PER_TENANT` share
      strata.
    - Half of a tenant's sample are the judge's positives, which are few and determine precision; the rest determines
      missed positives.
    - Within a verdict, probability bands halve in size toward the threshold; each is split by one or several
      retrievers. Strata get pairs by the square root of their size, so the sampling rate grows toward the threshold,
      where judges err; still, most pairs go to the large far bands, where one missed positive represents many.

    Args:
        cells: all cells of the run.
        pairs: size of the sample; less if the sampled queries have fewer.
    """
    strata: list[Stratum] = []
    for tenant, rows, budget in _tenants(cells, pairs):
        for verdict, share in _verdicts(cells, rows, budget):
            verdict_rows = rows[cells.verdict[rows] == verdict]
            strata += [
                Stratum(tenant, verdict, stratum_rows, n_sampled)
                for stratum_rows, n_sampled in _bands(cells, verdict_rows, share)
            ]
    return strata


def stratify_by_level(cells: Cells, level: _Counts, pairs: int) -> list[Stratum]:
    """Form strata of equal verdict and level, and allocate the sample in proportion to size × priority (Neyman, 1934).

    Tenants get pairs as by `stratify`. A verdict gets at least `MIN_PER_STRATUM` pairs, so that each can be estimated.

    Args:
        cells: all cells of the run.
        level: class of priority of each cell, from 0 (highest); each has 1/√2 of the priority of the one above; shape
            (n_cells,).
        pairs: size of the sample.
    """
    strata: list[Stratum] = []
    mass = cells.pairs * 0.5 ** (level / 2)
    for tenant, rows, budget in _tenants(cells, pairs):
        of_verdict = cells.verdict[rows]
        shape = {"minlength": len(VERDICTS)}
        capacity = np.bincount(of_verdict, cells.candidates[rows], **shape).astype(np.int64)
        smallest = allocate(budget, (capacity > 0).astype(np.float64), np.minimum(capacity, MIN_PER_STRATUM))
        shares = np.asarray(np.bincount(of_verdict, mass[rows], **shape), np.float64)
        remaining = np.asarray(capacity - smallest, np.int64)
        budgets = np.add(smallest, allocate(budget - int(smallest.sum()), shares, remaining))
        for verdict in np.unique(of_verdict):
            verdict_rows = rows[of_verdict == verdict]
            levels = [
                ({int(value)}, verdict_rows[level[verdict_rows] == value]) for value in np.unique(level[verdict_rows])
            ]
            strata += [
                Stratum(tenant, int(verdict), stratum_rows, n_sampled)
                for stratum_rows, n_sampled in _allot(
                    cells, levels, int(budgets[verdict]), lambda part: mass[part].sum()
                )
            ]
    return strata


def _tenants(cells: Cells, pairs: int) -> list[tuple[int | None, _Counts, int]]:
    """Allocate the sample to tenants: each tenant, and small tenants together (None), with their cells and sample
    sizes.
    """
    size = np.bincount(cells.tenant, cells.pairs)
    quota = allocate(pairs, np.sqrt(size), np.bincount(cells.tenant, cells.candidates).astype(np.int64))
    is_small = quota < MIN_PER_TENANT
    if is_small.sum() == 1:
        is_small[:] = False  # a single small tenant has none to share strata with
    large_tenants = [
        (int(tenant), np.flatnonzero(cells.tenant == tenant), int(quota[tenant]))
        for tenant in np.flatnonzero(~is_small)
    ]
    shared_rows = np.flatnonzero(is_small[cells.tenant])
    return [*large_tenants, *([(None, shared_rows, int(quota[is_small].sum()))] if len(shared_rows) else [])]


def _verdicts(cells: Cells, rows: _Counts, budget: int) -> list[tuple[int, int]]:
    """Allocate a tenant's sample to verdicts: half to the judge's positives, the rest by the square root of size."""
    shape = {"minlength": len(VERDICTS)}
    size = np.bincount(cells.verdict[rows], cells.pairs[rows], **shape)
    capacity = np.bincount(cells.verdict[rows], cells.candidates[rows], **shape).astype(np.int64)
    shares = np.sqrt(size)
    remaining_share = shares[1:].sum()
    shares[0] = (remaining_share or 1.0) if size[0] else 0.0
    return [(verdict, n) for verdict, n in enumerate(allocate(budget, shares, capacity).tolist()) if size[verdict]]


def _bands(cells: Cells, rows: _Counts, budget: int) -> list[tuple[_Counts, int]]:
    """Form the strata of one verdict (cells, sample size), nearest to the threshold first."""
    band = _band(cells, rows, int(np.clip(budget // (2 * len(FINDER_COUNTS) * MIN_PER_STRATUM), 1, MAX_BANDS)))
    key = band * len(FINDER_COUNTS) + cells.found_by[rows]
    strata = [(set(band[key == band_key]), rows[key == band_key]) for band_key in np.unique(key)]
    return _allot(cells, strata, budget, lambda stratum_rows: np.sqrt(cells.pairs[stratum_rows].sum()))


def _allot(
    cells: Cells, strata: list[tuple[set[int], _Counts]], budget: int, share: Callable[[_Counts], float]
) -> list[tuple[_Counts, int]]:
    """Allocate pairs to strata by their shares; strata with less than `MIN_PER_STRATUM` are merged."""
    while True:
        capacity = np.array([cells.candidates[stratum_rows].sum() for _, stratum_rows in strata])
        allotted = allocate(budget, np.array([share(stratum_rows) for _, stratum_rows in strata]), capacity)
        smallest = int(allotted.argmin())
        if allotted[smallest] >= MIN_PER_STRATUM or len(strata) == 1:
            return [
                (stratum_rows, int(n_sampled)) for (_, stratum_rows), n_sampled in zip(strata, allotted, strict=True)
            ]
        _merge(strata, smallest, allotted)


def _merge(strata: list[tuple[set[int], _Counts]], position: int, allotted: _Counts) -> None:
    """Merge a stratum into an adjacent one: preferably of the same band, else the smaller one."""
    bands, cells = strata[position]
    adjacent = [other for other in (position - 1, position + 1) if 0 <= other < len(strata)]
    other = min(adjacent, key=lambda candidate: (not bands & strata[candidate][0], allotted[candidate]))
    strata[other] = (bands | strata[other][0], np.sort(np.concatenate([strata[other][1], cells])))
    del strata[position]


def _band(cells: Cells, rows: _Counts, bands: int) -> _Counts:
    """Compute the band of each cell, 0 nearest to the threshold; each band is as large as all nearer ones, and equal
    values stay together.
    """
    distance = cells.permille[rows] if VERDICTS[cells.verdict[rows[0]]] == "relevant" else -cells.permille[rows]
    distance = np.where(cells.permille[rows] < 0, np.iinfo(np.int64).max, distance)
    values, band_index = np.unique(distance, return_inverse=True)
    size = np.bincount(band_index, cells.pairs[rows], minlength=len(values))
    mid_share = (np.cumsum(size) - size / 2) / size.sum()
    edges = 0.5 ** np.arange(bands - 1, 0, -1)
    return np.asarray(np.searchsorted(edges, mid_share)[band_index], np.int64)
