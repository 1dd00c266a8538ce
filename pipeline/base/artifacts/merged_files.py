"""Merge the daily files of past months.

Nightly runs write a small file per day and table, and opening a file costs more than reading its rows. When a month is
over, the small parts of its days are merged into one file per table; a part is then a range of rows of that file. Its
`sha256` remains that of the part alone, so nothing is computed again. Which parts are merged depends on the table's
parts only: nightly runs and a run over everything end with the same files. A changed or late day makes its month's file
new.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, groupby

import pyarrow as pa
import pyarrow.parquet as pq

from darklode.pipeline.base.artifacts.integrity import IntegrityCheck
from darklode.pipeline.base.artifacts.parquet_writer import encode
from darklode.pipeline.base.artifacts.stage import Part, part_file, partition_of
from darklode.pipeline.base.errors import ArtifactError

MAX_PART_ROWS = 1 << 14
"""Larger parts stay files: opening them costs little compared with reading them, and a late day rewrites its month."""

CACHED_FILES = 4
"""Decoded merged files in memory: parts are read in order, from a few tables in turn."""

WriteFile = Callable[[str, memoryview], None]
"""Writes a file, by its path relative to the run."""

_DAY_OR_MONTH = re.compile(r"\d{4}-\d{2}(-\d{2})?")


class PartReader:
    """Reads parts of a run from verified bytes, whole files or ranges of merged ones.

    Args:
        intact: verifies the files.
        unwritten: bytes of parts that are not written to files yet, by path.
    """

    def __init__(self, intact: IntegrityCheck, unwritten: Mapping[str, memoryview]) -> None:
        self._intact = intact
        self._unwritten = unwritten
        self._read_merged = lru_cache(CACHED_FILES)(self._read_file)

    def read(self, part: Part) -> pa.Table:
        """The rows of a part.

        Raises:
            ArtifactError: its file is missing or damaged.
        """
        if not part.is_merged:
            return self._read_file(part.file, part.sha256)
        return self._read_merged(part.file, part.file_sha256).slice(part.first_row, part.rows)

    def _read_file(self, file: str, sha256: str) -> pa.Table:
        data = self._unwritten.get(file) or self._intact.read_file(file, sha256)
        if data is None:
            raise ArtifactError(f"{file} is missing or damaged; run the same command again")
        return pq.read_table(pa.BufferReader(data))


class MonthMerger:
    """Merges the parts of a stage.

    Args:
        stage: the stage that wrote them.
        reader: reads their rows.
        write: writes a new file.
    """

    def __init__(self, stage: str, reader: PartReader, write: WriteFile) -> None:
        self._stage = stage
        self._reader = reader
        self._write = write

    def merge(self, table: str, parts: Sequence[Part]) -> list[Part]:
        """Merge the small parts of each past month, and take the others out of merged files.

        Args:
            table: the parts' table.
            parts: all parts of the table, in order.

        Returns:
            The same parts, in the same order, with their new files.
        """
        last_month = max((part.day[:7] for part in parts if part.day), default="")
        file_parts: list[Part] = []
        numbers = Counter[str]()
        for month, group in groupby(parts, lambda part: _month_to_merge(part, last_month)):
            month_parts = list(group)
            if month and len(month_parts) > 1:
                file_parts += self._merge(table, month_parts, len(file_parts))
                numbers.update(_own_partition(part) for part in month_parts)
                continue
            for part in month_parts:
                partition = _own_partition(part)
                file_parts.append(self._take_out(table, part, numbers[partition]) if part.is_merged else part)
                numbers[partition] += 1
        return file_parts

    def _merge(self, table: str, parts: Sequence[Part], number: int) -> list[Part]:
        """Write parts to one file, unless they are in it already; `number` is that of the file."""
        first_rows = list(accumulate((part.rows for part in parts), initial=0))
        n_rows = first_rows.pop()
        partition = _own_partition(parts[0])
        folder = partition[:MONTH_CHARACTERS]
        first = parts[0]
        expected = part_file(table, self._stage, number, first.file_sha256, folder)
        places = [(expected, row, n_rows) for row in first_rows]
        if [(part.file, part.first_row, part.merged_rows) for part in parts] == places:
            return list(parts)
        data = encode(pa.concat_tables(self._reader.read(part) for part in parts))
        sha256 = hashlib.sha256(data).hexdigest()
        file = part_file(table, self._stage, number, sha256, folder)
        self._write(file, data)
        return [
            replace(part, file=file, size=len(data), first_row=row, merged_rows=n_rows, merged_sha256=sha256)
            for part, row in zip(parts, first_rows, strict=True)
        ]

    def _take_out(self, table: str, part: Part, number: int) -> Part:
        """Write a part of a merged file to a file of its own."""
        data = encode(self._reader.read(part))
        sha256 = hashlib.sha256(data).hexdigest()
        file = part_file(table, self._stage, number, sha256, _own_partition(part))
        self._write(file, data)
        return Part(file, part.rows, len(data), sha256, part.day)


MONTH_CHARACTERS = len("2026-03")


def _month_to_merge(part: Part, last_month: str) -> str:
    """The month of a part to be merged; empty if it is to be a file of its own."""
    if part.day is None or not 0 < part.rows <= MAX_PART_ROWS or part.day[:MONTH_CHARACTERS] >= last_month:
        return ""
    is_mergeable = can_be_merged(partition_of(part.file))
    return part.day[:MONTH_CHARACTERS] if is_mergeable else ""


def can_be_merged(partition: str) -> bool:
    """Whether the parts of a partition may be merged: of none, a day or a month, not of `tenant-acme`."""
    return not partition or bool(_DAY_OR_MONTH.fullmatch(partition))


def _own_partition(part: Part) -> str:
    """The partition of a part as a file of its own: a day, if its merged file is in the folder of a month."""
    partition = partition_of(part.file)
    return part.day or "" if part.is_merged and partition else partition
