"""Check an input before a run: read the beginning of its first files with the stage's readers and rules.

Errors are those of the stage, but appear before the run starts.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep
from darklode.pipeline.ingest import documents, queries
from darklode.pipeline.ingest.columns import ColumnMapping, document_columns, event_columns, log_columns, query_columns
from darklode.pipeline.ingest.files import (
    REMOTE_PREFIX,
    InputFile,
    choose_documents,
    choose_queries,
    conversion_advice,
    list_files,
)
from darklode.pipeline.ingest.judgments import judgment_files
from darklode.pipeline.ingest.log_partitions import (
    LogPartition,
    is_ubi,
    partitions_of,
    remove_marker_files,
    require_log_format,
)
from darklode.pipeline.ingest.log_rows import LogRules
from darklode.pipeline.ingest.log_rows import select_usable as usable_of_log
from darklode.pipeline.ingest.logs import plan_days
from darklode.pipeline.ingest.readers.judgment_files import read_judgments
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.text import PIECE_BYTES
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, SeenKeys
from darklode.pipeline.ingest.timestamps import check_zone
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import IngestSettings

MAX_CHECKED_FILES = 8
"""Maximum number of tabular files checked, the first megabyte of each."""
MAX_CHECKED_PAGES = 64
"""Maximum number of Markdown, HTML and text files checked."""
MAX_SAMPLED_QUERIES = 1000
"""Maximum number of queries sampled for language detection."""

Use = Callable[[RowBlock], None]


class DiscardOutput:
    """An output that discards everything."""

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """Discard."""

    def reject(self, stage: str, table: str, columns: dict[str, Any]) -> None:
        """Discard."""

    def count(self, step: FunnelStep) -> None:
        """Discard."""


def check_documents(path: str, settings: IngestSettings) -> list[str]:
    """Check an input of documents; returns warnings, one sentence each.

    Raises:
        InputError: the stage would raise it.
        TooManyRejects: the stage would raise it; only checked if the whole source was read.
    """
    choice = choose_documents(path, settings.documents.format)
    columns = document_columns(settings.documents.columns)
    seen_keys = SeenKeys()
    intake = _preview_intake("documents", path)

    def use(block: RowBlock) -> None:
        documents.select_usable(block, intake, seen_keys, settings)

    if choice.format == "folder":
        reads_all = _is_short(choice.files, MAX_CHECKED_PAGES)
        folder = documents.FolderReader(path, columns, intake, settings.max_row_bytes)
        _use_blocks(
            folder.read(choice) if reads_all else folder.blocks(choice.files[:MAX_CHECKED_PAGES]),
            use,
            reads_all=reads_all,
        )
    else:
        reads_all = _read_beginnings(choice.files, choice.format, SourcePreview(columns, intake, settings), use)
    messages = [f"{path}: {phrase}" for phrase in conversion_advice(choice.other_files)]
    return [*messages, *_format_problems(intake, path, settings, reads_all=reads_all)]


def check_queries(path: str, settings: IngestSettings) -> list[str]:
    """Check an input of queries, as `check_documents` does."""
    choice = choose_queries(path, settings.queries.format)
    columns, seen_keys, intake = query_columns(settings.queries.columns), SeenKeys(), _preview_intake("queries", path)

    def use(block: RowBlock) -> None:
        queries.select_usable(block, intake, seen_keys, settings)

    reads_all = _read_beginnings(choice.files, choice.format, SourcePreview(columns, intake, settings), use)
    return _format_problems(intake, path, settings, reads_all=reads_all)


def check_judgments(path: str, settings: IngestSettings) -> list[str]:
    """Check judgments: the beginning of each file; ids are checked by the stage.

    Raises:
        InputError: the stage would raise it.
    """
    files = judgment_files(path)
    intake = _preview_intake("judgments", path)
    for file in files[:MAX_CHECKED_FILES]:
        for _block in islice(read_judgments(file, intake, settings.max_row_bytes), 1):
            pass
    return _format_problems(intake, path, settings, reads_all=False)


def first_queries(path: str, settings: IngestSettings) -> pa.StringArray:
    """At most `MAX_SAMPLED_QUERIES` queries from the beginning of a query log, evenly spaced.

    Raises:
        InputError: as for `check_queries`.
    """
    choice = choose_queries(path, settings.queries.format)
    preview = SourcePreview(query_columns(settings.queries.columns), _preview_intake("queries", path), settings)
    blocks: list[RowBlock] = []
    _read_beginnings(choice.files, choice.format, preview, blocks.append)
    texts = pa.concat_arrays([pa.array([], pa.string()), *(block.columns["text"] for block in blocks)]).drop_null()
    return texts[:: max(1, -(-len(texts) // MAX_SAMPLED_QUERIES))]


def check_log(
    path: str,
    settings: LogSettings,
    ingest: IngestSettings,
    dates: Collection[date] | None,
    earlier_days: Mapping[str, Any],
) -> list[str]:
    """Check a search log: its first and last days. Objects below `s3://` are only listed.

    Args:
        path, settings, ingest, dates: as for `ingest_logs`.
        earlier_days: as for `ingest_logs`, if they were read with the same settings: their files are not checked again.

    Raises:
        SettingsError: unknown time zone.
        InputError: the stage would raise it.
    """
    check_zone(settings.time_zone)
    files = remove_marker_files(list_files(path, remote=True))
    if not earlier_days:
        require_log_format(path, files, settings.format)
    partitions, ubi = partitions_of(files, settings.format), is_ubi(files, settings.format)
    plans = plan_days(partitions, dates, earlier_days, settings.max_late_days if ubi else 0)
    if path.startswith(REMOTE_PREFIX):
        return []
    read_before = {plan.name for plan in plans if plan.recorded is not None and plan.basis == plan.recorded}
    unread_partitions = [partition for name, partition in partitions.items() if name not in read_before]
    if not unread_partitions:
        return []
    intake, checked_partitions = _preview_intake("impressions", path), _both_ends(unread_partitions)
    file_format = None if settings.format in {"auto", "ubi"} else settings.format
    preview = SourcePreview(event_columns(settings.columns) if ubi else log_columns(settings.columns), intake, ingest)
    reads_all = len(checked_partitions) == len(unread_partitions) and not ubi
    for partition in checked_partitions:
        rules = LogRules(settings, ingest, partition.date)

        def use(block: RowBlock, rules: LogRules = rules) -> None:
            if not ubi:
                usable_of_log(block, rules, intake)

        reads_all = _read_beginnings(partition.files, file_format, preview, use) and reads_all
    return _format_problems(intake, path, ingest, reads_all=reads_all)


def _both_ends(partitions: Sequence[LogPartition]) -> list[LogPartition]:
    """The first and the last partitions; the last contain the new days."""
    half = MAX_CHECKED_FILES // 2
    return [*partitions] if len(partitions) <= MAX_CHECKED_FILES else [*partitions[:half], *partitions[-half:]]


def _preview_intake(kind: str, path: str) -> Intake:
    return Intake(DiscardOutput(), kind, path, ())


@dataclass(frozen=True)
class SourcePreview:
    """Arguments for reading the files of a source."""

    columns: ColumnMapping
    intake: Intake
    settings: IngestSettings


def _read_beginnings(files: Sequence[InputFile], file_format: str | None, preview: SourcePreview, use: Use) -> bool:
    """Read the beginning of the first files; returns whether that was the whole source."""
    reads_all = _is_short(files, MAX_CHECKED_FILES)
    for file in files[:MAX_CHECKED_FILES]:
        _use_blocks(
            read_tabular(file, file_format, preview.columns, preview.intake, preview.settings.max_row_bytes),
            use,
            reads_all=reads_all,
        )
    return reads_all


def _use_blocks(blocks: Iterator[RowBlock], use: Use, *, reads_all: bool) -> None:
    for block in blocks if reads_all else islice(blocks, 1):
        use(block)


def _is_short(files: Sequence[InputFile], max_files: int) -> bool:
    return len(files) <= max_files and _bytes(files) < PIECE_BYTES


def _bytes(files: Sequence[InputFile]) -> int:
    """Bytes to read; a compressed file counts as a long one."""
    return sum(PIECE_BYTES if file.name.lower().endswith(".gz") else file.size for file in files)


def _format_problems(intake: Intake, path: str, settings: IngestSettings, *, reads_all: bool) -> list[str]:
    tally = intake.tally()
    if reads_all:
        tally.check(path, intake.name, intake.kind.columns, settings.max_reject_share)
    n_unreadable = tally.n_own - tally.n_kept
    remedy = tally.remedy().rstrip("; ")
    messages = [
        f"{path}: {n_unreadable} of the first {tally.n_own} rows are unreadable "
        f"({tally.main_reasons()}) {remedy}".rstrip()
    ]
    return [*intake.remarks, *(messages if n_unreadable else [])]
