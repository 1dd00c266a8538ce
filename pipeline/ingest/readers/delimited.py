"""Read CSV and TSV with a header line: Arrow parses whole blocks and reports rows with a wrong number of fields."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.columns import ColumnMapping
from darklode.pipeline.ingest.files import InputFile
from darklode.pipeline.ingest.readers.sniff import LATIN, recoding
from darklode.pipeline.ingest.readers.text import LineRecords, head_of, lines_of, records_of, valid_records
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, from_file

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
WRONG_FIELD_COUNT = "wrong number of fields"


@dataclass(frozen=True)
class CsvHeader:
    """Columns of a file: their number, their delimiter, and the column index of each role."""

    width: int
    delimiter: str
    indices: dict[str, int]


def read_csv(file: InputFile, columns: ColumnMapping, intake: Intake, limit: int) -> Iterator[RowBlock]:
    """Read a CSV (RFC 4180) or TSV file with a header; rows longer than `limit` bytes are rejected.

    The delimiter is the usual one of the extension, unless required columns are found only with another one
    (semicolon, tab, bar).

    Raises:
        InputError: the file is unreadable, has no valid header, or a column is missing.
    """
    header = None
    usual = "\t" if file.ending == ".tsv" else ","
    delimiter = _delimiter(head_of(file), usual, columns)
    if delimiter != usual:
        intake.add_remark(f"{file.path}: columns are separated by {DELIMITERS[delimiter]}")
    for records in records_of(file, intake.set_position, limit, delimiter):
        rows = records
        if header is None and len(records):
            header = _header(records, file, delimiter, columns)
            rows = records.span(1, len(records))
        if header is not None:
            yield from _parse_blocks(valid_records(rows, file, intake), header, file, intake)


def _delimiter(head: bytes, usual: str, columns: ColumnMapping) -> str:
    """Detect the delimiter: the usual one, unless required columns are found only with another."""
    line = head.partition(b"\n")[0].decode(errors="replace")
    names_by_delimiter = {delimiter: _names(line, delimiter) for delimiter in dict.fromkeys((usual, *DELIMITERS))}
    if fitting := [delimiter for delimiter, names in names_by_delimiter.items() if columns.fits(names)]:
        return fitting[0]
    return (
        max(names_by_delimiter, key=lambda delimiter: len(names_by_delimiter[delimiter]))
        if len(names_by_delimiter[usual]) == 1
        else usual
    )


def header_in(head: bytes, columns: ColumnMapping) -> list[str]:
    """Column names in the first line of a file, read as CSV."""
    line = head.partition(b"\n")[0].decode(errors="replace")
    return _names(line, _delimiter(head, ",", columns))


def _names(line: str, delimiter: str) -> list[str]:
    try:
        cells = next(csv.reader(io.StringIO(line, newline=""), delimiter=delimiter), [])
    except csv.Error:  # a name of more than 131,072 characters
        return []
    return [name.strip() for name in cells]


def _header(records: LineRecords, file: InputFile, delimiter: str, columns: ColumnMapping) -> CsvHeader:
    try:
        line = records.raw(0).decode()
    except UnicodeDecodeError as error:
        how = recoding(file.path.name, LATIN)
        raise InputError(f"{file.path} is not UTF-8 in its header; if it is Latin-1: {how}") from error
    if 0 in records.faults or "\0" in line:
        raise InputError(f"{file.path} has no readable header; its first line must contain the column names")
    names = _names(line, delimiter)
    columns_by_role = columns.find(str(file.path), names)
    return CsvHeader(len(names), delimiter, {role: names.index(name) for role, name in columns_by_role.items()})


def _parse_blocks(records: LineRecords, header: CsvHeader, file: InputFile, intake: Intake) -> Iterator[RowBlock]:
    if not len(records):
        return
    bad: list[int] = []
    table = _parse_with_arrow(records, header, bad)
    if table is not None:
        for index in bad:
            intake.reject(WRONG_FIELD_COUNT, file.name, int(records.lines[index]), records.preview(index))
        columns = {role: table[str(column)].combine_chunks() for role, column in header.indices.items()}
        lines = lines_of(records).take(pa.array(np.delete(np.arange(len(records)), bad)))
        yield from_file(file.name, columns, lines)
    elif len(records) == 1:
        intake.reject(WRONG_FIELD_COUNT, file.name, int(records.lines[0]), records.preview(0))
    else:
        middle = len(records) // 2
        yield from _parse_blocks(records.span(0, middle), header, file, intake)
        yield from _parse_blocks(records.span(middle, len(records)), header, file, intake)


def _parse_with_arrow(records: LineRecords, header: CsvHeader, bad: list[int]) -> pa.Table | None:
    """Parse a block; rows with a wrong number of fields go to `bad`. None: Arrow splits rows differently than we do."""

    def skip(row: pc.InvalidRow) -> str:
        bad.append(row.number - 1)
        return "skip"

    names = [str(column) for column in range(header.width)]
    selected = sorted({str(column) for column in header.indices.values()})
    read = pc.ReadOptions(use_threads=False, block_size=len(records.data) + 1, column_names=names)
    parse = pc.ParseOptions(delimiter=header.delimiter, newlines_in_values=True, invalid_row_handler=skip)
    convert = pc.ConvertOptions(include_columns=selected, column_types=dict.fromkeys(selected, pa.string()))
    try:
        table = pc.read_csv(pa.BufferReader(records.data), read, parse, convert)
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows + len(bad) == len(records) else None
