"""Read JSON lines: Arrow parses whole blocks; only the lines around an invalid one are parsed one by one."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from darklode.pipeline.ingest.columns import (
    ColumnMapping,
    Values,
    column_at,
    join_lists,
    kind_of,
    names_in,
    schema_of,
    value_at,
)
from darklode.pipeline.ingest.files import InputFile
from darklode.pipeline.ingest.readers.json_array import elements, is_array, is_pretty_printed, objects
from darklode.pipeline.ingest.readers.text import LineRecords, head_of, lines_of, pieces, records_in, valid_records
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, concat_blocks, from_file

MIN_BLOCK_LINES = 64  # smaller blocks are parsed line by line instead of being split further
BULK_ACTION_PREFIXES = [
    begin % action for action in (b"index", b"create") for begin in (b'{"%s":', b'{"%s" :', b'{ "%s"')
]
"""Beginnings of the action lines in bulk files of search engines."""

Row = dict[str, str | None]
"""Texts of a line by role."""

Names = dict[str, tuple[str, ...]]
"""Field names of each role; the first one present in a line is used."""


class BadLineError(Exception):
    """An invalid line; the message is the reject reason."""


def read_jsonl(file: InputFile, columns: ColumnMapping, intake: Intake, limit: int) -> Iterator[RowBlock]:
    """Read JSON objects, one per line, or in an array; objects longer than `limit` bytes are rejected.

    Objects may also be pretty-printed; then, and in arrays, line numbers count objects. Lines may omit fields. A column
    from the settings must occur in the first megabyte.

    Raises:
        InputError: the file is unreadable, or a column is missing.
    """
    columns_by_role: Names = {}
    kinds = pa.schema([])
    source = pieces(file, intake.set_position)
    for all_records in records_in(_as_lines(source, head_of(file)), limit):
        rows = all_records.select(~_is_action_line(all_records)) if columns.events else all_records
        records = valid_records(rows, file, intake)
        if not columns_by_role and (parsed_lines := _parse_valid_lines(records)):
            columns_by_role = columns.optional_columns(
                columns.find(str(file.path), names_in(parsed_lines, nested=columns.events))
            )
            kinds = _arrow_types(parsed_lines, columns_by_role, columns)
        if blocks := list(_parse_blocks(records, columns_by_role, kinds, columns, file, intake)):
            yield concat_blocks(blocks)


def _as_lines(source: Iterator[bytes], head: bytes) -> Iterator[bytes]:
    """Convert an array or pretty-printed objects to one object per line; `head` is the beginning of the file."""
    if is_array(head):
        return elements(source)
    return objects(source) if is_pretty_printed(head) else source


def _is_action_line(records: LineRecords) -> NDArray[np.bool_]:
    """Mask of the action lines in a bulk file; they are not rows."""
    data = np.frombuffer(records.data, np.uint8)
    is_action = np.zeros(len(records), dtype=bool)
    for prefix in BULK_ACTION_PREFIXES:
        positions = np.minimum(records.starts[:, None] + np.arange(len(prefix)), len(data) - 1)
        is_action |= (data[positions] == np.frombuffer(prefix, np.uint8)).all(axis=1)
    return is_action


def _parse_valid_lines(records: LineRecords) -> list[Values]:
    """Parse the lines that are JSON objects; the others are skipped, and rejected when the block is read."""
    parsed_lines: list[Values] = []
    for at in range(len(records)):
        with suppress(BadLineError):
            parsed_lines.append(_parse_object(records.raw(at)))
    return parsed_lines


def _arrow_types(rows: list[Values], columns_by_role: Names, columns: ColumnMapping) -> pa.Schema:
    """Arrow types of the fields: integers (in events, all numbers) stay numbers; everything else is text."""
    kinds = {}
    for role, name in ((role, name) for role, names in columns_by_role.items() for name in names):
        values = [value for row in rows if (value := value_at(row, name)) is not None]
        is_integer = bool(values) and isinstance(values[0], int) and not isinstance(values[0], bool)
        if columns.events and role != columns.text:
            kinds[name] = kind_of(values, role)
        else:
            kinds[name] = pa.int64() if is_integer and role != columns.text else pa.string()
    return schema_of(kinds, {name for row in rows for name in row})


def _parse_blocks(
    records: LineRecords,
    columns_by_role: Names,
    kinds: pa.Schema,
    columns: ColumnMapping,
    file: InputFile,
    intake: Intake,
) -> Iterator[RowBlock]:
    """Yield the valid rows of a block. If Arrow cannot parse it, halve it until the invalid lines are isolated."""
    if not len(records):
        return
    table = _parse_with_arrow(records, kinds)
    if table is not None:
        texts = {role: _first_of(table, names) for role, names in columns_by_role.items()}
        yield from_file(file.name, texts, lines_of(records))
    elif len(records) <= MIN_BLOCK_LINES:
        yield from _read_row_by_row(records, columns_by_role, columns, file, intake)
    else:
        middle = len(records) // 2
        yield from _parse_blocks(records.span(0, middle), columns_by_role, kinds, columns, file, intake)
        yield from _parse_blocks(records.span(middle, len(records)), columns_by_role, kinds, columns, file, intake)


def _first_of(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """The first non-null value of some columns in each row."""
    columns_as_text = [join_lists(column_at(table, name)).cast(pa.string()) for name in names]
    return pc.coalesce(*columns_as_text) if len(columns_as_text) > 1 else columns_as_text[0]


def _parse_with_arrow(records: LineRecords, kinds: pa.Schema) -> pa.Table | None:
    """Parse a block with Arrow; None if a line is invalid or of another type than in `kinds`."""
    # pyarrow 26 reads a line `null` as a row of nulls, and crashes the process if it is the first line.
    if not len(kinds) or any(records.data[start] != ord("{") for start in records.starts.tolist()):
        return None
    block_size = len(records.data) + 1  # a single Arrow block
    read_options = pj.ReadOptions(use_threads=False, block_size=block_size)
    parse_options = pj.ParseOptions(explicit_schema=kinds, unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(records.data), read_options=read_options, parse_options=parse_options)
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == len(records) else None


def _read_row_by_row(
    records: LineRecords, columns_by_role: Names, columns: ColumnMapping, file: InputFile, intake: Intake
) -> Iterator[RowBlock]:
    """Parse lines one by one; invalid ones are rejected."""
    rows = []
    lines = []
    for at in range(len(records)):
        line = int(records.lines[at])
        try:
            rows.append(_row(_parse_object(records.raw(at)), columns_by_role, columns))
            lines.append(line)
        except BadLineError as error:
            intake.reject(str(error), file.name, line, records.preview(at))
    if rows:
        texts = {role: pa.array([row[role] for row in rows], pa.string()) for role in columns_by_role}
        yield from_file(file.name, texts, pa.array(lines, pa.int64()))


def _parse_object(line: bytes) -> Values:
    """Parse a line; raises BadLineError if it is not a JSON object."""
    if line[:1] in b"]},:":  # never valid JSON; faster than an exception of the parser
        raise BadLineError("JSON syntax error")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLineError("JSON syntax error") from error
    if not isinstance(value, dict):
        raise BadLineError("not an object")
    return value


def _row(value: Values, columns_by_role: Names, columns: ColumnMapping) -> Row:
    """Texts of a parsed line by role; raises BadLineError if a value has the wrong type."""
    values = {
        role: next((field for name in names if (field := value_at(value, name)) is not None), None)
        for role, names in columns_by_role.items()
    }
    row = {role: _text(item, role, columns) for role, item in values.items()}
    try:
        "".join(text or "" for text in row.values()).encode()
    except UnicodeEncodeError as error:
        raise BadLineError("not UTF-8") from error
    return row


def _text(value: object, role: str, columns: ColumnMapping) -> str | None:
    """A value as text, None for null; raises BadLineError for types that the role does not accept."""
    if value is None or isinstance(value, str):
        return value
    if columns.events and role == "hits" and isinstance(value, list):
        return "\n".join("" if item is None else str(item) for item in value)
    if columns.events and role == "clicked" and isinstance(value, bool):
        return str(value)
    if role == columns.text or isinstance(value, bool) or not isinstance(value, int | float):
        raise BadLineError("wrong type")
    return str(value)
