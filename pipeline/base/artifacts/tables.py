"""Read tables of a run: whole, in batches, or with SQL in DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from darklode.pipeline.base.artifacts.database import explain_failures, pieces, scratch
from darklode.pipeline.base.artifacts.integrity import IntegrityCheck
from darklode.pipeline.base.artifacts.stage import Part, digest, table_of
from darklode.pipeline.base.artifacts.store import Store
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.table import Table
from darklode.schemas.tables import TABLES

if TYPE_CHECKING:
    import pyarrow.dataset as pads

BATCH_ROWS = 8192
"""Default rows per batch."""

NO_HIVE = "hive_partitioning = false"
"""Option of `read_parquet`: a run's folder may be named `tenant=x`, which is not a column."""

_DAY_CACHE: dict[tuple[str, str], str] = {}
"""Cached days of parts, by SHA-256 and column, because nightly mining needs the same days repeatedly."""


class Tables:
    """Complete tables of a run, opened for reading.

    A table may have a patch: two more tables, of changed and of removed rows, that are applied when it is read.
    """

    def __init__(self, store: Store, parts: dict[str, list[Part]]) -> None:
        self._store = store
        self._parts = parts
        self._intact = IntegrityCheck(store)
        self._checked_tables: set[str] = set()

    @property
    def url(self) -> str:
        """The run's folder or prefix."""
        return self._store.url

    def __contains__(self, table: str) -> bool:
        return table in self._parts

    def rows(self, table: str) -> int:
        """Number of rows of a table with its patch applied."""
        own_rows, *patch_rows = (sum(part.rows for part in parts) for parts in self._files(table).values())
        return own_rows + (patch_rows[0] - patch_rows[1] if patch_rows else 0)

    def parts(self, table: str) -> list[Part]:
        """The table's parts, in write order."""
        return self._parts[table]

    def content(self, table: str) -> str:
        """Hash of the table's content."""
        return content(self._parts, table)

    def part(self, part: Part) -> pa.Table:
        """Read one part."""
        return next(self.iterate_parts([part]))

    def iterate_parts(self, parts: Iterable[Part]) -> Iterator[pa.Table]:
        """Read parts one by one; consecutive parts of a merged file read it once."""
        for file, file_parts in groupby(parts, attrgetter("file")):
            self._require_intact(table_of(file))
            rows = self._read_file(file)
            yield from (rows.slice(part.first_row, part.rows) if part.is_merged else rows for part in file_parts)

    def _read_file(self, file: str) -> pa.Table:
        path, filesystem = self._store.path(file), self._store.filesystem
        with explain_failures():
            return pq.read_table(path, filesystem=filesystem, partitioning=None, page_checksum_verification=True)

    def by_day(self, table: str, column: str = "date") -> dict[str, list[Part]]:
        """Parts of a table by ISO date, in order; every part must have rows of a single day.

        For runs of earlier versions, which did not record the day, it is read from the Parquet footer.
        """
        days: dict[str, list[Part]] = {}
        for part in self._parts[table]:
            if part.rows:
                days.setdefault(part.day or self._day(part, column), []).append(part)
        return dict(sorted(days.items()))

    def _day(self, part: Part, column: str) -> str:
        """ISO date of a part, from the statistics in its Parquet footer."""
        if (part.sha256, column) not in _DAY_CACHE:
            footer = self.footer(part)
            column_index = footer.schema.to_arrow_schema().get_field_index(column)
            minimum = footer.row_group(0).column(column_index).statistics.min
            _DAY_CACHE[part.sha256, column] = (minimum.date() if isinstance(minimum, datetime) else minimum).isoformat()
        return _DAY_CACHE[part.sha256, column]

    def footer(self, part: Part) -> pq.FileMetaData:
        """Footer of one part's Parquet file."""
        self._require_intact(table_of(part.file))
        return pq.read_metadata(self._store.path(part.file), filesystem=self._store.filesystem)

    def has_current_columns(self, table: str) -> bool:
        """Whether the table's files have the columns of this version, judged by the first file."""
        return not self._parts[table] or self._columns(table) == set(TABLES[table].schema.names)

    def _columns(self, table: str) -> set[str]:
        """Columns of the table's first file."""
        return set(self.footer(self._parts[table][0]).schema.to_arrow_schema().names)

    def dataset(self, table: str, columns: Sequence[str] | None = None) -> pads.Dataset:
        """The table's parts as a pyarrow dataset, in write order, without its patch.

        A merged file stands where its first part would. Of merged files that have other rows, too, the rows are in
        memory.

        Args:
            table: name of the table.
            columns: columns to be read; None: all.

        Raises:
            ArtifactError: a column is missing in the files.
        """
        import pyarrow.dataset as pads  # slow: imports pandas if it is installed

        self._require_intact(table)
        ranges = row_ranges(self._parts[table])
        schema = TABLES[table].schema
        if not ranges:
            return pads.dataset(TABLES[table].empty())
        if not set(columns or schema.names) <= self._columns(table):  # pyarrow would read missing columns as null
            raise self._other_version(table)
        filesystem = self._store.filesystem
        options = pads.ParquetFragmentScanOptions(page_checksum_verification=True)
        checked_parquet = pads.ParquetFileFormat(default_fragment_scan_options=options)
        datasets: list[pads.Dataset] = []
        for is_incomplete, group in groupby(ranges, attrgetter("is_incomplete")):
            if is_incomplete:
                datasets.append(pads.dataset(self._read_ranges(group)))
            else:
                files = [self._store.path(rows.file) for rows in group]
                datasets.append(pads.dataset(files, schema=schema, format=checked_parquet, filesystem=filesystem))
        return datasets[0] if len(datasets) == 1 else pads.dataset(datasets)

    def _read_ranges(self, ranges: Iterable[RowRange]) -> pa.Table:
        """Read rows of files; each file is read once."""
        pieces_of_files = []
        for file, file_ranges in groupby(ranges, attrgetter("file")):
            file_rows = self._read_file(file)
            pieces_of_files += [file_rows.slice(rows.first, rows.end - rows.first) for rows in file_ranges]
        return pa.concat_tables(pieces_of_files)

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole table in write order; in key order if it has a patch."""
        if self._has_patches(table):
            return self.sql(_in_order(table, columns))
        with explain_failures():
            return self.dataset(table, columns).to_table(columns=columns)

    def batches(self, table: str, columns: Sequence[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """Iterate over the table in the order of `read`, with about one piece in memory."""
        if self._has_patches(table):
            yield from self.stream(_in_order(table, columns), {}, rows)
            return
        scan = self.dataset(table, columns).scanner(
            columns=columns, batch_size=rows, batch_readahead=2, fragment_readahead=1, use_threads=False
        )
        with explain_failures():
            for batch in scan.to_batches():
                if batch.num_rows:
                    yield pa.Table.from_batches([batch])

    @contextmanager
    def connect(self, query: str | None = None, *, own: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """A DuckDB connection with a view for each table; it spills to disk above MEMORY_LIMIT.

        Args:
            query: only tables named in it get a view, because each view opens a file; None: all tables.
            own: as for `scratch`.
        """
        with scratch(own=own) as connection:
            for table in self._named_in(query):
                self.view(connection, table, table)
            yield connection

    def _named_in(self, query: str | None) -> list[str]:
        """Tables whose names occur as words in a query; all tables for None."""
        words = None if query is None else set(re.findall(r"\w+", query.lower()))
        return [table for table in self._parts if words is None or table in words]

    @contextmanager
    def open_local(self) -> Iterator[Tables]:
        """The same tables with one connection for all queries; each view is created once."""
        with scratch() as connection:
            yield _ConnectedTables(self._store, self._parts, connection)

    def sql(self, query: str, parameters: Sequence[object] = ()) -> pa.Table:
        """Run a query. Use ORDER BY: DuckDB guarantees no order."""
        with self.connect(query) as connection:
            answer: pa.Table = connection.sql(query, params=list(parameters)).to_arrow_table()
            return answer

    def stream(self, query: str, parameters: Mapping[str, object], rows: int) -> Iterator[pa.Table]:
        """Run an ordered query; yields its rows in pieces of `rows` rows."""
        with self.connect(query) as connection:
            yield from pieces(connection, query, parameters, rows)

    @classmethod
    def empty(cls, *tables: str) -> Tables:
        """Tables without rows."""
        return cls(Store("."), {table: [] for table in tables})

    def with_parts(self, table: str, parts: Sequence[Part]) -> Tables:
        """The same tables, but one of them with these parts only and without its patch."""
        other_parts = {
            name: table_parts for name, table_parts in self._parts.items() if name not in TABLES[table].files
        }
        tables = Tables(self._store, other_parts | {table: list(parts)})
        tables._intact = self._intact
        return tables

    def view(self, connection: duckdb.DuckDBPyConnection, name: str, table: str) -> None:
        """Create a view of a table with its patch applied."""
        rows = {
            file_name: self._rows(connection, f"{name} as {file_name}", file_name) for file_name in self._files(table)
        }
        sql = patched_sql(TABLES[table], rows) if self._has_patches(table) else rows[table]
        try:
            connection.execute(f'CREATE OR REPLACE VIEW "{name}" AS {sql}')
        except duckdb.BinderException as error:
            raise self._other_version(table) from error

    def _other_version(self, table: str) -> ArtifactError:
        message = f"the table {table} of {self.url} was written by another version of Darklode"
        return ArtifactError(f"{message}; run the command that wrote it again")

    def _require_intact(self, table: str) -> None:
        """Raise if a file of a table is damaged: DuckDB does not verify page checksums of local files."""
        if table not in self._checked_tables and self._store.local is not None:
            self._intact.require(table, self._parts.get(table, ()))
            self._checked_tables.add(table)

    def _files(self, table: str) -> dict[str, list[Part]]:
        """Parts of a table, and of its patch if it has one."""
        return {table: self._parts[table]} | select_tables(self._parts, table)

    def _has_patches(self, table: str) -> bool:
        """Whether the table has a patch with rows."""
        return any(part.rows for name, parts in self._files(table).items() if name != table for part in parts)

    def _rows(self, connection: duckdb.DuckDBPyConnection, name: str, table: str) -> str:
        """SQL for the rows in a table's own files; `name` is used if a dataset must be registered."""
        self._require_intact(table)
        ranges = row_ranges(self._parts[table])
        # DuckDB would read these characters as a glob pattern, which could match files of another folder.
        pattern = any(character in self._store.path(rows.file) for rows in ranges for character in "*?[")
        if not ranges:
            return no_rows(TABLES[table])
        columns = ", ".join(f'"{field.name}"' for field in TABLES[table].schema)
        if self._store.local is None or pattern:
            connection.register(name, self.dataset(table))
            return f'SELECT {columns} FROM "{name}"'
        names = {rows.file: "'" + self._store.path(rows.file).replace("'", "''") + "'" for rows in ranges}
        complete = ", ".join(names[rows.file] for rows in ranges if not rows.is_incomplete)
        selections = [f"SELECT {columns} FROM read_parquet([{complete}], {NO_HIVE})"] if complete else []
        selections += [
            f"SELECT {columns} FROM read_parquet([{names[rows.file]}], {NO_HIVE}, file_row_number = true)"
            f" WHERE file_row_number >= {rows.first} AND file_row_number < {rows.end}"
            for rows in ranges
            if rows.is_incomplete
        ]
        return " UNION ALL ".join(selections)


