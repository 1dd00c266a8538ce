"""Reads batches of triplets from Parquet, part by part: only one part and the buffered batches are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.artifacts.stage import Part
from darklode.pipeline.base.types import Floats, Ints
from darklode.schemas.tower_tables import TOWER_TRIPLETS

MEAN_WEIGHT_SQL = "SELECT avg(weight) AS mean FROM tower_triplets"

N_BUFFERED = 4
"""Batches whose rows stay addressable by slot; more than one, because the trainer prefetches one."""


class TripletStream:
    """An endless stream of batches of triplets; each pass shuffles the parts and the rows within a part.

    The rows of the last `N_BUFFERED` batches are addressed by slots, numbers from 0 to `slots` − 1; later batches reuse
    them.

    Attributes:
        size: rows per batch.
        slots: number of slots.

    Args:
        tables: has `tower_triplets`.
        batch: rows per batch; reduced to the number of rows if there are fewer.
        seed: seed of the order.
    """

    def __init__(self, tables: Tables, batch: int, seed: int) -> None:
        self._tables = tables
        self._seed = seed
        self._parts = _mix_parts(tables)
        self.size = min(batch, tables.rows(TOWER_TRIPLETS.name))
        self.slots = N_BUFFERED * self.size
        self._buffer: list[pa.Table | None] = [None] * N_BUFFERED
        self._n_read = 0
        self._rows_to_skip = 0
        self._mean_weight = float(tables.sql(MEAN_WEIGHT_SQL)["mean"][0].as_py())
        self._batches = self._iterate_batches()

    def skip(self, batches: int) -> None:
        """Skip batches that were read before a restart; parts without a needed row are not opened."""
        self._rows_to_skip = batches * self.size

    def next(self) -> Ints:
        """Read the next batch and return its slots, shape (size,)."""
        buffer_index = self._n_read % N_BUFFERED
        self._buffer[buffer_index] = next(self._batches)
        self._n_read += 1
        return np.arange(buffer_index * self.size, (buffer_index + 1) * self.size)

    def rows(self, slots: Sequence[int]) -> pa.Table:
        """Return the rows at some slots, in their order; all slots must belong to one batch."""
        batch = self._buffer[slots[0] // self.size]
        assert batch is not None
        return batch.take(pa.array([slot % self.size for slot in slots]))

    def relative_weights(self, rows: pa.Table) -> Floats:
        """Weights of some rows divided by the mean of the whole table, shape (n_rows,); equal weights are exactly 1."""
        return np.asarray(rows["weight"].to_numpy() / self._mean_weight, np.float32)

    def _iterate_batches(self) -> Iterator[pa.Table]:
        """Cut the shuffled parts into batches; a batch may span several parts or passes."""
        pending = TOWER_TRIPLETS.empty()
        for rows in self._iterate_parts():
            pending = pa.concat_tables([pending, rows])
            while pending.num_rows >= self.size:
                yield pending.slice(0, self.size).combine_chunks()
                pending = pending.slice(self.size)

    def _iterate_parts(self) -> Iterator[pa.Table]:
        """Yield the shuffled rows of each part, pass after pass; the first pass keeps the order of `_mix_parts`."""
        pass_number = 0
        while True:
            generator = np.random.default_rng([self._seed, pass_number])
            part_numbers = generator.permutation(len(self._parts)) if pass_number else range(len(self._parts))
            for number in part_numbers:
                order = generator.permutation(self._parts[number].rows)
                remaining_order = order[self._rows_to_skip :]
                self._rows_to_skip = max(0, self._rows_to_skip - len(order))
                if len(remaining_order):
                    yield self._tables.part(self._parts[number]).take(pa.array(remaining_order))
            pass_number += 1


def _mix_parts(tables: Tables) -> list[Part]:
    """Interleave the parts of several runs evenly, so that the first pass mixes the runs.

    Rows within a run are in random order already. A part holds rows of one run only, read from its statistics.
    """
    parts = [part for part in tables.parts(TOWER_TRIPLETS.name) if part.rows]
    index_column = TOWER_TRIPLETS.schema.get_field_index("index")
    runs = [tables.footer(part).row_group(0).column(index_column).statistics.min for part in parts]
    places_by_run = {run: np.linspace(0, 1, runs.count(run), endpoint=False) for run in set(runs)}
    n_placed = dict.fromkeys(places_by_run, 0)
    placed_parts: list[tuple[float, int, int, Part]] = []
    for part, run in zip(parts, runs, strict=True):
        placed_parts.append((float(places_by_run[run][n_placed[run]]), run, len(placed_parts), part))
        n_placed[run] += 1
    return [part for *_, part in sorted(placed_parts, key=lambda placed: placed[:3])]


def allowed_pairs(rows: pa.Table) -> NDArray[np.bool_]:
    """Decide which positives of a batch enter the softmax of which query: its own, and texts that do not answer it.

    Two rows of the same query, of the same document or of copies of it are therefore never negatives of each other.

    Args:
        rows: n rows of `tower_triplets`.

    Returns:
        Booleans of shape (n, n), query by positive.
    """
    content_hashes = pa.chunked_array(
        [*rows["key"].chunks, *(answer_lists.flatten() for answer_lists in rows["answers"].chunks)]
    )
    hash_numbers = content_hashes.combine_chunks().dictionary_encode().indices.to_numpy()
    positive_hashes = hash_numbers[: rows.num_rows]
    answer_hashes = hash_numbers[rows.num_rows :]
    n_answers: Any = rows["answers"].combine_chunks().value_lengths().to_numpy()
    query_rows = np.repeat(np.arange(rows.num_rows), n_answers)
    is_answer = np.zeros((rows.num_rows, int(hash_numbers.max()) + 1), bool)
    is_answer[query_rows, answer_hashes] = True
    is_allowed = ~is_answer[:, positive_hashes]
    np.fill_diagonal(is_allowed, val=True)
    return is_allowed
