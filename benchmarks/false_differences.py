"""How often two arms of an A/B test, or two AUCs, that do not differ are called different.

    python -m benchmarks.false_differences [--trials N]

Writes benchmarks/results/false_differences.md and .json. Arms: sessions of one search each, with the same share of
clicks in both arms. AUC: 200 pairs of 100 queries, scored by two systems that err alike; few pairs are relevant. Told
are the share of trials with p of at most .05, and the share of the intervals that do not hold 0, both .05 at best.
Beside p, what a test gives that turns the signs of what each session or query adds (the first-order term).
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.evaluate.auc import LabelledPairs, area, influence
from darklode.pipeline.evaluate.online_metrics import SessionCounts
from darklode.pipeline.evaluate.paired import LEVEL, ResamplingSettings, sign_flip_p

CHANCE = ResamplingSettings(resamples=500, flips=1000)
ARMS = ((1000, 3), (1000, 15), (1000, 40), (200, 200))
CLICKED = 0.1
POSITIVES = (1, 3, 5, 10, 20, 50)
PAIRS, QUERIES = 200, 100


def arms(sizes: tuple[int, int], seed: int) -> tuple[float, float | None, float | None, float]:
    """p, interval and p of signs for the share of searches without a click."""
    random = np.random.default_rng([seed, *sizes])
    clicked = random.random(sum(sizes)) < CLICKED
    arm = np.repeat(["x", "y"], sizes)
    ones = np.ones(len(arm), np.int64)
    rows = {"shown": 10 * ones, "searches": ones, "clicks": clicked * ones, "first": clicked * ones}
    rows["abandoned"] = ~clicked * ones
    names = [f"s{number}" for number in range(len(arm))]
    log = SessionCounts.from_rows(pa.table({"tenant": ["default"] * len(arm), "session": names, "arm": arm} | rows))
    (row,) = [one for one in log.pairs(CHANCE) if one["measure"] == "abandoned searches"]
    adds = [
        np.where(arm == name, ~clicked - (~clicked)[arm == name].mean(), 0.0) / (arm == name).sum() for name in "xy"
    ]
    return row["p"], row["low"], row["high"], _signs(row["difference"], adds[1] - adds[0])


def aucs(positives: int, seed: int) -> tuple[float, float | None, float | None, float]:
    """The same for two AUCs."""
    random = np.random.default_rng([seed, positives])
    query, labels = np.arange(PAIRS) // 2, np.zeros(PAIRS, np.bool_)
    labels[2 * random.choice(QUERIES, positives, replace=False)] = True
    fits = labels + random.normal(size=PAIRS)
    scores = np.stack([fits + random.normal(size=PAIRS), 3 * (fits + random.normal(size=PAIRS))], axis=1)
    (row,) = LabelledPairs(labels, scores, query).differences(("one", "other"), CHANCE)
    adds = [influence(labels, one, query) for one in scores.T]
    difference = area(labels, scores[:, 1]) - area(labels, scores[:, 0])
    return row["p"], row["low"], row["high"], _signs(difference, adds[1] - adds[0])


def _signs(estimate: float, adds: NDArray[np.float64]) -> float:
    return float(sign_flip_p((estimate + len(adds) * adds)[:, None], CHANCE)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400)
    trials = parser.parse_args().trials
    found = {f"arms of {a:,} and {b} sessions": [arms((a, b), seed) for seed in range(trials)] for a, b in ARMS}
    found |= {f"AUC, {n} of {PAIRS} relevant": [aucs(n, seed) for seed in range(trials)] for n in POSITIVES}
    rows = []
    for name, several in found.items():
        known = [(low, high) for _, low, high, _ in several if low is not None and high is not None]
        outside = np.mean([not low <= 0 <= high for low, high in known]) if known else None
        shares = {
            "p": np.mean([one[0] <= LEVEL for one in several]),
            "signs": np.mean([one[3] <= LEVEL for one in several]),
        }
        rows.append(
            {"data": name}
            | {key: float(one) for key, one in shares.items()}
            | {"outside": outside, "intervals": len(known)}
        )
    shown = [
        [
            one["data"],
            f"{one['p']:.3f}",
            f"{one['signs']:.3f}",
            "–" if one["outside"] is None else f"{one['outside']:.3f}",
            one["intervals"],
        ]
        for one in rows
    ]
    text = "\n\n".join(
        [
            "# How often no difference is called one",
            f"{machine()}. {trials:,} trials of each; .050 is right.",
            markdown_table(
                ["data", f"p ≤ {LEVEL}", "by signs", "interval without 0", "trials with an interval"], shown
            ),
        ]
    )
    write("false_differences", text, {"machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
