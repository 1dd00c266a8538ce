"""What the formats share: streamed files, and the refusal of a run that has nothing for them."""

import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.artifacts import Tables
from pipeline.errors import ExportError
from pipeline.views import literal

JSON_LINES: Final = "FORMAT json"
TSV: Final = "FORMAT csv, DELIMITER '\t', QUOTE '', HEADER true"
LINES: Final = "FORMAT csv, DELIMITER '\t', QUOTE '', HEADER false"

ROW_GROUP = 8192


def copy(connection: duckdb.DuckDBPyConnection, query: str, path: Path, options: str) -> None:
    """Stream the rows of an ordered query into a file; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection.execute(f"COPY ({query}) TO {literal(str(path))} ({options})")


def append(connection: duckdb.DuckDBPyConnection, query: str, path: Path, options: str) -> None:
    """Add the rows of an ordered query to a file, which is made with the first of them; `options` have no header."""
    part = path.with_name(f".{path.name}.part")
    copy(connection, query, part, options)
    if part.stat().st_size:
        with part.open("rb") as rows, path.open("ab") as file:
            shutil.copyfileobj(rows, file)
    part.unlink()


def any_row(connection: duckdb.DuckDBPyConnection, query: str) -> bool:
    """Whether a query has an answer."""
    return bool(connection.execute(f"SELECT 1 FROM ({query}) LIMIT 1").fetchall())


def copy_parquet(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    """Stream the rows of an ordered query into a Parquet file; no file if there are none.

    pyarrow writes, in row groups of its own counting: DuckDB's COPY gives other bytes for the same rows at times.
    """
    reader = connection.sql(query).to_arrow_reader(ROW_GROUP)
    groups = _row_groups(reader)
    first = next(groups, None)
    if first is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, reader.schema, compression="zstd") as writer:
        for group in chain([first], groups):
            writer.write_table(group)


def _row_groups(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    waiting = reader.schema.empty_table()
    for batch in reader:
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
        while waiting.num_rows >= ROW_GROUP:
            yield waiting.slice(0, ROW_GROUP).combine_chunks()
            waiting = waiting.slice(ROW_GROUP)
    if waiting.num_rows:
        yield waiting.combine_chunks()


def require(tables: Tables, table: str, condition: str, lack: str) -> None:
    """Make sure that a table has a row that meets an SQL condition.

    Raises:
        ExportError: there is none; `lack` says what that means and what to do.
    """
    with tables.connect() as connection:
        if not any_row(connection, f"FROM {table} WHERE {condition}"):
            raise ExportError(lack)


def require_positives(tables: Tables) -> None:
    """Make sure that some chunk is relevant to some query.

    Raises:
        ExportError: nothing is relevant to anything.
    """
    lack = "the run has no positive (no relevance above 0 in qrels), so there is nothing to score; look at `verdicts`"
    require(tables, "qrels", "relevance > 0", lack)


def require_negatives(tables: Tables) -> None:
    """Make sure that some triplet has a negative.

    Raises:
        ExportError: none has.
    """
    lack = "the run has no triplet with a negative: either nothing was relevant or nothing was judged not relevant"
    require(tables, "triplets", "len(negatives) > 0", lack)
