"""Systems against one another on the same queries: means with intervals, and differences that chance does not explain.

What is drawn anew and what is turned around are groups of queries, such as clusters of near-duplicates: two queries of
one group tell the same twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.bootstrap import interval

Floats = NDArray[np.float64]

POWER = 2.802
"""Standard errors that a true difference must have to be seen in 4 of 5 tests at the 5 % level: 1.960 + 0.842."""

_AT_ONCE = 200  # flips: memory is that many times the groups


@dataclass(frozen=True)
class Chance:
    """How much is drawn, and from which seed: `resamples` for intervals, `flips` for tests."""

    resamples: int = 1000
    flips: int = 10_000
    seed: int = 13


@dataclass(frozen=True)
class Difference:
    """What one system has more than another, by measure; all of shape (n_measures,).

    Attributes:
        mean: over queries.
        low: lower end of the 95 % interval.
        high: its upper end.
        p: of the two-sided test that the sign of each group's difference is chance.
        detectable: the least true difference that a test on so many queries finds 4 times of 5; NaN of one group.
        wins: queries on which the first has more.
        losses: queries on which it has less.
    """

    mean: Floats
    low: Floats
    high: Floats
    p: Floats
    detectable: Floats
    wins: NDArray[np.int64]
    losses: NDArray[np.int64]


def means(values: Floats, groups: NDArray[np.int64], chance: Chance) -> tuple[Floats, Floats, Floats]:
    """Mean over queries and its 95 % interval, each of shape (n_measures,).

    Args:
        values: shape (n_queries, n_measures), at least one query.
        groups: the group of each query, from 0, shape (n_queries,).
        chance: how much is drawn.
    """
    sums = _sums(np.column_stack([values, np.ones(len(values))]), groups)
    low, high = interval(sums, lambda drawn: drawn[..., :-1] / drawn[..., -1:], chance.resamples, chance.seed)
    return values.mean(axis=0), low, high


def compared(one: Floats, other: Floats, groups: NDArray[np.int64], chance: Chance) -> Difference:
    """What the first system has more than the second: bootstrap interval and sign-flip randomisation test.

    Args:
        one: values of the first, shape (n_queries, n_measures), at least one query.
        other: those of the second on the same queries.
        groups: the group of each query, from 0.
        chance: how much is drawn.

    Source: Smucker, Allan and Carterette 2007 (randomisation over bootstrap and t-test); Efron 1979.
    """
    differences = np.asarray(one - other, np.float64)
    mean, low, high = means(differences, groups, chance)
    sums = _sums(differences, groups)
    close = np.isclose(one, other, rtol=0, atol=1e-12)
    return Difference(
        mean,
        low,
        high,
        flipped(sums, chance),
        POWER * _standard_error(sums, np.bincount(groups)),
        (~close & (one > other)).sum(axis=0),
        (~close & (one < other)).sum(axis=0),
    )


def flipped(sums: Floats, chance: Chance) -> Floats:
    """p of sums of differences, shape (n_groups, n_measures), when each group's sign is drawn; shape (n_measures,)."""
    seen, random = np.abs(sums.sum(axis=0)), np.random.default_rng(chance.seed)
    reached = np.zeros(sums.shape[1], np.int64)
    for start in range(0, chance.flips, _AT_ONCE):
        signs = random.integers(0, 2, size=(min(_AT_ONCE, chance.flips - start), len(sums)), dtype=np.int8)
        drawn = np.abs((2.0 * signs - 1.0) @ sums)
        reached += (drawn >= seen * (1 - 1e-12) - 1e-12).sum(axis=0)
    return np.asarray((reached + 1) / (chance.flips + 1))


def turned_around(drawn: Floats) -> float:
    """Two-sided p of a difference from its resamples: twice the share in which it has the other sign, or none."""
    known = drawn[~np.isnan(drawn)]
    turned = min(int((known <= 0).sum()), int((known >= 0).sum()))
    return min(1.0, 2 * (turned + 1) / (len(known) + 1))


def holm(p: Sequence[float] | Floats) -> Floats:
    """p corrected for as many tests as there are (Holm 1979), in their order."""
    given = np.asarray(p, np.float64)
    order = np.argsort(given, kind="stable")
    steps = given[order] * np.arange(len(given), 0, -1)
    corrected = np.empty(len(given))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return corrected


def _sums(values: Floats, groups: NDArray[np.int64]) -> Floats:
    sums = np.zeros((int(groups.max()) + 1, values.shape[1]))
    np.add.at(sums, groups, values)
    return sums


def _standard_error(sums: Floats, sizes: NDArray[np.int64]) -> Floats:
    """Of a mean over queries in groups, from the groups' sums; not a number where there is only one group."""
    n = len(sums)
    if n < 2:
        return np.full(sums.shape[1], np.nan)
    off = sums - sizes[:, None] * sums.sum(axis=0) / sizes.sum()
    return np.asarray(np.sqrt(n / (n - 1) * (off**2).sum(axis=0)) / sizes.sum())
