"""Reading tables of a run: by batches, whole, or through DuckDB."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from pipeline.artifacts.stage import Part
from pipeline.artifacts.store import Store
from schemas.tables import TABLES

MEMORY_LIMIT = "2GB"
BATCH_ROWS = 8192


class Tables:
    """The complete tables that a stage may read: what is not named here does not exist for it."""

    def __init__(self, store: Store, parts: dict[str, list[Part]]) -> None:
        self._store = store
        self._parts = parts

    def rows(self, table: str) -> int:
        return sum(part.rows for part in self._parts[table])

    def parts(self, table: str) -> list[Part]:
        """The table's parts, in the order written."""
        return self._parts[table]

    def part(self, part: Part) -> pa.Table:
        """One part's rows."""
        return pq.read_table(self._store.path(part.file), filesystem=self._store.filesystem)

    def dataset(self, table: str) -> pads.Dataset:
        files = [self._store.path(part.file) for part in self._parts[table]]
        schema = TABLES[table].schema
        if not files:
            return pads.dataset(TABLES[table].empty())
        return pads.dataset(files, schema=schema, format="parquet", filesystem=self._store.filesystem)

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole table, in the order it was written."""
        return self.dataset(table).to_table(columns=columns)

    def batches(self, table: str, columns: Sequence[str] | None = None, rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """The table piece by piece, in the order it was written, never much more in memory than one piece."""
        scan = self.dataset(table).scanner(
            columns=columns, batch_size=rows, batch_readahead=2, fragment_readahead=1, use_threads=False
        )
        for batch in scan.to_batches():
            if batch.num_rows:
                yield pa.Table.from_batches([batch])

    @contextmanager
    def connect(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A DuckDB connection with every table as a view of its name; it spills to disk past MEMORY_LIMIT."""
        with tempfile.TemporaryDirectory(prefix="darklode-duckdb-") as spill:
            connection = duckdb.connect(
                config={"memory_limit": MEMORY_LIMIT, "temp_directory": spill, "preserve_insertion_order": False}
            )
            try:
                for table in self._parts:
                    self._view(connection, table)
                yield connection
            finally:
                connection.close()

    def sql(self, query: str, parameters: Sequence[object] = ()) -> pa.Table:
        """The answer of one query. Order its rows: DuckDB promises no order of its own."""
        with self.connect() as connection:
            answer: pa.Table = connection.sql(query, params=list(parameters)).to_arrow_table()
            return answer

    def _view(self, connection: duckdb.DuckDBPyConnection, table: str) -> None:
        files = [self._store.path(part.file) for part in self._parts[table]]
        if self._store.local is None or not files:
            connection.register(table, self.dataset(table))
        else:
            names = ", ".join("'" + name.replace("'", "''") + "'" for name in files)
            connection.execute(f'CREATE VIEW "{table}" AS SELECT * FROM read_parquet([{names}])')
