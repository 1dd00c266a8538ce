"""A first look at a path for `darklode init`: its format, and the columns that settings have to name, with a guess.

The stage's own readers open the first file that holds something: delimiters, encodings, arrays are as they see them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from darklode.pipeline.base.errors import InputError, MissingColumns
from darklode.pipeline.ingest.columns import ColumnMapping, document_columns, event_columns, log_columns, query_columns
from darklode.pipeline.ingest.files import (
    TABULAR,
    InputFile,
    choose_documents,
    choose_queries,
    conversions,
    listing,
    with_columns,
)
from darklode.pipeline.ingest.input_check import FILES, DiscardOutput
from darklode.pipeline.ingest.log_partitions import is_ubi, without_markers
from darklode.pipeline.ingest.readers.delimited import header_in
from darklode.pipeline.ingest.readers.sniff import check_content
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.text import head_of
from darklode.pipeline.ingest.rejects import Intake
from darklode.schemas.mining import LogColumns
from darklode.schemas.settings import DocumentColumns, IngestSettings, QueryColumns

Kind = Literal["documents", "queries", "logs"]

COLUMNS: Mapping[Kind, ColumnMapping] = {
    "documents": document_columns(DocumentColumns()),
    "queries": query_columns(QueryColumns()),
    "logs": log_columns(LogColumns()),
}
UBI = "ubi"
_INTAKES = {"documents": "documents", "queries": "queries", "logs": "impressions"}


@dataclass(frozen=True)
class FormatPreview:
    """What a path holds.

    Attributes:
        files: how many files would be read.
        format: theirs.
        is_declared: whether the settings have to say the format: the files' names do not tell it.
        columns: those of the first file where some are missing, else none.
        missing: the parts that a column must play and none does by its name, each with the likeliest column.
        remarks: what is unusual about the first file, a sentence each.
    """

    files: int
    format: str
    is_declared: bool = False
    columns: Sequence[str] = ()
    missing: Mapping[str, str | None] = field(default_factory=dict)
    remarks: Sequence[str] = ()


def inspect_source(
    kind: Kind, path: str, named_columns: Mapping[str, str] | None = None, form: str | None = None
) -> FormatPreview:
    """Look at the first of the files that would be read.

    Args:
        kind: what the path is to hold.
        path: a file or folder.
        named_columns: the columns that somebody named, by role.
        form: the format that somebody said, such as jsonl; None: it is found out.

    Raises:
        InputError: there is no such path, nothing in it to read, the first file is not what its ending says, or lacks a
            column that is named.
    """
    chosen = _choose_format(kind, path)
    if form and form != chosen.format:
        files = [file for file in listing(path) if not file.skipped]
        chosen = _ChosenFormat([file for file in files if file.format == form] or files, form, is_declared=True)
    if chosen.format not in TABULAR:
        return FormatPreview(len(chosen.files), chosen.format, chosen.is_declared)
    intake = Intake(DiscardOutput(), _INTAKES[kind], path, ())
    missing = _missing_columns(chosen, replace(COLUMNS[kind], names=dict(named_columns or {})), intake)
    if missing and kind == "logs" and event_columns(LogColumns()).fits(missing.present):
        return FormatPreview(len(chosen.files), UBI, is_declared=True)
    columns, guesses = (missing.present, missing.guesses) if missing else ((), {})
    return FormatPreview(len(chosen.files), chosen.format, chosen.is_declared, columns, guesses, list(intake.remarks))


@dataclass(frozen=True)
class _ChosenFormat:
    """Files to read, their format, and whether that is to be said."""

    files: Sequence[InputFile]
    format: str
    is_declared: bool = False


def _choose_format(kind: Kind, path: str) -> _ChosenFormat:
    """What the stage would read by itself, or else could if it were told the format.

    Raises:
        InputError: there is neither.
    """
    files = without_markers(listing(path))
    if kind == "logs" and is_ubi(files, "auto"):
        return _ChosenFormat(with_columns(files), UBI)
    try:
        choice = _CHOICES[kind](path)
    except InputError:
        if matching := _by_content(COLUMNS[kind], files):
            return matching
        raise
    return _ChosenFormat(choice, choice[0].format or "text")


def _choose_log(path: str) -> list[InputFile]:
    files = without_markers(listing(path))
    if tabular := with_columns(files):
        return tabular
    readable = "name .jsonl, .csv, .tsv or .parquet files, or a folder of them"
    raise InputError("; ".join([f"{path} holds no search log", *conversions(files), readable]))


_CHOICES: Mapping[Kind, Callable[[str], list[InputFile]]] = {
    "documents": lambda path: choose_documents(path, "auto").files,
    "queries": lambda path: choose_queries(path, "auto").files,
    "logs": _choose_log,
}


def _by_content(columns: ColumnMapping, files: Sequence[InputFile]) -> _ChosenFormat | None:
    """Files whose names do not tell what they hold, where the first one begins as something that is read."""
    for file in (file for file in files if not file.skipped and file.size):
        with suppress(InputError):
            head = head_of(file)
            if head.startswith(b"PAR1"):
                return _ChosenFormat(files, "parquet", is_declared=True)
            check_content(file, head)
            if head.lstrip().startswith((b"{", b"[")):
                return _ChosenFormat(files, "jsonl", is_declared=True)
            if None not in columns.guesses(header_in(head, columns)).values():
                return _ChosenFormat(files, "csv", is_declared=True)
        return None
    return None


def _missing_columns(chosen: _ChosenFormat, columns: ColumnMapping, intake: Intake) -> MissingColumns | None:
    """What the first file with any row lacks."""
    declared_format = chosen.format if chosen.is_declared else None
    try:
        for file in chosen.files[:FILES]:
            if next(read_tabular(file, declared_format, columns, intake, IngestSettings().max_row_bytes), None):
                break
    except MissingColumns as error:
        return error
    return None
