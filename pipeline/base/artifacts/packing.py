"""Parts of a size that trainers like, of rows that come piece by piece: memory follows the file, never the table."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

FILE_BYTES = 64 << 20
"""A file that has reached so many bytes is closed: 64 to 70 MB."""

GROUP_ROWS = 4096
"""Rows of a row group, which is what a reader holds."""


class Packing:
    """Rows into files: the same rows always make the same bytes, in whatever pieces they come.

    Args:
        add: takes a file's bytes and rows.
        file_bytes: see `FILE_BYTES`, which None is.
    """

    def __init__(self, add: Callable[[bytes, int], object], file_bytes: int | None = None) -> None:
        self._add = add
        self._file_bytes = file_bytes or FILE_BYTES
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._sink: pa.BufferOutputStream | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Take rows; those that fill no row group wait."""
        self._waiting.append(rows)
        if sum(some.num_rows for some in self._waiting) < GROUP_ROWS:
            return
        whole, start = pa.concat_tables(self._waiting), 0
        while whole.num_rows - start >= GROUP_ROWS:
            self._group(whole.slice(start, GROUP_ROWS))
            start += GROUP_ROWS
        self._waiting = [whole.slice(start)] if start < whole.num_rows else []

    def close(self) -> None:
        """Write what waits."""
        rest = [some for some in self._waiting if some.num_rows]
        self._waiting = []
        if rest:
            self._group(pa.concat_tables(rest))
        self._end()

    def _group(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._sink = pa.BufferOutputStream()
            self._writer = pq.ParquetWriter(self._sink, rows.schema, compression="zstd", write_page_checksum=True)
        self._writer.write_table(rows.combine_chunks(), row_group_size=GROUP_ROWS)
        self._rows += rows.num_rows
        assert self._sink is not None
        if self._sink.tell() >= self._file_bytes:
            self._end()

    def _end(self) -> None:
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        data, rows = bytes(self._sink.getvalue()), self._rows
        self._writer, self._sink, self._rows = None, None, 0
        self._add(data, rows)
