"""Exact search on one GPU, its vectors already there: against the card's peak, and against torch and faiss.

Usage: python -m benchmarks.gpu_pooling [--chunks 1000000 10000000] [--repeats 5]
Needs a CUDA GPU with 24 GB or more for ten million. Writes benchmarks/results/gpu_pooling.md and gpu_pooling.json.
"""

import argparse
import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.retrieve.retrievers.blocks import ArrayVectors
from darklode.pipeline.retrieve.retrievers.exact import search_cpu
from darklode.pipeline.retrieve.retrievers.torch_search import DeviceTopK, full_accumulation

DIMENSIONS = 1024
QUERIES = 1024
DEPTH = 420
BLOCK = 1 << 16
CHECKED_QUERIES = 16
CHECKED_BLOCKS = 16
SCORING_BYTES = 2 << 30

PEAKS = {"H100": (989, 3350), "H200": (989, 4800), "A100": (312, 2039), "L40S": (362, 864), "L4": (121, 300)}
"""Dense bf16 TFLOP/s and GB/s from NVIDIA's data sheets (SXM or 80 GB models)."""

Blocks = list[torch.Tensor]


def made(n: int) -> Blocks:
    """Random unit vectors in bf16 on the GPU, block by block."""
    generator = torch.Generator(device="cuda").manual_seed(1)
    blocks = []
    for start in range(0, n, BLOCK):
        block = torch.randn(min(BLOCK, n - start), DIMENSIONS, device="cuda", generator=generator)
        blocks.append(torch.nn.functional.normalize(block, dim=1).bfloat16())
    return blocks


def darklode(queries: torch.Tensor, blocks: Blocks) -> Any:
    """The exact answer, as `search_torch` makes it once a block is on the GPU."""
    best = DeviceTopK(queries, DEPTH, 1.01, SCORING_BYTES)
    with torch.inference_mode(), full_accumulation():
        first = 0
        for block in blocks:
            best.update(block, torch.arange(first, first + len(block), device="cuda"))
            first += len(block)
    return best.best()


def plain(queries: torch.Tensor, blocks: Blocks) -> Any:
    """torch's product and top-k block by block, merged; its ranking is that of bf16 products."""
    half, values, rows, first = queries.bfloat16(), None, None, 0
    for block in blocks:
        found = (half @ block.T).topk(min(DEPTH, len(block)), dim=1)
        here = found.indices + first
        values = found.values if values is None else torch.cat([values, found.values], dim=1)
        rows = here if rows is None else torch.cat([rows, here], dim=1)
        chosen = values.topk(min(DEPTH, values.shape[1]), dim=1)
        values, rows, first = chosen.values, rows.gather(1, chosen.indices), first + len(block)
    return rows


def product(queries: torch.Tensor, blocks: Blocks) -> Any:
    """The products alone."""
    half, last = queries.bfloat16(), None
    for block in blocks:
        last = half @ block.T
    return last


def timed(work: Callable[[torch.Tensor, Blocks], Any], queries: torch.Tensor, blocks: Blocks) -> float:
    """Seconds until the GPU is done."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    work(queries, blocks)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def faiss_seconds(queries: torch.Tensor, blocks: Blocks, repeats: int) -> float | None:
    """Seconds of faiss's flat index on the GPU, or None where faiss-gpu is not installed or the vectors do not fit."""
    if importlib.util.find_spec("faiss") is None:
        return None
    faiss: Any = importlib.import_module("faiss")
    if not hasattr(faiss, "StandardGpuResources") or len(blocks) * BLOCK > 2_000_000:
        return None
    index = faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), DIMENSIONS)
    for block in blocks:
        index.add(block.float().cpu().numpy())
    given = queries.cpu().numpy()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        index.search(given, DEPTH)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def agreement(queries: torch.Tensor, blocks: Blocks) -> float:
    """Share of the CPU's list, over the first million vectors, that the GPU gives at the same rank and score."""
    some, part = queries[:CHECKED_QUERIES], blocks[:CHECKED_BLOCKS]
    scores, rows = darklode(some, part)
    vectors = ArrayVectors(np.concatenate([block.float().cpu().numpy() for block in part]))
    true_scores, true_rows = search_cpu(some.cpu().numpy(), vectors, DEPTH, 1 << 30)
    return float(((rows == true_rows) & (scores == true_scores)).mean())


def measure(n: int, repeats: int) -> dict[str, Any]:
    """One size; the contestants take turns after one warm-up each."""
    blocks = made(n)
    generator = torch.Generator(device="cuda").manual_seed(2)
    queries = torch.nn.functional.normalize(torch.randn(QUERIES, DIMENSIONS, device="cuda", generator=generator), dim=1)
    works = {"Darklode": darklode, "torch": plain, "product": product}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            taken = timed(work, queries, blocks)
            if turn:
                seconds[name].append(taken)
    medians: dict[str, float | None] = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "chunks": n,
        "seconds": medians | {"faiss": faiss_seconds(queries, blocks, repeats)},
        "peak GB": torch.cuda.max_memory_allocated() / 1e9,
        "agreement": agreement(queries, blocks),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("This machine has no GPU that torch can use; benchmarks.gpu_pooling needs one.")
    rows = [measure(n, arguments.repeats) for n in arguments.chunks]
    write("gpu_pooling", _markdown(rows), {"card": torch.cuda.get_device_name(), "rows": rows})


def _markdown(rows: Sequence[dict[str, Any]]) -> str:
    card = torch.cuda.get_device_name()
    peak = next((peak for name, peak in PEAKS.items() if name in card), None)
    cells = []
    for row in rows:
        took = row["seconds"]
        tera = 2 * row["chunks"] * QUERIES * DIMENSIONS / took["Darklode"] / 1e12
        giga = 2 * row["chunks"] * DIMENSIONS / took["Darklode"] / 1e9
        others = [
            f"{took[name] / took['Darklode']:.2f}" if took[name] else "–" for name in ("torch", "faiss", "product")
        ]
        shares = [f"{tera / peak[0]:.0%}", f"{giga / peak[1]:.0%}"] if peak else ["–", "–"]
        speed = [f"{took['Darklode']:.4f}", f"{tera:.0f}", f"{giga:.0f}", *shares]
        cells.append([row["chunks"], *speed, *others, f"{row['peak GB']:.1f}", f"{row['agreement']:.4f}"])
    head = ["chunks", "s", "TFLOP/s", "GB/s", "of peak FLOP/s", "of peak GB/s"]
    head += ["× torch", "× faiss", "× product alone", "peak GB", "agreement with the CPU"]
    return "\n\n".join(
        [
            "# Exact search on the GPU",
            f"{machine()}, {card}, torch {torch.__version__}. {DIMENSIONS} dimensions in bf16 on the GPU, "
            f"{QUERIES} queries, top {DEPTH}, medians.",
            "A ratio is the other's time over Darklode's. torch's own ranking is that of rounded products, Darklode's "
            "that of float64 sums; vectors are read from the GPU's memory once.",
            markdown_table(head, cells),
        ]
    )


if __name__ == "__main__":
    main()
