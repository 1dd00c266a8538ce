"""Whom adaptive judging serves: recall at half of the calls, by the positives of a query, and how that was chosen.

    python -m benchmarks.adaptive_queries [--collections FOLDER]

Writes benchmarks/results/adaptive_queries.md and adaptive_queries.json. Pools, positives and rounds are those of
benchmarks.adaptive, without a random slice. Collections list positives only, homedepot some low grades, too: what is
not listed counts as not relevant here. insuranceqa and homedepot (test queries; relevant from grade 2) took no part in
choosing anything.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.adaptive import Pool, calls, prepare
from benchmarks.collections_io import COLLECTIONS, LABELLED, read_collection
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.judge.adaptive import selection

UNSEEN = {"insuranceqa": 1, "homedepot": 2}
"""Least grade of a positive in the collections that took no part in the choice."""
CLASSES = {"1": (1, 1), "2 to 5": (2, 5), "more": (6, np.inf)}
GRID = [(1, 0.0), (3, 0.5), (8, 0.0), (8, 0.5), (20, 0.5)]
LIKELIEST, CHOSEN = (1, 0.0), (selection.ENOUGH, selection.FLOOR)
SHARE = 0.5
Figures = dict[str, float]


@contextmanager
def constants(enough: int, floor: float) -> Iterator[None]:
    """Let these be the constants of expected gain; 1 and 0 ask for the likeliest pairs, whichever query they have."""
    before = selection.ENOUGH, selection.FLOOR
    selection.ENOUGH, selection.FLOOR = enough, floor
    try:
        yield
    finally:
        selection.ENOUGH, selection.FLOOR = before


def half(found: Pool, enough: int, floor: float) -> Figures:
    """Recall after half of the calls."""
    with constants(enough, floor):
        return recalls(found, calls(found, 0.03, SHARE))


def in_fused_order(found: Pool) -> Figures:
    """Recall after half of the calls, each query's best fused ranks first, as deep for all queries."""
    order = np.argsort(found.evidence.fused_rank, kind="stable")
    return recalls(found, order[: round(SHARE * found.evidence.n_pairs)])


def recalls(found: Pool, asked: NDArray[np.int64]) -> Figures:
    """Recall over all positives, and the mean over queries: of all, and by the positives that the pool has of them."""
    query, n = found.evidence.query, found.evidence.n_queries
    total = np.bincount(query, found.positive, n)
    share = np.bincount(query[asked], found.positive[asked], n) / np.maximum(total, 1)
    own = {name: share[(total >= low) & (total <= high)] for name, (low, high) in CLASSES.items()}
    means = {name: float(shares.mean()) for name, shares in own.items() if len(shares)}
    return {"all": float(found.positive[asked].sum() / total.sum()), "query": float(share[total > 0].mean())} | means


def queries(found: Pool) -> str:
    """How many queries each class has."""
    total = np.bincount(found.evidence.query, found.positive, found.evidence.n_queries)
    return " / ".join(str(int(((total >= low) & (total <= high)).sum())) for low, high in CLASSES.values())


def behind(figures: Figures, fused: Figures) -> float:
    """How far the class that fares worst is behind fused order; 0 where none is."""
    return max(0.0, *(fused[name] - figures[name] for name in CLASSES if name in fused))


def best(tried: dict[str, dict[tuple[int, float], Figures]], fused: dict[str, Figures]) -> tuple[int, float]:
    """The constants under which no class is behind fused order, or least far, and then most positives are found."""

    def merit(one: tuple[int, float]) -> tuple[float, float]:
        late = max(behind(of[one], fused[name]) for name, of in tried.items())
        return -round(late, 3), float(np.mean([of[one]["all"] for of in tried.values()]))

    return max(GRID, key=merit)


def to_markdown(
    fused: dict[str, Figures], tried: dict[str, dict[tuple[int, float], Figures]], sizes: dict[str, str]
) -> str:
    """The tables of a report."""
    head = ["collection", "order", "all positives", "mean of queries", *(f"{name} positives" for name in CLASSES)]
    rows = [
        [name, order, *_cells(of), sizes[name] if order == "fused rank" else ""]
        for name in tried
        for order, of in (
            ("fused rank", fused[name]),
            ("likeliest", tried[name][LIKELIEST]),
            ("gain, floor", tried[name][CHOSEN]),
        )
    ]
    seen = {name: tried[name] for name in LABELLED}
    grid = [
        [
            str(enough),
            str(floor),
            *(f"{of[enough, floor]['all']:.3f}, {_late(of, enough, floor, fused[name])}" for name, of in seen.items()),
        ]
        for enough, floor in GRID
    ]
    left_out = [
        [
            name,
            *map(str, chosen := best({other: of for other, of in seen.items() if other != name}, fused)),
            *_cells(seen[name][chosen]),
            f"{behind(seen[name][chosen], fused[name]):.3f}",
        ]
        for name in LABELLED
    ]
    return "\n\n".join(
        [
            "# Adaptive judging, query by query",
            "Recall after half of the calls, in rounds of 3 %, no random slice. By the positives that the pool has of "
            "a query: the mean over such queries, whose numbers stand last. Closed world: what is not listed counts as "
            "not relevant. insuranceqa and homedepot took no part in the choice.",
            markdown_table([*head, "queries of each"], rows),
            "The choice: recall of all positives, and how far the worst class is behind fused order.",
            markdown_table(["enough", "floor", *seen], grid),
            "Chosen on the other three collections (no class behind fused order, or least far; then most positives):",
            markdown_table(["left out", "enough", "floor", *head[2:], "behind"], left_out),
        ]
    )


def _late(of: dict[tuple[int, float], Figures], enough: int, floor: float, fused: Figures) -> str:
    return f"{behind(of[enough, floor], fused):.3f}"


def _cells(figures: Figures) -> list[str]:
    return [f"{figures[name]:.3f}" if name in figures else "" for name in ("all", "query", *CLASSES)]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the collections")
    options = parser.parse_args()
    fused, tried, sizes = {}, {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in (*LABELLED, *UNSEEN):
            found = prepare(read_collection(name, options.collections, UNSEEN.get(name, 1)), Path(scratch))
            wanted = GRID if name in LABELLED else (LIKELIEST, CHOSEN)
            fused[name], sizes[name] = in_fused_order(found), queries(found)
            tried[name] = {one: half(found, *one) for one in wanted}
    figures = {
        name: {"fused": fused[name]} | {f"{enough}, {floor}": of for (enough, floor), of in tried[name].items()}
        for name in tried
    }
    write("adaptive_queries", f"{to_markdown(fused, tried, sizes)}\n\n{machine()}", figures)


if __name__ == "__main__":
    main()
