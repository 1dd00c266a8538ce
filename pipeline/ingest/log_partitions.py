"""A log's files by day: what is read, recorded and replaced as a whole."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.files import InputFile, files_fingerprint, nothing_to_read, with_columns

DATES = (
    re.compile(r"(?<!\d)((?:19|20)\d\d)-(\d\d)-(\d\d)(?!\d)"),
    re.compile(r"(?<!\d)((?:19|20)\d\d)/(?:\w+=)?(\d\d)/(?:\w+=)?(\d\d)(?=/)"),
    re.compile(r"(?<!\d)((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)"),
)
EVENTS, SEARCHES = "ubi_events", "ubi_queries"
UNDATED_UBI = "ubi"


@dataclass(frozen=True)
class LogPartition:
    """Files that are read together.

    Attributes:
        name: the day as in 2026-03-01, or the file's name where no day is known.
        date: the day, or None.
        files: what holds impressions, by name.
        searches: of a UBI log, what holds its queries.
        other_files: files that are no log.
    """

    name: str
    date: date | None
    files: list[InputFile] = field(default_factory=list)
    searches: list[InputFile] = field(default_factory=list)
    other_files: list[InputFile] = field(default_factory=list)

    @property
    def all(self) -> list[InputFile]:
        return [*self.files, *self.searches, *self.other_files]

    @property
    def mark(self) -> str:
        """A fingerprint of its files."""
        return files_fingerprint(self.all)

    @property
    def search_mark(self) -> str:
        """The same of what neighbours need of it."""
        return files_fingerprint(self.searches)


def is_ubi(files: Iterable[InputFile], file_format: str) -> bool:
    """Whether a log is one of User Behavior Insights: by its settings, or by a file of events."""
    return file_format == "ubi" or (file_format == "auto" and any(_has_stem(file, EVENTS) for file in files))


def require_log_format(path: str, files: Sequence[InputFile], file_format: str) -> None:
    """See that a folder with files has one of a format that logs come in.

    Args:
        path: the log as the user named it.
        files: the files below it.
        file_format: the setting `logs.format`; another than `auto` reads files of any ending.

    Raises:
        InputError: all of its files are of other formats.
    """
    readable = [file for file in files if not file.skipped]
    if file_format == "auto" and readable and not with_columns(readable):
        raise InputError(
            nothing_to_read(path, "search log", readable, "a folder of .jsonl, .csv, .tsv or .parquet files")
        )


def partitions_of(files: Sequence[InputFile], file_format: str) -> dict[str, LogPartition]:
    """The partitions that some files make up, by name and in the order of their names.

    All files of one day are a partition, and so is each file without one; the latter of a UBI log are one together.
    Files without a day that are no log are no partition; beside files with a day, those without one are none.

    Args:
        files: the files, by name.
        file_format: the setting `logs.format`.
    """
    ubi = is_ubi(files, file_format)
    logs = {file.name for file in _logs(files, file_format, ubi=ubi)}
    partitions: dict[str, LogPartition] = {}
    for file in files:
        day = date_in(file.name)
        if day is None and file.name not in logs:
            continue
        name = day.isoformat() if day else UNDATED_UBI if ubi else file.name
        partition = partitions.setdefault(name, LogPartition(name, day))
        kind = partition.searches if ubi and _has_stem(file, SEARCHES) else partition.files
        (kind if file.name in logs else partition.other_files).append(file)
    return dict(sorted(partitions.items()))


def without_markers(files: Iterable[InputFile]) -> list[InputFile]:
    """The files but for those that Hadoop and Spark leave beside their own, in names or folders that begin with `_`."""
    return [file for file in files if not any(part.startswith("_") for part in file.name.split("/"))]


def _logs(files: Sequence[InputFile], file_format: str, *, ubi: bool) -> list[InputFile]:
    if ubi:
        tabular = with_columns(list(files))
        ubi_files = [file for file in tabular if _has_stem(file, EVENTS) or _has_stem(file, SEARCHES)]
        return tabular if file_format == "ubi" else ubi_files
    if file_format == "auto":
        tabular = with_columns(list(files))
        return [file for file in tabular if date_in(file.name)] or tabular
    return [file for file in files if file.format == file_format] or [file for file in files if not file.skipped]


def date_in(name: str) -> date | None:
    """The first day that a path names, as 2026-03-01, 2026/03/01 (folders) or 20260301; what is no day is none."""
    hits = [match for pattern in DATES for match in pattern.finditer(name)]
    for match in sorted(hits, key=lambda match: match.start()):
        try:
            return date(*map(int, match.groups()))
        except ValueError:
            continue
    return None


def _has_stem(file: InputFile, stem: str) -> bool:
    return any(part.startswith(stem) for part in file.name.split("/"))
