"""Merge the daily files of past months.

Nightly runs write a small file per day and table, and opening a file costs more than reading its rows. When a month is
over, the small parts of its days are merged into one file per table; a part is then a range of rows of that file. Its
`sha256` remains that of the part alone, so nothing is computed again. Which parts are merged depends on the table's
parts only: nightly runs and a run over everything end with the same files. A changed or late day makes its month's file
new.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from darklode.pipeline.base.artifacts.integrity import IntegrityCheck
from darklode.pipeline.base.artifacts.parquet_writer import GROUP_ROWS, TABLE_GROUP_ROWS, encode
from darklode.pipeline.base.artifacts.stage import Part, part_file, partition_of, partition_values
from darklode.pipeline.base.errors import ArtifactError

SMALL_SHARE = 1 / 4
"""A part is small below this share of a row group, 16,384 rows without texts. Opening a larger file costs little
compared with reading it, and a late day rewrites the merged file of its month.
"""

CACHED_FILES = 4
"""Decoded merged files in memory: parts are read in order, from a few tables in turn."""

WriteFile = Callable[[str, memoryview], None]
"""Writes a file, by its path relative to the run."""

_DATE_FOLDER = re.compile(r"(?<![^/])((?:date-)?\d{4}-\d{2})(?:-\d{2})?(?![^/])")
_MONTH_CHARACTERS = len("2026-03")


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
        """Merge the small parts of each past month and folder, and take the others out of merged files.

        Args:
            table: the parts' table.
            parts: all parts of the table, in order.

        Returns:
            The same parts, in the same order, with their new files.
        """
        last_month = max((part.day for part in parts if part.day), default="")[:_MONTH_CHARACTERS]
        months = defaultdict[tuple[str, str], list[int]](list)
        partitions = [own_partition(part) for part in parts]
        for index, (part, partition) in enumerate(zip(parts, partitions, strict=True)):
            month = (part.day or "")[:_MONTH_CHARACTERS]
            if month < last_month and is_small(part.rows, part.day, partition):
                months[month, month_folder(partition) or ""].append(index)
        merged_parts: dict[int, Part] = {}  # by index: units of equal work can list the same part twice
        for (month, folder), indices in months.items():
            if len(indices) > 1:
                month_parts = [parts[index] for index in indices]
                merged_parts |= zip(indices, self._merge(table, month_parts, month, folder), strict=True)
        numbers = Counter[str]()
        file_parts: list[Part] = []
        for index, (part, partition) in enumerate(zip(parts, partitions, strict=True)):
            file_part = merged_parts.get(index, part)
            if part.is_merged and index not in merged_parts:
                file_part = self._take_out(table, part, numbers[partition], partition)
            file_parts.append(file_part)
            numbers[partition] += 1
        return file_parts

    def _merge(self, table: str, parts: Sequence[Part], month: str, folder: str) -> list[Part]:
        """Write the parts of a month to one file, unless they are in it already."""
        first_rows = list(accumulate((part.rows for part in parts), initial=0))
        n_rows, file = first_rows.pop(), parts[0].file
        if [(part.file, part.first_row, part.merged_rows) for part in parts] == [
            (file, row, n_rows) for row in first_rows
        ]:
            return list(parts)
        data = encode(pa.concat_tables(self._reader.read(part) for part in parts), rows_per_group(folder))
        sha256 = hashlib.sha256(data).hexdigest()
        file = part_file(table, self._stage, int(month.replace("-", "")), sha256, folder)
        self._write(file, data)
        return [
            replace(part, file=file, size=len(data), first_row=row, merged_rows=n_rows, merged_sha256=sha256)
            for part, row in zip(parts, first_rows, strict=True)
        ]

    def _take_out(self, table: str, part: Part, number: int, partition: str) -> Part:
        """Write a part of a merged file to a file of its own."""
        data = encode(self._reader.read(part), rows_per_group(partition))
        sha256 = hashlib.sha256(data).hexdigest()
        file = part_file(table, self._stage, number, sha256, partition)
        self._write(file, data)
        return Part(file, part.rows, len(data), sha256, part.day)


def is_small(rows: int, day: str | None, partition: str) -> bool:
    """Whether a part will be merged when its month is over."""
    return (
        day is not None and 0 < rows <= rows_per_group(partition) * SMALL_SHARE and month_folder(partition) is not None
    )


def rows_per_group(partition: str) -> int:
    """Rows of a row group: folders that name columns hold files for trainers."""
    return GROUP_ROWS if partition_values(partition) else TABLE_GROUP_ROWS


def month_folder(partition: str) -> str | None:
    """The folder of a partition's merged files: its day is shortened to the month. None for one without a day."""
    return _DATE_FOLDER.sub(r"\1", partition) if not partition or _DATE_FOLDER.search(partition) else None


def own_partition(part: Part) -> str:
    """The partition of a part as a file of its own."""
    partition = partition_of(part.file)
    if not part.is_merged or part.day is None:
        return partition
    return _DATE_FOLDER.sub(rf"\g<1>{part.day[_MONTH_CHARACTERS:]}", partition)
