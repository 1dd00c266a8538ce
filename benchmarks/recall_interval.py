"""Whether the intervals of `darklode validate` hold the truth as often as they say.

    python -m benchmarks.recall_interval [--trials N]

Writes benchmarks/results/recall_interval.md and recall_interval.json. Each scenario is one made-up run whose labels are
all known; each trial draws a sample of it as `review_sample` does, labels it and estimates. The textbook's intervals
(bootstrap over queries, normal approximation, half a label of prior for every stratum) stand beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product

import numpy as np

from benchmarks.report import machine, markdown_table, write
from benchmarks.reviewed import SAMPLED, Reviewed, Scenario, make, normal_interval, review
from darklode.pipeline.base.bootstrap import ENDS
from darklode.pipeline.validate.estimates import LabelledStrata, bootstrap, estimate
from darklode.pipeline.validate.metrics import run_kappa

JUDGES = {"good": 0.15, "bad": 0.8, "blind": 0.15}
MISSES = {"rare": 0.97, "common": 0.75, "anywhere": 0.85}
CLUSTERING = {"weak": 0.3, "strong": 1.5}
BLIND = 0.1
"""Share of the positives to which the blind judge gives the score of any pair: its misses lie anywhere."""
SIZES = ((20, 200), (20, 400), (60, 400), (60, 1000), (200, 400), (200, 1000))
DRAWS, RESAMPLES = 1000, 200
_Ends = dict[str, tuple[float, float]]


def trial(run: Reviewed, scenario: Scenario, seed: int) -> tuple[float, _Ends]:
    """The estimate of recall, and each method's interval of its figure."""
    random = np.random.default_rng(seed)
    strata = review(run, scenario, random)
    found = estimate(strata, SAMPLED, random, DRAWS)
    kappa = run_kappa(strata, RESAMPLES, seed)
    ends = {
        "recall": (found.recall.low, found.recall.high),
        "precision": (found.precision.low, found.precision.high),
        "kappa": (kappa.low, kappa.high),
        "recall: bootstrap": _bootstrap(strata, seed),
        "recall: normal": normal_interval(strata),
        "recall: half a label a stratum": _unshared(strata, random),
    }
    return found.recall.value, ends


def _bootstrap(strata: LabelledStrata, seed: int) -> tuple[float, float]:
    n = len(strata.pairs)
    kept = strata.n_relevant / np.maximum(strata.n_labelled, 1)

    def recall(sums: np.ndarray) -> np.ndarray:
        share = np.where(sums[..., :n] > 0, sums[..., n:] / np.maximum(sums[..., :n], 1), kept)
        total = strata.pairs * share
        return np.asarray(total[..., strata.is_found].sum(axis=-1) / np.maximum(total.sum(axis=-1), 1e-9))

    figure = bootstrap(np.hstack([strata.labelled, strata.relevant]).astype(np.float64), recall, RESAMPLES, seed)
    return figure.low, figure.high


def _unshared(strata: LabelledStrata, random: np.random.Generator) -> tuple[float, float]:
    n, x = strata.n_labelled, strata.n_relevant
    shares = random.beta(x + 0.5, n - x + 0.5, size=(DRAWS, len(n)))
    total = x + random.binomial(strata.pairs - n, shares)
    low, high = np.percentile(total[:, strata.is_found].sum(axis=1) / total.sum(axis=1), ENDS)
    return float(low), float(high)


def measure(scenario: Scenario, trials: int) -> dict[str, object]:
    """How often the intervals hold the truth, over so many samples of one run."""
    run = make(scenario, seed=1)
    truth = {"recall": run.recall, "precision": run.precision, "kappa": run.kappa}
    results = [trial(run, scenario, seed) for seed in range(trials)]
    row: dict[str, object] = {**asdict(scenario), **{f"true {name}": value for name, value in truth.items()}}
    row["bias"] = float(np.mean([value for value, _ in results]) - run.recall)
    for name in results[0][1]:
        low, high = np.array([ends[name] for _, ends in results]).T
        of = truth[name.partition(":")[0]]
        row[name] = float(np.mean((low <= of + 1e-12) & (high >= of - 1e-12)))
        row[f"{name}, too high"] = float(np.mean(low > of + 1e-12))
        row[f"{name}, width"] = float(np.nanmedian(high - low))
    return row


def scenarios() -> Iterator[tuple[dict[str, object], Scenario]]:
    """What is measured, with the words for it: two of the judges at all sizes, the others at three."""
    for judge, misses, clustering in product(JUDGES, MISSES, CLUSTERING):
        blind = judge == "blind"
        if blind == (misses == "anywhere"):
            every = (judge, misses) in {("good", "rare"), ("bad", "common")}
            for queries, pairs in SIZES if every else SIZES[::2]:
                spread = CLUSTERING[clustering]
                chosen = Scenario(JUDGES[judge], MISSES[misses], spread, queries, pairs, BLIND if blind else 0.0)
                yield {"judge": judge, "misses": misses, "clustered": clustering}, chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    rows = []
    for names, scenario in scenarios():
        rows.append(names | measure(scenario, trials))
    write("recall_interval", _text(rows, trials), {"machine": machine(), "trials": trials, "scenarios": rows})


def _text(rows: list[dict[str, object]], trials: int) -> str:
    columns = ["judge", "misses", "clustered", "queries", "pairs"]
    figures = ["true recall", "bias", "recall", "recall, width", "precision", "kappa", "recall: bootstrap"]
    figures += ["recall: normal", "recall: half a label a stratum"]
    shown = [[*[row[name] for name in columns], *[f"{row[name]:.3f}" for name in figures]] for row in rows]
    methods = ["recall", "precision", "kappa", *figures[-3:]]
    held = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in methods}
    summary = [[name, f"{of.mean():.3f}", f"{of.min():.3f}", f"{of.max():.3f}"] for name, of in held.items()]
    return "\n\n".join(
        [
            "# How often 95 % intervals hold the truth",
            f"{machine()}. {trials:,} samples of each run; a coverage of 95 % is known to ± 1.4 points.",
            markdown_table(["interval", "mean coverage", "least", "most"], summary),
            markdown_table([*columns, *figures], shown),
        ]
    )


if __name__ == "__main__":
    main()
