"""Parquet files, a batch of rows at a time."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import InputError
from pipeline.ingest.block import Block, Mask, from_file
from pipeline.ingest.columns import Columns
from pipeline.ingest.files import File
from pipeline.ingest.ledger import Ledger

BATCH_BYTES = 4 << 20
MOST_ROWS = 1 << 16


def read_parquet(file: File, columns: Columns, ledger: Ledger) -> Iterator[Block]:
    """Read a Parquet file; the lines of its rows are their numbers, from 1.

    Raises:
        InputError: the file cannot be read, lacks a column, or has one of a kind that is no text or number.
    """
    try:
        with pq.ParquetFile(file.path) as source:
            found = columns.find(str(file.path), source.schema_arrow.names)
            _check(file, source.schema_arrow, found)
            seen = 0
            for batch in source.iter_batches(_rows(source.metadata), columns=sorted(set(found.values()))):
                yield from _block(batch, found, seen, file, ledger)
                seen += batch.num_rows
                ledger.at(file.size * seen // source.metadata.num_rows)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file.path} is not a Parquet file that can be read ({error}); write it again") from error


def _rows(metadata: pq.FileMetaData) -> int:
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    size = sum(group.total_byte_size for group in groups) // max(metadata.num_rows, 1)
    return max(1, min(MOST_ROWS, BATCH_BYTES // max(int(size), 1)))


def _check(file: File, schema: pa.Schema, found: dict[str, str]) -> None:
    for role, name in found.items():
        kind = _plain(schema.field(name).type)
        if pa.types.is_nested(kind) or (role == "text" and not _is_text(kind)):
            raise InputError(f"{file.path}: column {name!r} holds {kind}, not text; name another for {role}")


def _plain(kind: pa.DataType) -> pa.DataType:
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


def _block(batch: pa.RecordBatch, found: dict[str, str], seen: int, file: File, ledger: Ledger) -> Iterator[Block]:
    ledger.saw(batch.num_rows)
    lines = np.arange(seen + 1, seen + batch.num_rows + 1)
    columns = {role: _bytes(batch.column(name)) for role, name in found.items()}
    bad = np.zeros(batch.num_rows, dtype=bool)
    for values in columns.values():
        bad |= _not_utf8(values)
    for line in lines[bad]:
        ledger.reject("not UTF-8", file.name, int(line), None)
    kept = pa.array(~bad)
    texts = {role: values.filter(kept).cast(pa.string()) for role, values in columns.items()}
    yield from_file(file.name, texts, pa.array(lines[~bad], pa.int64()))


def _bytes(values: pa.Array) -> pa.Array:
    """A column's texts as bytes: what a Parquet file calls text need not be UTF-8."""
    if pa.types.is_timestamp(values.type) and values.type.tz:
        values = values.cast(pa.timestamp(values.type.unit, tz="UTC"))
    if not _is_text(values.type):
        values = values.cast(pa.string())
    return values.cast(pa.binary())


def _not_utf8(values: pa.Array) -> Mask:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([value is not None and not _decodes(value) for value in values.to_pylist()])
    return np.zeros(len(values), dtype=bool)


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
