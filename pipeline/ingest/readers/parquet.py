"""Read Parquet files in batches of rows."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.base.types import Mask
from darklode.pipeline.ingest.columns import ColumnMapping, column_at, join_lists, leaves_of
from darklode.pipeline.ingest.files import InputFile
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, from_file

BATCH_BYTES = 4 << 20  # approximate uncompressed size of a batch of rows, which bounds memory
MAX_BATCH_ROWS = 1 << 16


def read_parquet(file: InputFile, columns: ColumnMapping, intake: Intake) -> Iterator[RowBlock]:
    """Read a Parquet file; line numbers are row numbers, from 1.

    Raises:
        InputError: the file is unreadable, a column is missing, or has neither text nor numbers.
    """
    try:
        with pq.ParquetFile(file.path) as source:
            leaves = leaves_of(source.schema_arrow, nested=columns.events)
            repeated = [name for name, times in Counter(source.schema_arrow.names).items() if times > 1]
            columns_by_role = columns.find(str(file.path), [*leaves, *repeated])
            _check_types(file, leaves, columns_by_role, columns)
            rows_before = 0
            for batch in source.iter_batches(
                _batch_rows(source.metadata), columns=sorted(set(columns_by_role.values()))
            ):
                yield from _make_block(batch, columns_by_role, rows_before, file, intake, times=columns.events)
                rows_before += batch.num_rows
                intake.set_position(file.size * rows_before // source.metadata.num_rows)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file.path} is not a valid Parquet file ({error}); write it again") from error


def _batch_rows(metadata: pq.FileMetaData) -> int:
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    size = sum(group.total_byte_size for group in groups) // max(metadata.num_rows, 1)
    return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // max(int(size), 1)))


def _check_types(
    file: InputFile, leaves: dict[str, pa.DataType], columns_by_role: dict[str, str], columns: ColumnMapping
) -> None:
    for role, name in columns_by_role.items():
        kind = _value_type(leaves[name])
        is_hit_list = role == "hits" and pa.types.is_list(kind)
        if (pa.types.is_nested(kind) and not is_hit_list) or (role == columns.text and not _is_text(kind)):
            raise InputError(f"{file.path}: column {name!r} is of type {kind}, not text; set another column for {role}")


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_null(kind)
    )


def _make_block(
    batch: pa.RecordBatch,
    columns_by_role: dict[str, str],
    rows_before: int,
    file: InputFile,
    intake: Intake,
    *,
    times: bool,
) -> Iterator[RowBlock]:
    intake.count_rows(batch.num_rows)
    lines = np.arange(rows_before + 1, rows_before + batch.num_rows + 1)
    columns = {role: _bytes(join_lists(column_at(batch, name)), times=times) for role, name in columns_by_role.items()}
    bad = np.zeros(batch.num_rows, dtype=bool)
    for values in columns.values():
        bad |= _invalid_utf8(values)
    for line in lines[bad]:
        intake.reject("not UTF-8", file.name, int(line), None)
    is_valid = pa.array(~bad)
    texts = {role: _texts(values.filter(is_valid) if bad.any() else values) for role, values in columns.items()}
    yield from_file(file.name, texts, pa.array(lines[~bad], pa.int64()))


def _bytes(values: pa.Array, *, times: bool) -> pa.Array:
    """A column as bytes, because strings in Parquet files may be invalid UTF-8. `times`: keep timestamps."""
    if pa.types.is_timestamp(values.type):
        if times:
            return values
        values = values.cast(pa.timestamp(values.type.unit, tz="UTC")) if values.type.tz else values
    if not _is_text(values.type):
        values = values.cast(pa.string())
    return values.cast(pa.binary())


def _texts(values: pa.Array) -> pa.Array:
    return values if pa.types.is_timestamp(values.type) else values.cast(pa.string())


def _invalid_utf8(values: pa.Array) -> Mask:
    if pa.types.is_timestamp(values.type):
        return np.zeros(len(values), dtype=bool)
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([value is not None and not _is_utf8(value) for value in values.to_pylist()])
    return np.zeros(len(values), dtype=bool)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
