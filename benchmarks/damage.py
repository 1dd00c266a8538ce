"""What it costs to notice damage: checking a table's files when a stage is planned, reading all, page checksums.

    python -m benchmarks.damage [--days 1000] [--rows 4000] [--rounds 5]

A table of one part a day. Writes benchmarks/results/damage.md and damage.json.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.artifacts.parquet_writer import encode
from darklode.pipeline.base.artifacts.verify import verify
from darklode.schemas.tables import QRELS

STAGE = Stage("label", 1, (), (QRELS.name,))


@dataclass(frozen=True)
class Cost:
    """A median.

    Attributes:
        what: was done.
        seconds: of the processor, user and system.
    """

    what: str
    seconds: float


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--days", type=int, default=1000)
    given.add_argument("--rows", type=int, default=4000)
    given.add_argument("--rounds", type=int, default=5)
    options = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder)
        day = rows(options.rows)
        run.execute(run.plan(STAGE, {}), lambda _, output: fill(output, day, options.days))
        size = sum(part.size for part in run.parts()[QRELS.name])
        costs = [*planning(run, options.rounds), *encoding(day, options.rounds)]
    table = markdown_table(["", "seconds of the processor"], [[cost.what, f"{cost.seconds:.3f}"] for cost in costs])
    head = f"{machine()}; medians of {options.rounds}. {options.days:,} parts, {size / 1e6:,.0f} MB."
    figures = {"machine": machine(), "bytes": size, "costs": [asdict(cost) for cost in costs]}
    write("damage", f"# What it costs to notice damage\n\n{head}\n\n{table}", figures)


def rows(count: int) -> pa.Table:
    """Labels of made ids, which compress about as well as real ones."""
    draw = np.random.default_rng(7)
    ids = [f"handbook/page-{number:06d}.md#{number % 7}" for number in draw.integers(1_000_000, size=count)]
    named = {
        "tenant": ["default"] * count,
        "query_id": [f"q{number:08x}" for number in draw.integers(1 << 31, size=count)],
    }
    return QRELS.rows(named | {"chunk_id": ids, "relevance": draw.integers(2, size=count), "source": ["judge"] * count})


def fill(output: Output, day: pa.Table, days: int) -> None:
    """Write a part for each day; no two are alike."""
    place = day.schema.get_field_index("tenant")
    for number in range(days):
        tenants = pa.array([f"tenant {number}"] * day.num_rows, pa.string())
        output.write(QRELS.name, day.set_column(place, day.schema.field(place), tenants))


def planning(run: Run, rounds: int) -> list[Cost]:
    """Looking at all files, each way."""
    stamps = Path(run.store.url) / "verified"

    def forgotten() -> None:
        shutil.rmtree(stamps, ignore_errors=True)
        Run(run.store.url).plan(STAGE, {})

    def sizes_alone() -> None:
        sizes = run.store.sizes(f"tables/{QRELS.name}", recursive=True)
        assert all(sizes[part.file] == part.size for part in run.parts()[QRELS.name])

    def read(tables: Tables) -> None:
        tables.sql("SELECT count(*), sum(relevance) FROM qrels")

    return [
        median("plan, comparing sizes alone (as before)", sizes_alone, rounds),
        median("plan, nothing known yet: every sha256", forgotten, rounds),
        median("plan, by stamps", lambda: Run(run.store.url).plan(STAGE, {}), rounds),
        median("a query over all parts, by stamps", lambda: read(Run(run.store.url).tables(QRELS.name)), rounds),
        median("darklode verify: everything read", lambda: list(verify(run)), rounds),
    ]


def encoding(day: pa.Table, rounds: int) -> list[Cost]:
    """Writing a part a hundred times, without page checksums and with them."""

    def bare() -> None:
        for _ in range(100):
            pq.write_table(day, pa.BufferOutputStream(), compression="zstd", row_group_size=1 << 16)

    return [
        median("encoding 100 parts without page checksums", bare, rounds),
        median("encoding 100 parts with them", lambda: [encode(day) for _ in range(100)], rounds),
    ]


def median(what: str, act: Callable[[], object], rounds: int) -> Cost:
    """Seconds of the processor, which other programs disturb less than a clock."""
    taken = []
    for _ in range(rounds):
        before = time.process_time()
        act()
        taken.append(time.process_time() - before)
    return Cost(what, statistics.median(taken))


if __name__ == "__main__":
    main()
