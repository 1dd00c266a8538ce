"""Batches of triplets read from Parquet part by part: one part and the pending batches are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.artifacts.stage import Part
from darklode.pipeline.base.types import Ints
from darklode.schemas.tower_tables import TOWER_TRIPLETS

N_BUFFERED = 4
"""Batches whose rows are kept, because the trainer prefetches one."""


class TripletStream:
    """Batches of triplets; parts and the rows within a part are shuffled in each pass.

    Each kept row has a slot from 0 to `slots` − 1, by which it is addressed; slots are reused by later batches.

    Args:
        tables: `tower_triplets`.
        batch: rows per batch, at most the number of rows.
        seed: of the order.
    """

    def __init__(self, tables: Tables, batch: int, seed: int) -> None:
        self._tables, self._seed = tables, seed
        self._parts = _mix_parts(tables)
        self.size = min(batch, tables.rows(TOWER_TRIPLETS.name))
        self.slots = N_BUFFERED * self.size
        self._buffer: list[pa.Table | None] = [None] * N_BUFFERED
        self._next, self._skipped, self._batches = 0, 0, self._cut()

    def skip(self, batches: int) -> None:
        """Skip batches that were read before a restart; parts without a needed row are not opened."""
        self._skipped = batches * self.size

    def next(self) -> Ints:
        """The slots of the next batch."""
        slot = self._next % N_BUFFERED
        self._buffer[slot] = next(self._batches)
        self._next += 1
        return np.arange(slot * self.size, (slot + 1) * self.size)

    def rows(self, slots: Sequence[int]) -> pa.Table:
        """The rows of some slots of one batch, in order."""
        batch = self._buffer[slots[0] // self.size]
        assert batch is not None
        return batch.take(pa.array([slot % self.size for slot in slots]))

    def _cut(self) -> Iterator[pa.Table]:
        waiting = TOWER_TRIPLETS.empty()
        for rows in self._passes():
            waiting = pa.concat_tables([waiting, rows])
            while waiting.num_rows >= self.size:
                yield waiting.slice(0, self.size).combine_chunks()
                waiting = waiting.slice(self.size)

    def _passes(self) -> Iterator[pa.Table]:
        turn = 0
        while True:
            draws = np.random.default_rng([self._seed, turn])
            for number in draws.permutation(len(self._parts)) if turn else range(len(self._parts)):
                order = draws.permutation(self._parts[number].rows)
                remaining_order, self._skipped = order[self._skipped :], max(0, self._skipped - len(order))
                if len(remaining_order):
                    yield self._tables.part(self._parts[number]).take(pa.array(remaining_order))
            turn += 1


def _mix_parts(tables: Tables) -> list[Part]:
    """The parts with those of several runs interleaved evenly; rows within a run are in random order already."""
    parts = [part for part in tables.parts(TOWER_TRIPLETS.name) if part.rows]
    runs = [tables.footer(part).row_group(0).column(1).statistics.min for part in parts]
    spread = {run: np.linspace(0, 1, runs.count(run), endpoint=False) for run in set(runs)}
    n_seen, keyed = dict.fromkeys(spread, 0), list[tuple[float, int, int, Part]]()
    for part, run in zip(parts, runs, strict=True):
        keyed.append((float(spread[run][n_seen[run]]), run, len(keyed), part))
        n_seen[run] += 1
    return [part for *_, part in sorted(keyed, key=lambda entry: entry[:3])]


def allowed_pairs(rows: pa.Table) -> NDArray[np.bool_]:
    """Which positives of a batch count for which query, shape (n, n): its own, and texts that are not its answers.

    Two rows of one query, of one document, or of copies of it are therefore never treated as negatives of each other.

    Args:
        rows: of `tower_triplets`.
    """
    names = pa.chunked_array(
        [*rows["key"].chunks, *(answer_lists.flatten() for answer_lists in rows["answers"].chunks)]
    )
    numbers = names.combine_chunks().dictionary_encode().indices.to_numpy()
    keys, answers = numbers[: rows.num_rows], numbers[rows.num_rows :]
    lengths: Any = rows["answers"].combine_chunks().value_lengths().to_numpy()
    query = np.repeat(np.arange(rows.num_rows), lengths)
    answered = np.zeros((rows.num_rows, int(numbers.max()) + 1), bool)
    answered[query, answers] = True
    counts = ~answered[:, keys]
    np.fill_diagonal(counts, val=True)
    return counts
