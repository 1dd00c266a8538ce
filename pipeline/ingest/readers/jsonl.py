"""JSON lines: Arrow reads whole blocks; only the lines around a bad one are read one by one."""

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
    at_path,
    column_at,
    join_lists,
    kind_of,
    names_in,
    schema_of,
)
from darklode.pipeline.ingest.files import InputFile
from darklode.pipeline.ingest.readers.json_array import elements, is_array, is_pretty_printed, objects
from darklode.pipeline.ingest.readers.text import LineRecords, head_of, lines_of, pieces, records_in, valid_records
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, concat_blocks, from_file

FEW_LINES = 64
BULK = [begin % action for action in (b"index", b"create") for begin in (b'{"%s":', b'{"%s" :', b'{ "%s"')]
"""What the action lines of bulk files begin with."""
Row = dict[str, str | None]
Names = dict[str, tuple[str, ...]]
"""The names of each role's fields; of those that a line has, the first one counts."""


class BadLineError(Exception):
    """A line that is no row; the message is the reason."""


def read_jsonl(file: InputFile, columns: ColumnMapping, intake: Intake, limit: int) -> Iterator[RowBlock]:
    """Read a file of JSON objects, one a line, or an array of them; one longer than `limit` bytes is rejected.

    An object may also be printed over several lines. Of these and of an array, the objects are counted as lines. A line
    may omit what others have. A column that the settings name has to be there in the first megabyte.

    Raises:
        InputError: the file cannot be read, or lacks a column.
    """
    columns_by_role: Names = {}
    kinds = pa.schema([])
    source = pieces(file, intake.set_position)
    for some in records_in(_as_lines(source, head_of(file)), limit):
        records = valid_records(some.select(~_actions(some)) if columns.events else some, file, intake)
        if not columns_by_role and (good := _probe(records)):
            columns_by_role = columns.optional_columns(
                columns.find(str(file.path), names_in(good, nested=columns.events))
            )
            kinds = _kinds(good, columns_by_role, columns)
        if blocks := list(_blocks(records, columns_by_role, kinds, columns, file, intake)):
            yield concat_blocks(blocks)


def _as_lines(source: Iterator[bytes], head: bytes) -> Iterator[bytes]:
    if is_array(head):
        return elements(source)
    return objects(source) if is_pretty_printed(head) else source


def _actions(records: LineRecords) -> NDArray[np.bool_]:
    """Which records are action lines of a bulk file: they say where the next line goes, and are no rows."""
    data = np.frombuffer(records.data, np.uint8)
    is_action = np.zeros(len(records), dtype=bool)
    for begin in BULK:
        at = np.minimum(records.starts[:, None] + np.arange(len(begin)), len(data) - 1)
        is_action |= (data[at] == np.frombuffer(begin, np.uint8)).all(axis=1)
    return is_action


def _probe(records: LineRecords) -> list[Values]:
    """The good lines of some."""
    good: list[Values] = []
    for at in range(len(records)):
        with suppress(BadLineError):
            good.append(_object(records.raw(at)))
    return good


def _kinds(rows: list[Values], columns_by_role: Names, columns: ColumnMapping) -> pa.Schema:
    """Whole numbers stay numbers until they are read, in events all numbers; whatever else is expected to be text."""
    kinds = {}
    for role, name in ((role, name) for role, names in columns_by_role.items() for name in names):
        values = [value for row in rows if (value := at_path(row, name)) is not None]
        is_integer = bool(values) and isinstance(values[0], int) and not isinstance(values[0], bool)
        if columns.events and role != columns.text:
            kinds[name] = kind_of(values, role)
        else:
            kinds[name] = pa.int64() if is_integer and role != columns.text else pa.string()
    return schema_of(kinds, {name for row in rows for name in row})


def _blocks(
    records: LineRecords,
    columns_by_role: Names,
    kinds: pa.Schema,
    columns: ColumnMapping,
    file: InputFile,
    intake: Intake,
) -> Iterator[RowBlock]:
    if not len(records):
        return
    table = _table(records, kinds)
    if table is not None:
        texts = {role: _first_of(table, names) for role, names in columns_by_role.items()}
        yield from_file(file.name, texts, lines_of(records))
    elif len(records) <= FEW_LINES:
        yield from _read_row_by_row(records, columns_by_role, columns, file, intake)
    else:
        middle = len(records) // 2
        yield from _blocks(records.span(0, middle), columns_by_role, kinds, columns, file, intake)
        yield from _blocks(records.span(middle, len(records)), columns_by_role, kinds, columns, file, intake)


def _first_of(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """Of each row the first value under some names."""
    columns_as_text = [join_lists(column_at(table, name)).cast(pa.string()) for name in names]
    return pc.coalesce(*columns_as_text) if len(columns_as_text) > 1 else columns_as_text[0]


def _table(records: LineRecords, kinds: pa.Schema) -> pa.Table | None:
    # pyarrow 26 takes a line that is only `null` for a row of nulls, and crashes the process when it comes first.
    if not len(kinds) or any(records.data[start] != ord("{") for start in records.starts.tolist()):
        return None
    size = len(records.data) + 1
    read = pj.ReadOptions(use_threads=False, block_size=size)
    parse = pj.ParseOptions(explicit_schema=kinds, unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(records.data), read_options=read, parse_options=parse)
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == len(records) else None


def _read_row_by_row(
    records: LineRecords, columns_by_role: Names, columns: ColumnMapping, file: InputFile, intake: Intake
) -> Iterator[RowBlock]:
    rows, lines = [], []
    for at in range(len(records)):
        line = int(records.lines[at])
        try:
            rows.append(_row(_object(records.raw(at)), columns_by_role, columns))
            lines.append(line)
        except BadLineError as reason:
            intake.reject(str(reason), file.name, line, records.preview(at))
    if rows:
        texts = {role: pa.array([row[role] for row in rows], pa.string()) for role in columns_by_role}
        yield from_file(file.name, texts, pa.array(lines, pa.int64()))


def _object(line: bytes) -> Values:
    if line[:1] in b"]},:":  # no JSON begins so; an exception of the parser's takes the time of many such lines
        raise BadLineError("JSON syntax error")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLineError("JSON syntax error") from error
    if not isinstance(value, dict):
        raise BadLineError("not an object")
    return value


def _row(value: Values, columns_by_role: Names, columns: ColumnMapping) -> Row:
    values = {
        role: next((v for name in names if (v := at_path(value, name)) is not None), None)
        for role, names in columns_by_role.items()
    }
    row = {role: _text(item, role, columns) for role, item in values.items()}
    try:
        "".join(text or "" for text in row.values()).encode()
    except UnicodeEncodeError as error:
        raise BadLineError("not UTF-8") from error
    return row


def _text(value: object, role: str, columns: ColumnMapping) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if columns.events and role == "hits" and isinstance(value, list):
        return "\n".join("" if item is None else str(item) for item in value)
    if columns.events and role == "clicked" and isinstance(value, bool):
        return str(value)
    if role == columns.text or isinstance(value, bool) or not isinstance(value, int | float):
        raise BadLineError("wrong type")
    return str(value)
