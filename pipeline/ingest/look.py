"""A first look at a path for `darklode init`: its format, and the columns that settings have to name, with a guess.

The stage's own readers open the first file that holds something: delimiters, encodings, arrays are as they see them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from darklode.pipeline.base.errors import InputError, MissingColumns
from darklode.pipeline.ingest.columns import Columns, document_columns, event_columns, log_columns, query_columns
from darklode.pipeline.ingest.files import (
    TABULAR,
    File,
    choose_documents,
    choose_queries,
    conversions,
    listing,
    with_columns,
)
from darklode.pipeline.ingest.log_partitions import is_ubi, without_markers
from darklode.pipeline.ingest.readers.delimited import header_in
from darklode.pipeline.ingest.readers.guise import check_guise
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.text import head_of
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.trial import FILES, Nowhere
from darklode.schemas.mining import LogColumns
from darklode.schemas.settings import DocumentColumns, IngestSettings, QueryColumns

Kind = Literal["documents", "queries", "logs"]

COLUMNS: Mapping[Kind, Columns] = {
    "documents": document_columns(DocumentColumns()),
    "queries": query_columns(QueryColumns()),
    "logs": log_columns(LogColumns()),
}
UBI = "ubi"
_INTAKES = {"documents": "documents", "queries": "queries", "logs": "impressions"}


@dataclass(frozen=True)
class Look:
    """What a path holds.

    Attributes:
        files: how many files would be read.
        format: theirs.
        said: whether the settings have to say the format: the files' names do not tell it.
        columns: those of the first file where some are missing, else none.
        missing: the parts that a column must play and none does by its name, each with the likeliest column.
        remarks: what is unusual about the first file, a sentence each.
    """

    files: int
    format: str
    said: bool = False
    columns: Sequence[str] = ()
    missing: Mapping[str, str | None] = field(default_factory=dict)
    remarks: Sequence[str] = ()


def look(kind: Kind, path: str, named: Mapping[str, str] | None = None, form: str | None = None) -> Look:
    """Look at the first of the files that would be read.

    Args:
        kind: what the path is to hold.
        path: a file or folder.
        named: the columns that somebody named, by role.
        form: the format that somebody said, such as jsonl; None: it is found out.

    Raises:
        InputError: there is no such path, nothing in it to read, the first file is not what its ending says, or lacks a
            column that is named.
    """
    seen = _chosen(kind, path)
    if form and form != seen.format:
        there = [file for file in listing(path) if not file.skipped]
        seen = _Chosen([file for file in there if file.format == form] or there, form, said=True)
    if seen.format not in TABULAR:
        return Look(len(seen.files), seen.format, seen.said)
    intake = Intake(Nowhere(), _INTAKES[kind], path, ())
    missing = _missing(seen, replace(COLUMNS[kind], named=dict(named or {})), intake)
    if missing and kind == "logs" and event_columns(LogColumns()).fits(missing.present):
        return Look(len(seen.files), UBI, said=True)
    columns, guesses = (missing.present, missing.guesses) if missing else ((), {})
    return Look(len(seen.files), seen.format, seen.said, columns, guesses, list(intake.remarks))


@dataclass(frozen=True)
class _Chosen:
    """Files to read, their format, and whether that is to be said."""

    files: Sequence[File]
    format: str
    said: bool = False


def _chosen(kind: Kind, path: str) -> _Chosen:
    """What the stage would read by itself, or else could if it were told the format.

    Raises:
        InputError: there is neither.
    """
    there = without_markers(listing(path))
    if kind == "logs" and is_ubi(there, "auto"):
        return _Chosen(with_columns(there), UBI)
    try:
        known = _CHOICES[kind](path)
    except InputError:
        if found := _by_content(COLUMNS[kind], there):
            return found
        raise
    return _Chosen(known, known[0].format or "text")


def _of_log(path: str) -> list[File]:
    there = without_markers(listing(path))
    if known := with_columns(there):
        return known
    readable = "name .jsonl, .csv, .tsv or .parquet files, or a folder of them"
    raise InputError("; ".join([f"{path} holds no search log", *conversions(there), readable]))


_CHOICES: Mapping[Kind, Callable[[str], list[File]]] = {
    "documents": lambda path: choose_documents(path, "auto").files,
    "queries": lambda path: choose_queries(path, "auto").files,
    "logs": _of_log,
}


def _by_content(columns: Columns, files: Sequence[File]) -> _Chosen | None:
    """Files whose names do not tell what they hold, where the first one begins as something that is read."""
    for file in (file for file in files if not file.skipped and file.size):
        with suppress(InputError):
            head = head_of(file)
            if head.startswith(b"PAR1"):
                return _Chosen(files, "parquet", said=True)
            check_guise(file, head)
            if head.lstrip().startswith((b"{", b"[")):
                return _Chosen(files, "jsonl", said=True)
            if None not in columns.guesses(header_in(head, columns)).values():
                return _Chosen(files, "csv", said=True)
        return None
    return None


def _missing(seen: _Chosen, columns: Columns, intake: Intake) -> MissingColumns | None:
    """What the first file with any row lacks."""
    told = seen.format if seen.said else None
    try:
        for file in seen.files[:FILES]:
            if next(read_tabular(file, told, columns, intake, IngestSettings().max_row_bytes), None):
                break
    except MissingColumns as error:
        return error
    return None
