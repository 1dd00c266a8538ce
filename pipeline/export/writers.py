"""Shared parts of the export formats: streamed files, escaped ids and texts, README.md, and checks of the run."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.card import Files, with_front_matter
from darklode.pipeline.base.duckdb_views import literal
from darklode.pipeline.base.errors import ExportError

JSON_LINES: Final = "FORMAT json"
TSV: Final = "FORMAT csv, DELIMITER '\t', QUOTE '', HEADER true"
TSV_WITHOUT_HEADER: Final = "FORMAT csv, DELIMITER '\t', QUOTE '', HEADER false"

ROWS_PER_GROUP = 8192  # rows per row group: fixed, so that the same rows give the same file


@contextmanager
def temporary_folder_beside(to: Path) -> Iterator[Path]:
    """A temporary folder beside the target, on the same disk; deleted on exit unless it is moved to the target.

    Raises:
        ExportError: the target exists and is not an empty folder, or cannot be created.
    """
    try:
        if to.exists() and (not to.is_dir() or any(to.iterdir())):
            raise ExportError(f"{to} is not an empty folder; use one that is empty or does not exist")
        to.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=f".{to.name}-", dir=to.parent)
    except OSError as error:
        raise ExportError(f"cannot write to {to}: {error.strerror}; use another folder") from error
    with scratch as name:
        built = Path(name, "built")
        built.mkdir()
        yield built


@contextmanager
def atomic_folder(to: Path) -> Iterator[Path]:
    """A folder that is moved to its target if the block ends without an error."""
    with temporary_folder_beside(to) as built:
        yield built
        built.replace(to)


def copy(connection: duckdb.DuckDBPyConnection, query: str, path: Path, options: str) -> None:
    """Stream the rows of an ordered query into a file; creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection.execute(f"COPY ({query}) TO {literal(str(path))} ({options})")


def append(connection: duckdb.DuckDBPyConnection, query: str, path: Path, options: str) -> None:
    """Append the rows of an ordered query to a file; creates it if there are rows. `options` must have no header."""
    part = path.with_name(f".{path.name}.part")
    copy(connection, query, part, options)
    if part.stat().st_size:
        with part.open("rb") as rows, path.open("ab") as file:
            shutil.copyfileobj(rows, file)
    part.unlink()


def any_row(connection: duckdb.DuckDBPyConnection, query: str) -> bool:
    """Whether a query returns a row."""
    return bool(connection.execute(f"SELECT 1 FROM ({query}) LIMIT 1").fetchall())


def copy_parquet(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    """Stream the rows of an ordered query into a Parquet file; no file if there are none.

    Written by pyarrow: DuckDB's COPY does not always give the same bytes for the same rows.
    """
    reader = connection.sql(query).to_arrow_reader(ROWS_PER_GROUP)
    groups = _row_groups(reader)
    first_group = next(groups, None)
    if first_group is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, reader.schema, compression="zstd") as writer:
        for group in chain([first_group], groups):
            writer.write_table(group)


