"""Compare result lists of live queries before and after an adapter replaces the base encoder; needs no labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.retrieve.search import QUERY_BLOCK
from darklode.pipeline.serve.run_search import TenantIndex
from darklode.schemas.adaptation_tables import ENCODER_SWAP

ENCODER_SWAP_STAGE = Stage("encoder_swap", 2, (), (ENCODER_SWAP.name,))

DEPTH, MAX_TITLES = 10, 3
SORT_ORDER = [("overlap", "ascending"), ("searches", "descending"), ("query", "ascending")]


def swap(live: pa.Table, output: Output, *, index: TenantIndex, base: Factory, adapted: Factory) -> None:
    """Write both result lists of each query and their overlap; most changed and most frequent queries first.

    Args:
        live: query and number of searches (null: unknown).
        output: receives `encoder_swap`.
        index: the searched texts.
        base: the retriever before.
        adapted: the retriever after.
    """
    parts = []
    for start in range(0, live.num_rows, QUERY_BLOCK):
        block = live.slice(start, QUERY_BLOCK)
        parts.append(_compare_systems(block, index, base, adapted))
        output.progress(start + block.num_rows, live.num_rows)
    rows = pa.concat_tables([ENCODER_SWAP.empty(), *parts])
    output.write(ENCODER_SWAP.name, rows.sort_by(SORT_ORDER))
    output.count(FunnelStep("encoder_swap", "queries", live.num_rows, "queries", rows.num_rows))


def _compare_systems(live: pa.Table, index: TenantIndex, base: Factory, adapted: Factory) -> pa.Table:
    queries, n = live["query"].to_pylist(), live.num_rows
    rankings = index.top({"base": base, "adapted": adapted}, queries, DEPTH)
    lists = {name: _lists(rankings.filter(pc.equal(rankings["system"], name)), n) for name in ("base", "adapted")}
    overlaps = [
        len(set(result_ids) & set(other))
        for result_ids, other in zip(*(result_ids.to_pylist() for result_ids in lists.values()), strict=True)
    ]
    return ENCODER_SWAP.rows(
        {
            "tenant": pa.repeat(index.tenant, n),
            "query": live["query"],
            "searches": live["searches"],
            "overlap": pa.array(overlaps, pa.int32()),
            "base_ids": lists["base"],
            "adapted_ids": lists["adapted"],
            **{f"{name}_titles": _titles(index, ids) for name, ids in lists.items()},
        }
    )


def _lists(rankings: pa.Table, queries: int) -> pa.ListArray:
    """A list of text_ids per query, from rows sorted by query and rank."""
    counts = np.bincount(rankings["query"].to_numpy(), minlength=queries)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, rankings["text_id"].combine_chunks())


def _titles(index: TenantIndex, lists: pa.ListArray) -> pa.ListArray:
    """Titles of the listed texts, or their doc_ids."""
    texts = index.texts_by_id(pc.unique(lists.values).to_pylist())
    titles = pa.array(
        [texts[text_id]["title"] or texts[text_id]["doc_id"] for text_id in lists.values.to_pylist()], pa.string()
    )
    return pa.ListArray.from_arrays(lists.offsets, titles)


def distribution(rows: pa.Table) -> pa.Table:
    """Number of queries and searches by overlap of the first ten."""
    counted = rows.group_by("overlap").aggregate([("query", "count"), ("searches", "sum")]).sort_by("overlap")
    return counted.rename_columns(["overlap", "queries", "searches"])


def sentence(rows: pa.Table) -> str:
    """One-sentence summary."""
    n = rows.num_rows
    changed = pc.sum(pc.less(rows["overlap"], DEPTH)).as_py() or 0
    mean = pc.mean(rows["overlap"]).as_py() if n else 0
    return f"{n:,} queries: the first ten change for {changed:,}; {mean:.1f} of 10 stay on average."


def most_changed(rows: pa.Table, queries: int) -> pa.Table:
    """The most changed queries, with at most three titles that leave and enter the first ten."""
    changed = rows.filter(pc.less(rows["overlap"], DEPTH)).slice(0, queries).to_pylist()
    lines = [
        {name: row[name] for name in ("query", "searches", "overlap")}
        | {"goes": _only_in(row, "base", "adapted"), "comes": _only_in(row, "adapted", "base")}
        for row in changed
    ]
    return pa.Table.from_pylist(lines, CHANGES_SCHEMA)


def _only_in(row: Mapping[str, Any], system: str, other: str) -> str:
    ids_and_titles = zip(row[f"{system}_ids"], row[f"{system}_titles"], strict=True)
    titles = [title for text_id, title in ids_and_titles if text_id not in row[f"{other}_ids"]]
    return "; ".join(dict.fromkeys(titles[:MAX_TITLES])) or "nothing"


CHANGES_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("searches", pa.int64()),
        ("overlap", pa.int32()),
        ("goes", pa.string()),
        ("comes", pa.string()),
    ]
)
