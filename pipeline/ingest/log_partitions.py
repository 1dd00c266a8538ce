"""A log's files by day: what is read, recorded and replaced as a whole."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.files import File, files_fingerprint, nothing_to_read, with_columns

DATES = (
    re.compile(r"(?<!\d)((?:19|20)\d\d)-(\d\d)-(\d\d)(?!\d)"),
    re.compile(r"(?<!\d)((?:19|20)\d\d)/(?:\w+=)?(\d\d)/(?:\w+=)?(\d\d)(?=/)"),
    re.compile(r"(?<!\d)((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)"),
)
EVENTS, SEARCHES = "ubi_events", "ubi_queries"
UNDATED_UBI = "ubi"


@dataclass(frozen=True)
class Partition:
    """Files that are read together.

    Attributes:
        name: the day as in 2026-03-01, or the file's name where no day is known.
        date: the day, or None.
        files: what holds impressions, by name.
        searches: of a UBI log, what holds its queries.
        others: files that are no log.
    """

    name: str
    date: date | None
    files: list[File] = field(default_factory=list)
    searches: list[File] = field(default_factory=list)
    others: list[File] = field(default_factory=list)

    @property
    def all(self) -> list[File]:
        return [*self.files, *self.searches, *self.others]

    @property
    def mark(self) -> str:
        """A fingerprint of its files."""
        return files_fingerprint(self.all)

    @property
    def search_mark(self) -> str:
        """The same of what neighbours need of it."""
        return files_fingerprint(self.searches)


def is_ubi(files: Iterable[File], wanted: str) -> bool:
    """Whether a log is one of User Behavior Insights: by its settings, or by a file of events."""
    return wanted == "ubi" or (wanted == "auto" and any(_named(file, EVENTS) for file in files))


def require_log_format(path: str, files: Sequence[File], wanted: str) -> None:
    """See that a folder with files has one of a format that logs come in.

    Args:
        path: the log as the user named it.
        files: the files below it.
        wanted: the setting `logs.format`; another than `auto` reads files of any ending.

    Raises:
        InputError: all of its files are of other formats.
    """
    readable = [file for file in files if not file.skipped]
    if wanted == "auto" and readable and not with_columns(readable):
        raise InputError(
            nothing_to_read(path, "search log", readable, "a folder of .jsonl, .csv, .tsv or .parquet files")
        )


def partitions_of(files: Sequence[File], wanted: str) -> dict[str, Partition]:
    """The partitions that some files make up, by name and in the order of their names.

    All files of one day are a partition, and so is each file without one; the latter of a UBI log are one together.
    Files without a day that are no log are no partition; beside files with a day, those without one are none.

    Args:
        files: the files, by name.
        wanted: the setting `logs.format`.
    """
    ubi = is_ubi(files, wanted)
    logs = {file.name for file in _logs(files, wanted, ubi=ubi)}
    found: dict[str, Partition] = {}
    for file in files:
        day = date_in(file.name)
        if day is None and file.name not in logs:
            continue
        name = day.isoformat() if day else UNDATED_UBI if ubi else file.name
        partition = found.setdefault(name, Partition(name, day))
        kind = partition.searches if ubi and _named(file, SEARCHES) else partition.files
        (kind if file.name in logs else partition.others).append(file)
    return dict(sorted(found.items()))


def without_markers(files: Iterable[File]) -> list[File]:
    """The files but for those that Hadoop and Spark leave beside their own, in names or folders that begin with `_`."""
    return [file for file in files if not any(part.startswith("_") for part in file.name.split("/"))]


def _logs(files: Sequence[File], wanted: str, *, ubi: bool) -> list[File]:
    if ubi:
        known = with_columns(list(files))
        named = [file for file in known if _named(file, EVENTS) or _named(file, SEARCHES)]
        return known if wanted == "ubi" else named
    if wanted == "auto":
        known = with_columns(list(files))
        return [file for file in known if date_in(file.name)] or known
    return [file for file in files if file.format == wanted] or [file for file in files if not file.skipped]


def date_in(name: str) -> date | None:
    """The first day that a path names, as 2026-03-01, 2026/03/01 (folders) or 20260301; what is no day is none."""
    hits = [match for pattern in DATES for match in pattern.finditer(name)]
    for match in sorted(hits, key=lambda match: match.start()):
        try:
            return date(*map(int, match.groups()))
        except ValueError:
            continue
    return None


def _named(file: File, stem: str) -> bool:
    return any(part.startswith(stem) for part in file.name.split("/"))