def _row_groups(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Regroup batches into tables of ROWS_PER_GROUP rows, whose sizes do not depend on DuckDB's threads."""
    buffered = reader.schema.empty_table()
    for batch in reader:
        buffered = pa.concat_tables([buffered, pa.Table.from_batches([batch])])
        while buffered.num_rows >= ROWS_PER_GROUP:
            yield buffered.slice(0, ROWS_PER_GROUP).combine_chunks()
            buffered = buffered.slice(ROWS_PER_GROUP)
    if buffered.num_rows:
        yield buffered.combine_chunks()


def require(tables: Tables, table: str, condition: str, message: str) -> None:
    """Check that a table has a row that meets an SQL condition.

    Raises:
        ExportError: there is none, with this message.
    """
    with tables.connect() as connection:
        if not any_row(connection, f"FROM {table} WHERE {condition}"):
            raise ExportError(message)


def require_positives(tables: Tables) -> None:
    """Check that the run has a positive.

    Raises:
        ExportError: it has none.
    """
    message = "the run has no positives (relevance above 0 in qrels); check the table `verdicts`"
    require(tables, "qrels", "relevance > 0", message)


def require_negatives(tables: Tables) -> None:
    """Check that a triplet has a negative.

    Raises:
        ExportError: none has.
    """
    message = "the run has no triplet with a negative: either nothing was relevant or nothing was judged not relevant"
    require(tables, "triplets", "len(negatives) > 0", message)


# Characters that str.split() splits at, the quote that CSV readers remove, and the escape character itself.
_UNSAFE = r"[\p{Cc}\p{Z}\x22%]"

_SAFE_ID = f"""
    CREATE TEMP MACRO safe_id(id) AS CASE
        WHEN NOT regexp_matches(id, '{_UNSAFE}') THEN id
        ELSE array_to_string(list_transform(
            string_split(id, ''), lambda c: CASE WHEN regexp_matches(c, '{_UNSAFE}') THEN url_encode(c) ELSE c END), '')
    END
"""

_ONE_LINE = r"CREATE TEMP MACRO one_line(text) AS trim(regexp_replace(text, '[\p{Cc}\p{Z}]+', ' ', 'g'))"

BENCHMARK_IDS_SQL = """
    SELECT 'query' AS kind, tenant, query_id AS id FROM queries UNION ALL
    SELECT 'chunk' AS kind, tenant, chunk_id AS id FROM chunks
"""
"""SQL of the ids of a benchmark, whose passages are chunks."""

TRIPLET_IDS_SQL = """
    SELECT DISTINCT 'query' AS kind, tenant, query_id AS id FROM triplets UNION ALL
    SELECT DISTINCT 'passage' AS kind, tenant, unnest([positive_id] || negative_ids) AS id FROM triplets
"""
"""SQL of the ids in triplets, whose passages are chunks (build) or documents (mining)."""

# Ids that the export changed, with the original ones.
_CHANGED_IDS_SQL = """
    SELECT kind, exported(tenant, id) AS exported, tenant, id FROM ids
    WHERE exported(tenant, id) <> id ORDER BY kind, tenant, id
"""


def define_ids(connection: duckdb.DuckDBPyConnection, ids: str = BENCHMARK_IDS_SQL) -> None:
    """Define the SQL macros `safe_id(id)`, `exported(tenant, id)` and `one_line(text)`, and the view `ids`.

    The view has the columns kind, tenant and id.

    White space, control characters, `"` and `%` become `%XX` of their UTF-8 bytes. Ids are unique within a tenant
    only: if there are several tenants, an id becomes `tenant/id`, with any `/` of the tenant as `%2F`.
    `urllib.parse.unquote` undoes both.
    """
    connection.execute(_SAFE_ID)
    connection.execute(_ONE_LINE)
    connection.execute(f"CREATE TEMP VIEW ids AS {ids}")
    tenants = connection.execute("SELECT DISTINCT tenant FROM ids LIMIT 2").fetchall()
    id_with_tenant = "replace(safe_id(tenant), '/', '%2F') || '/' || safe_id(id)"
    exported = id_with_tenant if len(tenants) > 1 else "safe_id(id)"
    connection.execute(f"CREATE TEMP MACRO exported(tenant, id) AS {exported}")


def write_id_map(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Write `id_map.jsonl` {kind, exported, tenant, id} with all changed ids; no file if there are none."""
    if any_row(connection, "FROM ids WHERE exported(tenant, id) <> id"):
        copy(connection, _CHANGED_IDS_SQL, folder / "id_map.jsonl", JSON_LINES)


def write_card(folder: Path, configs: Files, text: str, front: Mapping[str, object] | None = None) -> None:
    """Write the README.md of a folder's Parquet files; missing files and empty configs are not listed.

    Args:
        folder: folder of the files.
        configs: the files by config and split.
        text: text after the front matter.
        front: additional front matter.
    """
    written_files = {
        config: {split: path for split, path in files.items() if (folder / path).exists()}
        for config, files in configs.items()
    }
    (folder / "README.md").write_text(with_front_matter(text, front or {}, written_files), encoding="utf-8")


def human_labels_note(connection: duckdb.DuckDBPyConnection) -> str:
    """A paragraph on human labels in `qrels`; empty if there are none."""
    counts = "SELECT count(*) FILTER (source = 'human'), count(*) FROM qrels"
    n_human, n_labels = connection.execute(counts).fetchall()[0]
    return f"\n{n_human:,} of {n_labels:,} labels are human labels that replace the judge's.\n" if n_human else ""
