"""Strata: pairs of one verdict and of like probability, found by one retriever or several, and how many are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Counts = NDArray[np.int64]
_Floats = NDArray[np.float64]


def allot(total: int, shares: _Floats, capacity: _Counts) -> _Counts:
    """Whole numbers in proportion to `shares`, none above `capacity`, that add up to `total`, or to all there is.

    What one cannot take goes to the others; remainders go to the largest fractions, the first of equal ones.

    Args:
        total: from 0.
        shares: from 0, shape (n,); what has none gets something only once the others are full.
        capacity: from 0, shape (n,).
    """
    n_remaining = min(total, int(capacity.sum()))
    allotted = np.zeros(len(capacity), np.int64)
    while n_remaining:
        room = capacity - allotted
        wish = np.where(room > 0, shares, 0.0)
        if not wish.sum():
            wish = (room > 0).astype(np.float64)
        quota = n_remaining * wish / wish.sum()
        if (quota > room).any():
            allotted = np.where(quota >= room, capacity, allotted)
        else:
            allotted += _round_to_total(quota, n_remaining)
        n_remaining = min(total, int(capacity.sum())) - int(allotted.sum())
    return allotted


def _round_to_total(quota: _Floats, total: int) -> _Counts:
    floors = np.floor(quota).astype(np.int64)
    n_remaining = total - int(floors.sum())
    floors[np.argsort(floors - quota, kind="stable")[:n_remaining]] += 1
    return floors


LEAST = 5
"""Pairs of a stratum in the sample; strata that would have fewer are merged with their neighbours."""
LEAST_OF_TENANT = 20
"""Tenants that would have fewer share their strata."""
MOST_BANDS = 4
VERDICTS = ("relevant", "not relevant", "unreadable", "unjudged")
FOUND = ("one", "several")


@dataclass(frozen=True)
class Cells:
    """Groups of pairs that are alike in all that strata look at; each of shape (n_cells,).

    Attributes:
        tenant: number of the tenant, from 0.
        verdict: place in `VERDICTS`.
        found_by: place in `FOUND`.
        permille: the probability, rounded; -1 where there is none.
        pairs: pairs of the run.
        candidates: pairs of the sampled queries.
    """

    tenant: _Counts
    verdict: _Counts
    found_by: _Counts
    permille: _Counts
    pairs: _Counts
    candidates: _Counts


@dataclass(frozen=True)
class Stratum:
    """Cells that are sampled together, and how many of their pairs are drawn; no tenant: several share it."""

    tenant: int | None
    verdict: int
    cells: _Counts
    sampled: int


def stratify(cells: Cells, pairs: int) -> list[Stratum]:
    """Form strata and say how many pairs are drawn of each.

    - Tenants share the pairs by the square root of their own numbers of pairs: between equal numbers, which serve each
      tenant's estimate best, and proportional ones, which serve that of the whole (Bankier, 1988). Tenants with less
      than `LEAST_OF_TENANT` have common strata.
    - Half of a tenant's pairs are what the judge found relevant: precision is a share of them, and they are few. The
      rest tells of missed positives.
    - Within a verdict, bands of probability halve toward the threshold, and each is parted by who found its pairs: one
      retriever or several. Strata get pairs by the square root of their sizes, so that the share that is drawn grows
      toward the threshold, where judges err; yet most pairs go to the large far bands, because one missed positive
      there stands for many.

    Args:
        cells: what there is.
        pairs: how many pairs to draw; fewer where the sampled queries have fewer.
    """
    strata: list[Stratum] = []
    for tenant, rows, budget in _tenants(cells, pairs):
        for verdict, share in _verdicts(cells, rows, budget):
            of_verdict = rows[cells.verdict[rows] == verdict]
            strata += [Stratum(tenant, verdict, own, n) for own, n in _bands(cells, of_verdict, share)]
    return strata


def _tenants(cells: Cells, pairs: int) -> list[tuple[int | None, _Counts, int]]:
    """Each tenant, or the small ones together (None), with its cells and its number of pairs."""
    size = np.bincount(cells.tenant, cells.pairs)
    quota = allot(pairs, np.sqrt(size), np.bincount(cells.tenant, cells.candidates).astype(np.int64))
    small = quota < LEAST_OF_TENANT
    if small.sum() == 1:
        small[:] = False
    alone = [
        (int(tenant), np.flatnonzero(cells.tenant == tenant), int(quota[tenant])) for tenant in np.flatnonzero(~small)
    ]
    together = np.flatnonzero(small[cells.tenant])
    return [*alone, *([(None, together, int(quota[small].sum()))] if len(together) else [])]


def _verdicts(cells: Cells, rows: _Counts, budget: int) -> list[tuple[int, int]]:
    shape = {"minlength": len(VERDICTS)}
    size = np.bincount(cells.verdict[rows], cells.pairs[rows], **shape)
    capacity = np.bincount(cells.verdict[rows], cells.candidates[rows], **shape).astype(np.int64)
    shares = np.sqrt(size)
    remaining_share = shares[1:].sum()
    shares[0] = (remaining_share or 1.0) if size[0] else 0.0
    return [(verdict, n) for verdict, n in enumerate(allot(budget, shares, capacity).tolist()) if size[verdict]]


def _bands(cells: Cells, rows: _Counts, budget: int) -> list[tuple[_Counts, int]]:
    """Strata of one verdict as their cells and how many pairs are drawn, the nearest to the threshold first."""
    band = _band(cells, rows, int(np.clip(budget // (2 * len(FOUND) * LEAST), 1, MOST_BANDS)))
    key = band * len(FOUND) + cells.found_by[rows]
    strata = [(set(band[key == band_key]), rows[key == band_key]) for band_key in np.unique(key)]
    while True:
        size = np.array([cells.pairs[own].sum() for _, own in strata])
        capacity = np.array([cells.candidates[own].sum() for _, own in strata])
        drawn = allot(budget, np.sqrt(size), capacity)
        poorest = int(drawn.argmin())
        if drawn[poorest] >= LEAST or len(strata) == 1:
            return [(own, int(n)) for (_, own), n in zip(strata, drawn, strict=True)]
        _merge(strata, poorest, drawn)


def _merge(strata: list[tuple[set[int], _Counts]], position: int, drawn: _Counts) -> None:
    """Give a stratum's cells to a neighbour: one of the same band, else the smaller one."""
    bands, cells = strata[position]
    beside = [other for other in (position - 1, position + 1) if 0 <= other < len(strata)]
    other = min(beside, key=lambda stratum: (not bands & strata[stratum][0], drawn[stratum]))
    strata[other] = (bands | strata[other][0], np.sort(np.concatenate([strata[other][1], cells])))
    del strata[position]


def _band(cells: Cells, rows: _Counts, bands: int) -> _Counts:
    """0 for the pairs nearest to the threshold; each band is as large as all nearer ones, and none parts a value."""
    far = cells.permille[rows] if VERDICTS[cells.verdict[rows[0]]] == "relevant" else -cells.permille[rows]
    far = np.where(cells.permille[rows] < 0, np.iinfo(np.int64).max, far)
    values, band_index = np.unique(far, return_inverse=True)
    size = np.bincount(band_index, cells.pairs[rows], minlength=len(values))
    middle = (np.cumsum(size) - size / 2) / size.sum()
    edges = 0.5 ** np.arange(bands - 1, 0, -1)
    return np.asarray(np.searchsorted(edges, middle)[band_index], np.int64)
