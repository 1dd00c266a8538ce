"""Streaming rows into Parquet files: memory is bounded by a row group and a file's bytes."""

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FILE_BYTES = 64 << 20
"""Size at which a file for trainers is closed: 64 to 70 MB."""

GROUP_ROWS = 4096
"""Rows per row group for trainers, which is what a reader holds in memory."""

TABLE_GROUP_ROWS = 1 << 16
"""Rows per row group in all other tables."""

DAY_COLUMNS = ("date", "timestamp")
"""Columns that give the day of a row."""


class Add(Protocol):
    """Receives a finished file: bytes, rows, and the first day if the rows have one."""

    def __call__(self, data: memoryview, rows: int, *, day: str | None) -> object: ...


class Packing:
    """Packs rows into files. The same rows give the same bytes, however they are split into pieces.

    Args:
        add: receives full files.
        group_rows: rows per row group.
        file_rows: maximum rows per file; None: no limit.
        file_bytes: size at which a file is closed; None: no limit.
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
        self._buffered: list[pa.Table] = []
        self._rows = 0
        self._days: set[str] = set()
        self._sink: pa.BufferOutputStream | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Add rows; an incomplete row group is buffered."""
        self._buffered.append(rows)
        if sum(rows.num_rows for rows in self._buffered) < self._target_rows:
            return
        buffered_rows = pa.concat_tables(self._buffered)
        while buffered_rows.num_rows >= (n_rows := self._target_rows):
            self._group(buffered_rows.slice(0, n_rows))
            buffered_rows = buffered_rows.slice(n_rows)
        self._buffered = [buffered_rows] if buffered_rows.num_rows else []

    def close(self) -> None:
        """Write the buffered rows."""
        remaining = [rows for rows in self._buffered if rows.num_rows]
        self._buffered = []
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
    """A table as one Parquet file, also if empty; the same rows give the same bytes."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, compression="zstd", write_page_checksum=True) as writer:
        for start in range(0, max(rows.num_rows, 1), TABLE_GROUP_ROWS):
            group = rows.slice(start, TABLE_GROUP_ROWS)
            writer.write_table(group.combine_chunks(), row_group_size=TABLE_GROUP_ROWS)
    return memoryview(sink.getvalue())


def first_day(rows: pa.Table) -> str | None:
    """First day of some rows; it lets readers find a day's parts without opening them."""
    dated = [name for name in DAY_COLUMNS if name in rows.column_names]
    first = pc.min(rows[dated[0]]).as_py() if dated else None
    return first.isoformat()[: len("2026-03-01")] if first else None
