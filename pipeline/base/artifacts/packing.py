"""Parts of rows that come piece by piece: memory follows a row group and a file's bytes, never the table."""

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FILE_BYTES = 64 << 20
"""A file for trainers that has reached so many bytes is closed: 64 to 70 MB."""

GROUP_ROWS = 4096
"""Rows of a row group for trainers, which is what a reader holds."""

TABLE_GROUP_ROWS = 1 << 16
"""Rows of a row group in all other tables."""

DATED = ("date", "timestamp")
"""Columns that say of which day a row is."""


class Add(Protocol):
    """Takes a file: its bytes, its rows, and its first day where its rows have one."""

    def __call__(self, data: memoryview, rows: int, *, day: str | None) -> object: ...


class Packing:
    """Rows into files: the same rows always make the same bytes, in whatever pieces they come.

    Args:
        add: takes what is full.
        group_rows: of a row group.
        file_rows: of a file, at most; None: any number.
        file_bytes: a file that has reached so many is closed; None: none is for its bytes.
    """

    def __init__(
        self,
        add: Add,
        *,
        group_rows: int,
        file_rows: int | None = None,
        file_bytes: int | None = None,
    ) -> None:
        self._add = add
        self._group_rows, self._file_rows, self._file_bytes = group_rows, file_rows, file_bytes
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._days: set[str] = set()
        self._sink: pa.BufferOutputStream | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Take rows; those that fill no row group wait."""
        self._waiting.append(rows)
        if sum(some.num_rows for some in self._waiting) < self._target_rows:
            return
        waiting_rows = pa.concat_tables(self._waiting)
        while waiting_rows.num_rows >= (n_rows := self._target_rows):
            self._group(waiting_rows.slice(0, n_rows))
            waiting_rows = waiting_rows.slice(n_rows)
        self._waiting = [waiting_rows] if waiting_rows.num_rows else []

    def close(self) -> None:
        """Write what waits."""
        remaining = [some for some in self._waiting if some.num_rows]
        self._waiting = []
        if remaining:
            self._group(pa.concat_tables(remaining))
        self._end()

    @property
    def _target_rows(self) -> int:
        """Rows of the next row group."""
        return min(self._group_rows, (self._file_rows or self._rows + self._group_rows) - self._rows)

    def _group(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._sink = pa.BufferOutputStream()
            self._writer = pq.ParquetWriter(self._sink, rows.schema, compression="zstd", write_page_checksum=True)
        self._writer.write_table(rows.combine_chunks(), row_group_size=self._group_rows)
        self._rows += rows.num_rows
        self._days |= {day for day in [first_day(rows)] if day}
        assert self._sink is not None
        full = self._file_bytes is not None and self._sink.tell() >= self._file_bytes
        if full or self._rows == self._file_rows:
            self._end()

    def _end(self) -> None:
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        data, rows, day = memoryview(self._sink.getvalue()), self._rows, min(self._days, default=None)
        self._writer, self._sink, self._rows, self._days = None, None, 0, set()
        self._add(data, rows, day=day)


def encode(rows: pa.Table) -> memoryview:
    """A table as one file, also where it has no rows: the same rows always give the same bytes."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, compression="zstd", write_page_checksum=True) as writer:
        for start in range(0, max(rows.num_rows, 1), TABLE_GROUP_ROWS):
            group = rows.slice(start, TABLE_GROUP_ROWS)
            writer.write_table(group.combine_chunks(), row_group_size=TABLE_GROUP_ROWS)
    return memoryview(sink.getvalue())


def first_day(rows: pa.Table) -> str | None:
    """The first day of some rows, by which a day's parts are found without a look into each."""
    dated = [name for name in DATED if name in rows.column_names]
    first = pc.min(rows[dated[0]]).as_py() if dated else None
    return first.isoformat()[: len("2026-03-01")] if first else None