class _ConnectedTables(Tables):
    """Tables with a shared connection."""

    def __init__(self, store: Store, parts: dict[str, list[Part]], connection: duckdb.DuckDBPyConnection) -> None:
        super().__init__(store, parts)
        self._connection = connection
        self._viewed: set[str] = set()

    @contextmanager
    def connect(self, query: str | None = None, *, own: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:  # noqa: ARG002 (the shared one)
        for table in self._named_in(query):
            if table not in self._viewed:
                self.view(self._connection, table, table)
                self._viewed.add(table)
        yield self._connection


class RowRange(NamedTuple):
    """Consecutive rows of a file: all of them, or parts of a merged file."""

    file: str
    first: int
    end: int
    file_rows: int

    @property
    def is_incomplete(self) -> bool:
        """Whether the file has other rows, too."""
        return self.end - self.first < self.file_rows


def row_ranges(parts: Iterable[Part]) -> list[RowRange]:
    """The rows of some parts, as few ranges as possible; files in the order of their first parts."""
    parts_of_files: dict[str, list[Part]] = {}
    for part in parts:
        parts_of_files.setdefault(part.file, []).append(part)
    ranges: list[RowRange] = []
    for file, file_parts in parts_of_files.items():
        n_rows = file_parts[0].merged_rows
        for part in sorted(file_parts, key=lambda part: part.first_row):
            first, end = part.first_row, part.first_row + part.rows
            if ranges and (ranges[-1].file, ranges[-1].end) == (file, first):
                ranges[-1] = ranges[-1]._replace(end=end)
            else:
                ranges.append(RowRange(file, first, end, part.rows if n_rows is None else n_rows))
    return ranges


def select_tables(parts: Mapping[str, list[Part]], *tables: str) -> dict[str, list[Part]]:
    """Parts of some tables and of their patches."""
    return {name: parts[name] for table in tables for name in TABLES[table].files if name in parts}


def content(parts: Mapping[str, list[Part]], table: str) -> str:
    """Hash of a table's content, including its patch."""
    return digest([part for file_parts in select_tables(parts, table).values() for part in file_parts])


def patched_sql(table: Table, rows: Mapping[str, str]) -> str:
    """SQL for a table with its patch applied.

    Args:
        table: a table with a patch.
        rows: SQL for the rows of each of `Table.files`.
    """
    key = ", ".join(table.dated_key)
    own, changed, removed = (rows[name] for name in table.files)
    return f"FROM ({own}) ANTI JOIN ({removed}) USING ({key}) UNION ALL ({changed})"


def _in_order(table: str, columns: Sequence[str] | None) -> str:
    chosen = ", ".join(columns or TABLES[table].schema.names)
    return f"SELECT {chosen} FROM {table} ORDER BY {', '.join(TABLES[table].key)}"


def escape_glob(path: str) -> str:
    """Escape * ? [ in a path for DuckDB."""
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


_SQL_TYPES: dict[pa.DataType, str] = {
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP WITH TIME ZONE",
    pa.date32(): "DATE",
}


def no_rows(table: Table) -> str:
    """SQL for a table without rows."""
    columns = ", ".join(f'CAST(NULL AS {_sql_type(field.type)}) AS "{field.name}"' for field in table.schema)
    return f"SELECT {columns} WHERE false"


def _sql_type(kind: pa.DataType) -> str:
    return f"{_sql_type(kind.value_type)}[]" if pa.types.is_list(kind) else _SQL_TYPES[kind]
