"""Triplets written as they come: peak memory and the sizes of files at some sizes.

    python -m benchmarks.packing [--rows 100000 3000000]

Each triplet has a query, a positive and two negatives of random letters, which zstd can do little with.
A process a size. Writes benchmarks/results/packing.md and packing.json.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.report import machine, markdown_table, write
from benchmarks.scaling import Point, once, watched
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.schemas.tables import TRIPLETS

BLOCK, LETTERS = 4096, 48
STAGE = Stage("packing", 1, (), ("triplets",))


def blocks(rows: int) -> Iterator[pa.Table]:
    """Triplets of random texts."""
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        drawn = np.random.default_rng(start).integers(97, 123, count * LETTERS * 4, np.uint8).tobytes()
        offsets = pa.py_buffer(np.arange(4 * count + 1, dtype=np.int32) * LETTERS)
        texts = pa.StringArray.from_buffers(4 * count, offsets, pa.py_buffer(drawn))
        query, positive, negatives = texts[:count], texts[count : 2 * count], texts[2 * count :]
        pairs = pa.array(np.arange(count + 1, dtype=np.int32) * 2)
        lists = {"negative_ids": negatives, "negatives": negatives, "negative_scores": pa.array(np.zeros(2 * count))}
        columns = {name: pa.ListArray.from_arrays(pairs, values) for name, values in lists.items()}
        columns["negative_scores"] = columns["negative_scores"].cast(TRIPLETS.schema.field("negative_scores").type)
        ids = dict.fromkeys(("triplet_id", "query_id", "query"), query)
        same = {
            name: pa.repeat(value, count) for name, value in (("tenant", "t"), ("source", "pooled"), ("split", "train"))
        }
        yield TRIPLETS.rows(columns | ids | same | {"positive_id": positive, "positive": positive})


def packed(rows: int) -> Point:
    """Write so many."""

    def work(_tables: Tables, output: Output) -> None:
        with output.packed_writer("triplets", "train") as take:
            for block in blocks(rows):
                take(block, "train")

    with tempfile.TemporaryDirectory() as folder:
        run = Run(str(Path(folder) / "run"))
        with watched({}) as point:
            manifest = run.execute(run.plan(STAGE, {}), work)
    sizes = [part.size / 1e6 for part in manifest.outputs["triplets"]]
    return point | {"files": float(len(sizes)), "largest": max(sizes), "gigabytes": sum(sizes) / 1e3}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 3_000_000])
    found = {rows: once(packed, rows) for rows in parser.parse_args().rows}
    head = ("triplets", "GB written", "files", "largest, MB", "peak MB beyond the start", "processor s")
    table = [
        (f"{rows:,}", f"{one['gigabytes']:.2f}", f"{one['files']:.0f}", f"{one['largest']:.1f}",
         f"{one['megabytes']:.0f}", f"{one['seconds']:.1f}")
        for rows, one in found.items()
    ]  # fmt: skip
    text = f"# Triplets written as they come\n\n{machine()}\n\n{markdown_table(head, table)}"
    write("packing", text, {str(rows): one for rows, one in found.items()})


if __name__ == "__main__":
    main()
