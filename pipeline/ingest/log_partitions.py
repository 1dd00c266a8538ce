"""Group a log's files by day. A partition is read, recorded and replaced as a whole."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.files import InputFile, files_fingerprint, missing_files_message, tabular_files

# Dates in paths: 2026-03-01, folders such as 2026/03/01 or year=2026/month=03/day=01, and 20260301.
DATE_PATTERNS = (
    re.compile(r"(?<!\d)((?:19|20)\d\d)-(\d\d)-(\d\d)(?!\d)"),
    re.compile(r"(?<!\d)((?:19|20)\d\d)/(?:\w+=)?(\d\d)/(?:\w+=)?(\d\d)(?=/)"),
    re.compile(r"(?<!\d)((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)"),
)
EVENTS_STEM, QUERIES_STEM = "ubi_events", "ubi_queries"  # file names (or folders) of the UBI specification
UNDATED_UBI = "ubi"  # partition of a UBI log without dates


@dataclass(frozen=True)
class LogPartition:
    """Files of a log that are read together.

    Attributes:
        name: the day, such as 2026-03-01, or the file's name if it has no date.
        date: the day, or None.
        files: files of impressions.
        searches: query files of a UBI log.
        other_files: dated files that are not log files; they are rejected.
    """

    name: str
    date: date | None
    files: list[InputFile] = field(default_factory=list)
    searches: list[InputFile] = field(default_factory=list)
    other_files: list[InputFile] = field(default_factory=list)

    @property
    def all(self) -> list[InputFile]:
        """All files, including those that are rejected."""
        return [*self.files, *self.searches, *self.other_files]

    @property
    def fingerprint(self) -> str:
        """Fingerprint of all files."""
        return files_fingerprint(self.all)

    @property
    def search_fingerprint(self) -> str:
        """Fingerprint of the query files, which neighboring days depend on."""
        return files_fingerprint(self.searches)


def is_ubi(files: Iterable[InputFile], file_format: str) -> bool:
    """Whether a log is in the UBI format (User Behavior Insights): by the settings, or by a file of events."""
    return file_format == "ubi" or (file_format == "auto" and any(_has_stem(file, EVENTS_STEM) for file in files))


def require_log_format(path: str, files: Sequence[InputFile], file_format: str) -> None:
    """Check that a folder contains a file in a log format.

    Args:
        path: the log as given by the user.
        files: files below the path.
        file_format: the setting `logs.format`; values other than `auto` accept any extension.

    Raises:
        InputError: all files have other formats.
    """
    readable = [file for file in files if not file.skipped]
    if file_format == "auto" and readable and not tabular_files(readable):
        raise InputError(
            missing_files_message(path, "search log", readable, "a folder of .jsonl, .csv, .tsv or .parquet files")
        )


def partitions_of(files: Sequence[InputFile], file_format: str) -> dict[str, LogPartition]:
    """Partitions by name, in order of their names.

    All files of a day form a partition. If no log file has a date, each file is a partition (in a UBI log, all files
    together). Files without a date are ignored if they are not logs, or if other log files have dates.

    Args:
        files: the files, sorted by name.
        file_format: the setting `logs.format`.
    """
    ubi = is_ubi(files, file_format)
    log_names = {file.name for file in _log_files(files, file_format, ubi=ubi)}
    partitions: dict[str, LogPartition] = {}
    for file in files:
        day = date_in(file.name)
        if day is None and file.name not in log_names:
            continue
        name = day.isoformat() if day else UNDATED_UBI if ubi else file.name
        partition = partitions.setdefault(name, LogPartition(name, day))
        role_files = partition.searches if ubi and _has_stem(file, QUERIES_STEM) else partition.files
        (role_files if file.name in log_names else partition.other_files).append(file)
    return dict(sorted(partitions.items()))


def remove_marker_files(files: Iterable[InputFile]) -> list[InputFile]:
    """Remove marker files of Hadoop and Spark: names and folders that begin with `_`."""
    return [file for file in files if not any(part.startswith("_") for part in file.name.split("/"))]


def _log_files(files: Sequence[InputFile], file_format: str, *, ubi: bool) -> list[InputFile]:
    """The files to read as logs. With `auto`, tabular files with a date in their path, or all tabular files."""
    if ubi:
        tabular = tabular_files(list(files))
        ubi_files = [file for file in tabular if _has_stem(file, EVENTS_STEM) or _has_stem(file, QUERIES_STEM)]
        return tabular if file_format == "ubi" else ubi_files
    if file_format == "auto":
        tabular = tabular_files(list(files))
        return [file for file in tabular if date_in(file.name)] or tabular
    return [file for file in files if file.format == file_format] or [file for file in files if not file.skipped]


def date_in(name: str) -> date | None:
    """The first date in a path, as 2026-03-01, 2026/03/01 (folders) or 20260301; None if there is no valid date."""
    matches = [match for pattern in DATE_PATTERNS for match in pattern.finditer(name)]
    for match in sorted(matches, key=lambda match: match.start()):
        try:
            return date(*map(int, match.groups()))
        except ValueError:
            continue
    return None


def _has_stem(file: InputFile, stem: str) -> bool:
    """Whether the file's name, or a folder in its path, begins with `stem`."""
    return any(part.startswith(stem) for part in file.name.split("/"))
