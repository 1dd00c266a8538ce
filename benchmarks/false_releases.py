"""How often an adapter that gains nothing is released, and how often one that does.

    python -m benchmarks.false_releases [--trials N]

Writes benchmarks/results/false_releases.md and .json. Each trial goes the whole way with made-up differences between
adapter and base: settings are chosen on validation queries as `adapt` chooses, the chosen one is compared on the test
queries, which fall into clusters of near-duplicates with equal differences, and the verdict's rule decides. All
settings gain nothing on average; differences are skewed as by rare large losses. Beside it: the rule of an interval
alone (percentile bootstrap above 0), and how often an adapter that loses just the gate's margin passes the gate.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired, is_above_zero, is_gain, means
from darklode.pipeline.serve.release_gate import MARGIN
from darklode.pipeline.train.fit.model_selection import ValidationScore, best_score

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

CHANCE = ResamplingSettings(resamples=1000, flips=2000)
SETTINGS = 6
"""Learning rates and shares of the way that validation chooses from, the base beside them."""
VALIDATION = 60
GAINS = (0.03, 0.05, 0.08, 0.15)
GAIN_SIZES = (20, 50, 92, 200, 500)


def _many_zeros(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Most queries do not change, some gain a little, few lose much."""
    kind = random.random(shape)
    lost = np.where(kind < 0.9, random.uniform(0, 0.2, shape), -random.uniform(0, 0.6, shape))
    return np.where(kind < 0.6, 0.0, lost)


FAMILIES: dict[str, Draw] = {
    "normal": lambda random, shape: random.normal(0, 0.2, shape),
    "exponential": lambda random, shape: 0.1 * (1 - random.exponential(1, shape)),
    "lognormal": lambda random, shape: 0.1 * (np.exp(0.5) - random.lognormal(0, 1, shape)),
    "one in ten loses .45": lambda random, shape: np.where(random.random(shape) < 0.1, -0.45, 0.05),
    "one in twenty loses .95": lambda random, shape: np.where(random.random(shape) < 0.05, -0.95, 0.05),
    "six of ten unchanged": _many_zeros,
}
"""Differences of queries, 0 on average, -1 at least."""


@dataclass(frozen=True)
class Rates:
    """Shares of the trials.

    Attributes:
        family: of the differences.
        clusters: of the test queries.
        chosen: in which validation chose an adapter.
        percentile: in which the percentile interval of any adapter is above 0.
        released: in which an adapter was chosen and released.
        gate: in which an adapter that loses the margin passes the gate.
    """

    family: str
    clusters: int
    chosen: float
    percentile: float
    released: float
    gate: float


def sample(draw: Draw, clusters: int, trials: int, random: np.random.Generator) -> tuple[Floats, NDArray[np.int64]]:
    """Differences of queries in clusters, shape (n_queries, trials), and each query's cluster."""
    groups = np.repeat(np.arange(clusters), random.geometric(0.7, clusters))
    return np.clip(draw(random, (clusters, trials)), -1, 1)[groups], groups


def chosen(draw: Draw, trials: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """In which trials validation prefers a setting to the base, shape (trials,)."""
    values = np.stack([np.clip(draw(random, (VALIDATION, trials)), -1, 1).mean(axis=0) for _ in range(SETTINGS)])
    picked = [
        best_score(
            [ValidationScore(0.0, 0.0, VALIDATION), *(ValidationScore(1.0, float(one), VALIDATION) for one in column)]
        )
        for column in values.T
    ]
    return np.array([one.share > 0 for one in picked])


def measure(family: str, clusters: int, trials: int) -> Rates:
    random, draw = np.random.default_rng([clusters, list(FAMILIES).index(family)]), FAMILIES[family]
    values, groups = sample(draw, clusters, trials, random)
    nothing, wins = np.zeros_like(values), chosen(draw, trials, random)
    found = compare_paired(values, nothing, groups, CHANCE)
    gains = np.array([is_gain(found.row(at)) for at in range(trials)])
    passed = [is_above_zero(found.row(at)) for at in range(trials)]  # values - MARGIN + MARGIN
    low = means(values, groups, CHANCE)[1] if clusters > 1 else np.zeros(trials)
    shares = (wins.mean(), (low > 0).mean(), (wins & gains).mean(), np.mean(passed))
    return Rates(family, clusters, *map(float, shares))


def power(gain: float, clusters: int, trials: int) -> float:
    """How often a true gain is released: differences of deviation .2, every second query unchanged."""
    random = np.random.default_rng([clusters, int(1000 * gain)])
    changed = random.random((clusters, trials)) < 0.5
    values = np.clip(np.where(changed, random.normal(2 * gain, 0.28, (clusters, trials)), 0), -1, 1)
    found = compare_paired(values, np.zeros_like(values), np.arange(clusters), CHANCE)
    return float(np.mean([is_gain(found.row(at)) for at in range(trials)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=400)
    trials = parser.parse_args().trials
    rates = [measure(family, clusters, trials) for family in FAMILIES for clusters in range(2, 51)]
    powers = {f"{gain:g}": [power(gain, size, trials // 2) for size in GAIN_SIZES] for gain in GAINS}
    rows = [asdict(one) for one in rates]
    write("false_releases", _text(rates, powers, trials), {"machine": machine(), "rates": rows, "power": powers})


def _text(rates: list[Rates], powers: dict[str, list[float]], trials: int) -> str:
    def worst(family: str, name: str, least: int = 2) -> str:
        mine = [one for one in rates if one.family == family and one.clusters >= least]
        top = max(mine, key=lambda one: getattr(one, name))
        return f"{getattr(top, name):.3f} ({top.clusters})"

    shown = [
        [family, *(worst(family, name) for name in ("percentile", "released")), worst(family, "gate", 10)]
        for family in FAMILIES
    ]
    sizes = [2, 3, 4, 6, 8, 10, 12, 15, 20, 30, 41, 50]
    by_size = [
        [one.family, one.clusters, *(f"{value:.3f}" for value in (one.chosen, one.percentile, one.released, one.gate))]
        for one in rates
        if one.clusters in sizes
    ]
    columns = ["family", "clusters", "chosen", "percentile interval", "released", f"passes the gate at -{MARGIN}"]
    return "\n\n".join(
        [
            "# How often an adapter that gains nothing is released",
            f"{machine()}. {trials:,} trials of each family and size, 2 to 50 clusters; {MARGIN} is the gate's margin.",
            "The worst size of each family, and how many clusters it has:",
            markdown_table(["differences", "percentile interval above 0", "released", "passes the gate"], shown),
            "Share of true gains that is released, by clusters:",
            markdown_table(
                ["gain", *map(str, GAIN_SIZES)], [[one, *(f"{v:.2f}" for v in row)] for one, row in powers.items()]
            ),
            markdown_table(columns, by_size),
        ]
    )


if __name__ == "__main__":
    main()
