"""What changes for live queries when the base makes way for an adapter: nobody has to label anything for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage
from darklode.pipeline.base.card import cell, markdown
from darklode.pipeline.retrieve.retrievers.port import Factory
from darklode.pipeline.retrieve.search import QUERY_BLOCK
from darklode.pipeline.serve.index import Index
from darklode.schemas.adaptation_tables import SWAP

SWAP_STAGE = Stage("swap", 1, (), (SWAP.name,))

DEPTH = 10
LISTED = 50
"""Queries of the page."""

PAGE = "swap.md"

ORDER = [("overlap", "ascending"), ("searches", "descending"), ("query", "ascending")]


@dataclass(frozen=True)
class Swapped:
    """What was found.

    Attributes:
        rows: of `swap`.
        index: where, for titles.
        page: where the page is.
    """

    rows: pa.Table
    index: Index
    page: str


def swap(live: pa.Table, output: Output, *, index: Index, base: Factory, adapted: Factory) -> None:
    """Write both lists of each query and how much they share, the most changed first, often asked ones before others.

    Args:
        live: query and searches (null: not known).
        output: takes `swap`.
        index: that is searched.
        base: before.
        adapted: after.
    """
    parts = []
    for start in range(0, live.num_rows, QUERY_BLOCK):
        block = live.slice(start, QUERY_BLOCK)
        parts.append(_compared(block, index, base, adapted))
        output.progress(start + block.num_rows, live.num_rows)
    rows = pa.concat_tables([SWAP.empty(), *parts])
    output.write(SWAP.name, rows.sort_by(ORDER))
    output.count(FunnelStep("swap", "queries", live.num_rows, "queries", rows.num_rows))


def _compared(live: pa.Table, index: Index, base: Factory, adapted: Factory) -> pa.Table:
    queries, n = live["query"].to_pylist(), live.num_rows
    found = index.top({"base": base, "adapted": adapted}, queries, DEPTH)
    lists = {name: _lists(found.filter(pc.equal(found["system"], name)), n) for name in ("base", "adapted")}
    both = [len(set(one) & set(other)) for one, other in zip(*(one.to_pylist() for one in lists.values()), strict=True)]
    return SWAP.rows(
        {
            "tenant": pa.repeat(index.tenant, n),
            "query": live["query"],
            "searches": live["searches"],
            "overlap": pa.array(both, pa.int32()),
            "base_ids": lists["base"],
            "adapted_ids": lists["adapted"],
        }
    )


def _lists(found: pa.Table, queries: int) -> pa.ListArray:
    """A list of text_ids for each query; rows come query by query, best first."""
    counts = np.bincount(found["query"].to_numpy(), minlength=queries)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, found["text_id"].combine_chunks())


def distribution(rows: pa.Table) -> pa.Table:
    """How many queries keep how many of their first ten; overlap, queries, searches."""
    counted = rows.group_by("overlap").aggregate([("query", "count"), ("searches", "sum")]).sort_by("overlap")
    return counted.rename_columns(["overlap", "queries", "searches"])


def sentence(rows: pa.Table) -> str:
    """The whole in a sentence."""
    n = rows.num_rows
    changed = pc.sum(pc.less(rows["overlap"], DEPTH)).as_py() or 0
    mean = pc.mean(rows["overlap"]).as_py() if n else 0
    return f"{n:,} queries: {changed:,} change a text of their first ten; {mean:.1f} of 10 stay on average."


def most(found: Swapped, queries: int) -> pa.Table:
    """The queries that change most, with what goes and what comes, by titles, each three at most."""
    rows = found.rows.filter(pc.less(found.rows["overlap"], DEPTH)).slice(0, queries).to_pylist()
    words = found.index.words(sorted({one for row in rows for one in row["base_ids"] + row["adapted_ids"]}))
    titles = {name: row["title"] or row["doc_id"] for name, row in words.items()}

    def named(ids: Sequence[str]) -> str:
        return "; ".join(dict.fromkeys(titles[one] for one in ids)) or "nothing"

    said = [
        {
            "query": row["query"],
            "searches": row["searches"],
            "overlap": row["overlap"],
            "goes": named([one for one in row["base_ids"] if one not in row["adapted_ids"]][:3]),
            "comes": named([one for one in row["adapted_ids"] if one not in row["base_ids"]][:3]),
        }
        for row in rows
    ]
    return pa.Table.from_pylist(said, CHANGES)


CHANGES = pa.schema(
    [
        ("query", pa.string()),
        ("searches", pa.int64()),
        ("overlap", pa.int32()),
        ("goes", pa.string()),
        ("comes", pa.string()),
    ]
)


def page(found: Swapped, adapter: str) -> bytes:
    """The same as Markdown, with the queries that change most."""
    parts = [
        f"# What {cell(adapter)} changes",
        f"Of {cell(found.index.source.run.store.url)}, tenant {cell(found.index.tenant)}: {sentence(found.rows)}",
        "Overlap is how many of the base's first ten texts are among the adapted encoder's. It says what changes, not "
        "what gets better: read both lists.",
        "## How much stays",
        markdown(distribution(found.rows)),
        "## Queries that change most",
        markdown(most(found, LISTED)),
    ]
    return ("\n\n".join(parts) + "\n").encode()
