"""Merging the ledger's small parts, safe beside readers, writers, other mergers, and a kill at any point.

A merged part is whole before the parts it was made of are deleted. Whoever sees both sees some verdicts twice, with
the same precedence, so that nothing changes; whoever misses a deleted part looks again and finds the merged one.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipeline.artifacts.store import Store
from pipeline.judges.levels import Level
from pipeline.judges.verdict_parts import ENDING, PART, Damaged, VerdictPart, encode, pair_keys, precedence

LARGE_BYTES = 8 << 20
"""A part of this size is left alone: several hundred thousand verdicts without a rationale."""


def compact(store: Store, folder: str, judge_id: str) -> int:
    """Merge small parts into large ones; returns how many parts fewer there are.

    Of several verdicts on one pair only the one that stands is kept. Damaged parts are left where they are.
    """
    fewer = 0
    for names in _groups(store.sizes(folder)):
        tables = {name: rows for name in names if (rows := _rows(store, name, judge_id)) is not None}
        if len(tables) < 2:
            continue
        merged = encode(_standing(pa.concat_tables(tables.values())), judge_id)
        store.write(f"{folder}/{time.time_ns():020d}-{uuid.uuid4().hex}{ENDING}", merged)
        for name in tables:
            store.delete(name)
        fewer += len(tables) - 1
    return fewer


def small_parts(sizes: dict[str, int]) -> list[str]:
    """Names of the parts that are worth merging, the oldest first, of a folder's files and their sizes."""
    return sorted(name for name, size in sizes.items() if name.endswith(ENDING) and size < LARGE_BYTES)


def _groups(sizes: dict[str, int]) -> Iterator[list[str]]:
    """Names of small parts by as many as make a large one."""
    names: list[str] = []
    total = 0
    for name in small_parts(sizes):
        names.append(name)
        total += sizes[name]
        if total >= LARGE_BYTES:
            yield names
            names, total = [], 0
    yield names


def _rows(store: Store, name: str, judge_id: str) -> pa.Table | None:
    """A part's rows; None where it is gone or damaged."""
    try:
        part = VerdictPart(store, name, judge_id)
        part.basis()
        return part.read(PART.names)
    except (FileNotFoundError, Damaged):
        return None


def _standing(rows: pa.Table) -> pa.Table:
    """The verdicts that stand, a query's together."""
    level = Level.of(pair_keys(rows), precedence(rows), np.arange(len(rows)))
    return rows.take(pa.array(np.sort(level.places))).sort_by(
        [("query_hash", "ascending"), ("chunk_hash", "ascending")]
    )
