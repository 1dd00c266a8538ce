"""A first look at what a path holds, before anything is read: its files, their format and their columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import duckdb

from pipeline.artifacts.tables import scratch, verbatim
from pipeline.errors import InputError
from pipeline.ingest.choose import choose_documents, choose_queries
from pipeline.ingest.columns import Columns, document_columns, log_columns, query_columns
from pipeline.ingest.files import TABULAR, File, listing
from schemas.mining import LogColumns
from schemas.settings import DocumentColumns, QueryColumns

Kind = Literal["documents", "queries", "logs"]

_COLUMNS: dict[Kind, Columns] = {
    "documents": document_columns(DocumentColumns()),
    "queries": query_columns(QueryColumns()),
    "logs": log_columns(LogColumns()),
}
_OF_UBI = "action_name"
_READERS = {
    "csv": "read_csv($1, header = true, all_varchar = true, sample_size = 100)",
    "jsonl": "read_json($1, format = 'newline_delimited', sample_size = 100)",
    "parquet": "read_parquet($1)",
}


@dataclass(frozen=True)
class Look:
    """What a path holds.

    Attributes:
        files: how many files would be read.
        format: that of the first one.
        columns: its columns, none where it has no columns.
        missing: the parts that a column must play and none does by its name; the settings have to name one.
    """

    files: int
    format: str
    columns: Sequence[str]
    missing: Sequence[str]


def look(kind: Kind, path: str) -> Look:
    """Look at the first of the files that would be read.

    Raises:
        InputError: there is no such path, nothing in it to read, or the first file is not what its ending says.
    """
    files = _files(kind, path)
    if not files:
        raise InputError(f"{path} holds no files; name a file or a folder to read")
    first = files[0]
    if first.format not in TABULAR:
        return Look(len(files), first.format or "text", [], [])
    columns = _columns(first)
    return Look(len(files), first.format, columns, _missing(kind, columns))


def _files(kind: Kind, path: str) -> list[File]:
    if kind == "documents":
        return choose_documents(path, "auto").files
    if kind == "queries":
        return choose_queries(path, "auto").files
    return [file for file in listing(path) if file.format in TABULAR]


def _columns(file: File) -> list[str]:
    try:
        with scratch() as connection:
            found = connection.sql(f"FROM {_READERS[file.format or '']} LIMIT 0", params=[verbatim(str(file.path))])
            return list(found.columns)
    except duckdb.Error as error:
        raise InputError(f"{file.path} cannot be read as {file.format}: {str(error).splitlines()[0]}") from error


def _missing(kind: Kind, columns: Sequence[str]) -> list[str]:
    wanted = _COLUMNS[kind]
    if _OF_UBI in columns:
        return []
    return [role for role in wanted.needed if not set(wanted.usual[role]) & set(columns)]
