"""Inspect a path for `darklode init`: detect its format and the columns to set, with guesses.

The first non-empty file is opened with the stage's readers, so that delimiters, encodings and arrays are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from darklode.pipeline.base.errors import InputError, MissingColumns
from darklode.pipeline.ingest.columns import ColumnMapping, document_columns, event_columns, log_columns, query_columns
from darklode.pipeline.ingest.files import (
    TABULAR_FORMATS,
    InputFile,
    choose_documents,
    choose_queries,
    conversion_advice,
    list_files,
    tabular_files,
)
from darklode.pipeline.ingest.input_check import MAX_CHECKED_FILES, DiscardOutput
from darklode.pipeline.ingest.log_partitions import is_ubi, remove_marker_files
from darklode.pipeline.ingest.readers.delimited import header_in
from darklode.pipeline.ingest.readers.sniff import check_content
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.text import head_of
from darklode.pipeline.ingest.rejects import Intake
from darklode.schemas.mining import LogColumns
from darklode.schemas.settings import DocumentColumns, IngestSettings, QueryColumns

Kind = Literal["documents", "queries", "logs"]

DEFAULT_COLUMNS: Mapping[Kind, ColumnMapping] = {
    "documents": document_columns(DocumentColumns()),
    "queries": query_columns(QueryColumns()),
    "logs": log_columns(LogColumns()),
}
UBI_FORMAT = "ubi"
_INTAKE_KINDS = {"documents": "documents", "queries": "queries", "logs": "impressions"}


@dataclass(frozen=True)
class FormatPreview:
    """Format and columns of a source.

    Attributes:
        files: number of files to read.
        format: format of the files.
        is_declared: whether the settings must set the format, because file names do not show it.
        columns: columns of the first file, if required ones are missing.
        missing: required roles without a column, with the likeliest one.
        remarks: unusual properties of the first file, one sentence each.
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
    """Inspect the first file that would be read.

    Args:
        kind: expected content.
        path: a file or folder.
        named_columns: columns set by the user, by role.
        form: format set by the user, such as jsonl; None: detect it.

    Raises:
        InputError: the path does not exist, contains nothing to read, the first file does not match its extension, or a
            column set by the user is missing.
    """
    chosen = _choose_format(kind, path)
    if form and form != chosen.format:
        files = [file for file in list_files(path) if not file.skipped]
        chosen = _ChosenFormat([file for file in files if file.format == form] or files, form, is_declared=True)
    if chosen.format not in TABULAR_FORMATS:
        return FormatPreview(len(chosen.files), chosen.format, chosen.is_declared)
    intake = Intake(DiscardOutput(), _INTAKE_KINDS[kind], path, ())
    missing = _missing_columns(chosen, replace(DEFAULT_COLUMNS[kind], names=dict(named_columns or {})), intake)
    if missing and kind == "logs" and event_columns(LogColumns()).fits(missing.present):
        return FormatPreview(len(chosen.files), UBI_FORMAT, is_declared=True)
    columns, guesses = (missing.present, missing.guesses) if missing else ((), {})
    return FormatPreview(len(chosen.files), chosen.format, chosen.is_declared, columns, guesses, list(intake.remarks))


@dataclass(frozen=True)
class _ChosenFormat:
    """Files to read, their format, and whether settings must set it."""

    files: Sequence[InputFile]
    format: str
    is_declared: bool = False


def _choose_format(kind: Kind, path: str) -> _ChosenFormat:
    """The files that the stage would read by default, else those it could read if the format were set.

    Raises:
        InputError: there are none.
    """
    files = remove_marker_files(list_files(path))
    if kind == "logs" and is_ubi(files, "auto"):
        return _ChosenFormat(tabular_files(files), UBI_FORMAT)
    try:
        choice = _CHOOSE_FILES[kind](path)
    except InputError:
        if matching := _by_content(DEFAULT_COLUMNS[kind], files):
            return matching
        raise
    return _ChosenFormat(choice, choice[0].format or "text")


def _choose_log(path: str) -> list[InputFile]:
    files = remove_marker_files(list_files(path))
    if tabular := tabular_files(files):
        return tabular
    remedy = "give .jsonl, .csv, .tsv or .parquet files, or a folder of them"
    raise InputError("; ".join([f"{path} contains no search log", *conversion_advice(files), remedy]))


_CHOOSE_FILES: Mapping[Kind, Callable[[str], list[InputFile]]] = {
    "documents": lambda path: choose_documents(path, "auto").files,
    "queries": lambda path: choose_queries(path, "auto").files,
    "logs": _choose_log,
}


def _by_content(columns: ColumnMapping, files: Sequence[InputFile]) -> _ChosenFormat | None:
    """Files with unknown extensions, if the content of the first one is in a supported format."""
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
    """Missing columns of the first file with rows."""
    declared_format = chosen.format if chosen.is_declared else None
    try:
        for file in chosen.files[:MAX_CHECKED_FILES]:
            if next(read_tabular(file, declared_format, columns, intake, IngestSettings().max_row_bytes), None):
                break
    except MissingColumns as error:
        return error
    return None
