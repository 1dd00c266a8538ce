"""Read a tabular file with the reader of its format."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.ingest.columns import ColumnMapping
from darklode.pipeline.ingest.files import InputFile
from darklode.pipeline.ingest.readers.delimited import read_csv
from darklode.pipeline.ingest.readers.jsonl import read_jsonl
from darklode.pipeline.ingest.readers.office import read_xlsx
from darklode.pipeline.ingest.readers.parquet import read_parquet
from darklode.pipeline.ingest.readers.sniff import check_content, is_utf16
from darklode.pipeline.ingest.readers.text import head_of, lines_of, records_of, valid_records
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, from_file


def read_tabular(
    file: InputFile, form: str | None, columns: ColumnMapping, intake: Intake, limit: int
) -> Iterator[RowBlock]:
    """Read a file in the format `form`, or by its extension; rows longer than `limit` bytes are rejected.

    Raises:
        InputError: the file is unreadable, or a column is missing.
    """
    if (form or file.format) not in {"parquet", "xlsx"}:
        check_content(file, head_of(file))
        if is_utf16(file):
            intake.add_remark(f"{file.path}: encoded as UTF-16")
    match form or file.format:
        case "jsonl":
            yield from read_jsonl(file, columns, intake, limit)
        case "csv":
            yield from read_csv(file, columns, intake, limit)
        case "parquet":
            yield from read_parquet(file, columns, intake)
        case "xlsx":
            yield from read_xlsx(file, columns, intake)
        case _:
            yield from _read_lines(file, intake, limit)
    intake.close_file(file)


def _read_lines(file: InputFile, intake: Intake, limit: int) -> Iterator[RowBlock]:
    """Read one text per line."""
    for all_records in records_of(file, intake.set_position, limit):
        records = valid_records(all_records, file, intake)
        if len(records):
            offsets = np.append(records.starts, records.stops[-1]).astype(np.int32)
            texts = pa.StringArray.from_buffers(len(records), pa.py_buffer(offsets), pa.py_buffer(records.data))
            yield from_file(file.name, {"text": pc.utf8_rtrim(texts, "\r\n")}, lines_of(records))
