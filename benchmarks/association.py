"""Query association: against a loop over all pairs, and over made-up logs of up to five million queries.

    python -m benchmarks.association [--sizes 10000 100000 1000000 5000000]

Each size runs in a process of its own (`--measure FOLDER`), as the stage does: from Parquet tables to Parquet parts,
with DuckDB's memory held to the stage's limit. Writes benchmarks/results/association.md and association.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks import zipfian_log
from benchmarks.algorithm_1 import Scores, associations
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.mine.association.algorithm import Associations
from darklode.pipeline.mine.association.stage import ASSOCIATE, associate
from darklode.schemas.mining import AssociateSettings

LOOPED = 2_000
SIZES = [10_000, 100_000, 1_000_000, 5_000_000]
SETTINGS = AssociateSettings()


def against_a_loop() -> dict[str, Any]:
    """The same 2,000 queries by Algorithm 1 pair by pair and by joins: seconds of each, and whether they agree."""
    queries, terms = zipfian_log.log(LOOPED)
    planned: dict[str, Scores] = defaultdict(dict)
    columns = (terms[name].to_pylist() for name in ("query_id", "term", "importance"))
    for query, term, importance in zip(*columns, strict=True):
        planned[query][term] = np.float32(importance)  # type: ignore[index]
    began = time.perf_counter()
    looped = associations(planned, SETTINGS.th_click, SETTINGS.th_rel)
    loop = time.perf_counter() - began
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        with duckdb.connect() as connection:
            connection.register("log_queries", queries)
            connection.register("query_terms", terms)
            every = Associations(connection, SETTINGS.model_copy(update={"max_lenders": 0, "rule": "paper"})).rows()
            pieces = [piece for _, piece in every]
        seconds.append(time.perf_counter() - began)
    rows = [row for piece in pieces for row in piece.to_pylist()]
    joined = {
        (r["query_id"], r["associated_query_id"], r["kind"]): (tuple(r["terms"]), np.float32(r["score"])) for r in rows
    }
    joins = float(np.median(seconds))
    return {"loop": loop, "joins": joins, "associations": len(looped), "identical": joined == looped}


def measure(folder: Path) -> dict[str, Any]:
    """The stage on a folder's tables: all dates in one run; then the last date again, alone."""
    run = Run(str(folder / "run"))
    found: dict[str, Any] = {}
    with Spill() as spill:
        began = time.perf_counter()
        manifest = run.execute(run.plan(ASSOCIATE, {}), lambda tables, output: associate(tables, output, SETTINGS))
        found["seconds"] = time.perf_counter() - began
    found["spilled"] = spill.most
    found["associations"] = manifest.rows("associations")
    found["cut"] = manifest.funnel[1].dropped.get("more than associate.max_lenders per key", 0)
    found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    last = zipfian_log.FIRST.replace(day=zipfian_log.DAYS)
    with run.tables("log_queries", "query_terms").connect() as connection:
        began = time.perf_counter()
        found["night_associations"] = sum(rows.num_rows for _, rows in Associations(connection, SETTINGS, last).rows())
        found["night"] = time.perf_counter() - began
    return found


class Spill(threading.Thread):
    """Watches the temporary folders that DuckDB spills to: `most` bytes at once."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self._over = threading.Event()

    def __enter__(self) -> Spill:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.2):
            with suppress(OSError):  # a folder may go while it is looked at
                files = Path(tempfile.gettempdir()).glob("darklode-duckdb-*/*")
                self.most = max(self.most, sum(file.stat().st_size for file in files))


def given(queries: int, folder: Path) -> None:
    """A run with the two tables of a made-up log."""
    zipfian_log.save(queries, folder)
    run = Run(str(folder / "run"))
    for name in ("log_queries", "query_terms"):
        _put(run, folder, name)


def _put(run: Run, folder: Path, name: str) -> None:
    stage = Stage(f"given_{name}", 1, (), (name,))
    run.execute(run.plan(stage, {}), lambda _tables, output: zipfian_log.parts(folder, name, output))


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--measure", type=Path, default=None)
    parser.add_argument("--make", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.make:
        given(arguments.make, arguments.measure)
        return
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    looped, sizes = against_a_loop(), {}
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory(prefix="darklode-association-") as folder:
            made = [sys.executable, "-m", "benchmarks.association", "--measure", folder]
            subprocess.run([*made, "--make", str(size)], check=True)
            alone = os.environ | {"TMPDIR": folder}  # what others spill meanwhile is not its own
            done = subprocess.run(made, check=True, stdout=subprocess.PIPE, text=True, env=alone)
        sizes[size] = json.loads(done.stdout.splitlines()[-1])
        print(size, sizes[size], flush=True)
    write("association", _markdown(looped, sizes), {"loop": looped, "sizes": sizes, "exponent": exponent(sizes)})


def exponent(sizes: dict[int, dict[str, Any]]) -> float:
    """b of seconds = a × queries ^ b, by least squares over the logarithms; sizes from 100,000 on, if there are two."""
    large = [size for size in sizes if size >= 100_000]
    used = large if len(large) > 1 else list(sizes)
    if len(used) < 2:
        return math.nan
    return float(np.polyfit(np.log(used), np.log([sizes[size]["seconds"] for size in used]), 1)[0])


def _markdown(looped: dict[str, Any], sizes: dict[int, dict[str, Any]]) -> str:
    rows = [
        [
            f"{size:,}",
            f"{one['seconds']:.1f}",
            f"{one['peak'] / 2**20:,.0f}",
            f"{one['spilled'] / 2**20:,.0f}",
            f"{one['associations']:,}",
            f"{one['cut']:,}",
            f"{one['night']:.1f}",
            f"{one['night_associations']:,}",
        ]
        for size, one in sizes.items()
    ]
    head = [
        "queries",
        "seconds",
        "peak MB",
        "spilled MB",
        "associations",
        "cut",
        "last date, seconds",
        "last date, associations",
    ]
    agree = "identical" if looped["identical"] else "NOT identical"
    return "\n\n".join(
        [
            "# Query association",
            f"{machine()}. th_click {SETTINGS.th_click}, th_rel {SETTINGS.th_rel}.",
            f"{LOOPED:,} queries, {looped['associations']:,} associations without a bound: Algorithm 1 over all pairs "
            f"{looped['loop']:.2f} s, by joins {looped['joins']:.3f} s (median of 5), {agree}: "
            f"{looped['loop'] / looped['joins']:.0f} times as fast.",
            f"The stage over {zipfian_log.DAYS} dates at once, at most {SETTINGS.max_lenders} lenders of a key, from "
            f"Parquet to Parquet; `cut`: associations past that bound. Seconds grow with queries ^ "
            f"{exponent(sizes):.2f} (from 100,000 on). The last columns: the last date alone, without writing.",
            markdown_table(head, rows),
            f"The logs: {' '.join((zipfian_log.__doc__ or '').split())} "
            f"HEAPS is {zipfian_log.HEAPS}; lengths 2 to 7 have the shares {zipfian_log.SHARES.tolist()}.",
        ]
    )


if __name__ == "__main__":
    main()
