"""Stopping rules of the literature on technology-assisted review, for comparison: each reads a finished trail.

A rule gives the number of calls after which it would have stopped. It sees the labels up to that call only.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

_Floats = NDArray[np.float64]


class Trail:
    """What happened, round by round.

    Attributes:
        labels: of each call, in order.
        ends: calls made by the end of each round.
        known, unknown: sums of the probabilities that the learner gave judged and unjudged pairs, after each round.
        spread, known_spread: sums of p·(1 − p) over all and over the judged pairs, after each round.
    """

    def __init__(self, n_pairs: int) -> None:
        self.n_pairs = n_pairs
        self.labels: _Floats = np.empty(0)
        self.ends: list[int] = []
        self.sums: list[tuple[float, float, float, float]] = []

    def add(self, labels: _Floats, probability: _Floats, judged: NDArray[np.bool_]) -> None:
        """A round: its calls in order, and what the learner says of every pair after it."""
        self.labels = np.concatenate([self.labels, labels])
        self.ends.append(len(self.labels))
        spread = probability * (1 - probability)
        known, unknown = probability[judged].sum(), probability[~judged].sum()
        self.sums.append((float(known), float(unknown), float(spread.sum()), float(spread[judged].sum())))

    def found(self) -> _Floats:
        """Positives by the end of each round."""
        return np.asarray(np.cumsum(self.labels)[np.array(self.ends) - 1])

    def at(self, calls: int) -> tuple[float, float]:
        """Share of the pool judged and of the positives found by then."""
        return calls / self.n_pairs, float(self.labels[:calls].sum() / self.labels.sum())


def knee(trail: Trail, _target: float) -> int:
    """Cormack & Grossman (2016): the gain curve's slope before a knee is many times that after it."""
    found, ends = trail.found(), np.array(trail.ends)
    for last in range(1, len(ends)):
        before = found[:last] / ends[:last]
        after = (1 + found[last] - found[:last]) / (ends[last] - ends[:last])
        if (before / after).max() >= 156 - min(found[last], 150):
            return int(ends[last])
    return trail.n_pairs


def _quant(trail: Trail, target: float, deviations: float) -> int:
    for end, (known, unknown, spread, known_spread) in zip(trail.ends, trail.sums, strict=True):
        total = known + unknown
        error = np.sqrt(known**2 / total**4 * spread + known_spread / total**2)
        if known / total - deviations * error >= target:
            return end
    return trail.n_pairs


def quant(trail: Trail, target: float) -> int:
    """Yang, Lewis & Frieder (2021): recall by the learner's own probabilities."""
    return _quant(trail, target, 0)


def quant_ci(trail: Trail, target: float) -> int:
    """The same, two standard errors below."""
    return _quant(trail, target, 2)


def hypergeometric(trail: Trail, target: float) -> int:
    """Callaghan & Müller-Hansen (2020), the heuristic without random sampling: the last calls as if drawn at random."""
    found, ends = trail.found(), np.array(trail.ends)
    for last, first in product(range(1, len(ends)), range(len(ends))):
        if first >= last:
            continue
        left, drawn = trail.n_pairs - ends[first], ends[last] - ends[first]
        least = int(np.floor(found[last] / target - found[first] + 1))
        if least <= left and hypergeom.cdf(found[last] - found[first], left, least, drawn) < 0.05:
            return int(ends[last])
    return trail.n_pairs


def target_method(trail: Trail, _target: float, seed: int = 0) -> int:
    """Cormack & Grossman (2016): random calls until ten positives are seen, then on until all ten are found again."""
    order = np.random.default_rng(seed).permutation(trail.n_pairs)
    drawn = int(np.searchsorted(np.cumsum(trail.labels[order]), 10)) + 1
    ten = order[:drawn][trail.labels[order[:drawn]] > 0]
    reached = next(end for end in trail.ends if end > ten.max())
    return int(reached + (order[:drawn] >= reached).sum())


RULES: dict[str, Callable[[Trail, float], int]] = {
    "knee": knee,
    "target method (10)": target_method,
    "quant": quant,
    "quant CI": quant_ci,
    "hypergeometric": hypergeometric,
    "half of the pool": lambda trail, _target: trail.n_pairs // 2,
}
