"""The reader for each tabular format."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.ingest.block import Block, from_file
from pipeline.ingest.columnar import read_parquet
from pipeline.ingest.columns import Columns
from pipeline.ingest.delimited import read_csv
from pipeline.ingest.files import File
from pipeline.ingest.framing import records_of
from pipeline.ingest.jsonl import read_jsonl
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.records import lines_of, sound


def read_tabular(file: File, form: str | None, columns: Columns, ledger: Ledger, limit: int) -> Iterator[Block]:
    """Read one file in the format `form`, or in that of its ending; rows longer than `limit` bytes are rejected.

    Raises:
        InputError: the file cannot be read, or lacks a column.
    """
    match form or file.format:
        case "jsonl":
            yield from read_jsonl(file, columns, ledger, limit)
        case "csv":
            yield from read_csv(file, columns, ledger, limit)
        case "parquet":
            yield from read_parquet(file, columns, ledger)
        case _:
            yield from _read_lines(file, ledger, limit)
    ledger.closed(file)


def _read_lines(file: File, ledger: Ledger, limit: int) -> Iterator[Block]:
    """One text a line."""
    for some in records_of(file, ledger.at, limit):
        records = sound(some, file, ledger)
        if len(records):
            offsets = np.append(records.starts, records.stops[-1]).astype(np.int32)
            texts = pa.StringArray.from_buffers(len(records), pa.py_buffer(offsets), pa.py_buffer(records.data))
            yield from_file(file.name, {"text": pc.utf8_rtrim(texts, "\r\n")}, lines_of(records))
