"""An input tried out: the beginning of its first files, read by the stage's own readers and held to its own rules.

What would stop the stage stops the trial with the same words, before an hour of work instead of after it.
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
from darklode.pipeline.ingest.files import REMOTE, InputFile, choose_documents, choose_queries, conversions, listing
from darklode.pipeline.ingest.log_partitions import (
    LogPartition,
    is_ubi,
    partitions_of,
    require_log_format,
    without_markers,
)
from darklode.pipeline.ingest.log_rows import LogRules
from darklode.pipeline.ingest.log_rows import select_usable as usable_of_log
from darklode.pipeline.ingest.logs import plan_days
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.text import PIECE_BYTES
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import RowBlock, SeenKeys
from darklode.pipeline.ingest.timestamps import check_zone
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import IngestSettings

FILES = 8
"""So many files with columns are looked into, the first megabyte of each."""
PAGES = 64
"""So many files of prose."""
TEXTS = 1000
"""So many queries are looked at for their language."""

Use = Callable[[RowBlock], None]


class DiscardOutput:
    """An output that keeps nothing."""

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """Tell nobody."""

    def reject(self, stage: str, table: str, columns: dict[str, Any]) -> None:
        """Keep no reject."""

    def count(self, step: FunnelStep) -> None:
        """Count nothing."""


def try_documents(path: str, settings: IngestSettings) -> list[str]:
    """Try to read documents; what is worth knowing besides comes back, a sentence each.

    Raises:
        InputError: the stage would end with it.
        TooManyRejects: likewise, where the trial saw the whole source.
    """
    choice = choose_documents(path, settings.documents.format)
    columns, seen_keys, intake = (
        document_columns(settings.documents.columns),
        SeenKeys(),
        _preview_intake("documents", path),
    )

    def use(block: RowBlock) -> None:
        documents.select_usable(block, intake, seen_keys, settings)

    if choice.format == "folder":
        reads_all = _is_short(choice.files, PAGES)
        folder = documents.FolderReader(path, columns, intake, settings.max_row_bytes)
        _use(folder.read(choice) if reads_all else folder.blocks(choice.files[:PAGES]), use, reads_all=reads_all)
    else:
        reads_all = _read(choice.files, choice.format, SourcePreview(columns, intake, settings), use)
    messages = [f"{path}: {phrase}" for phrase in conversions(choice.other_files)]
    return [*messages, *_format_problems(intake, path, settings, reads_all=reads_all)]


def try_queries(path: str, settings: IngestSettings) -> list[str]:
    """Try to read queries; see `try_documents`."""
    choice = choose_queries(path, settings.queries.format)
    columns, seen_keys, intake = query_columns(settings.queries.columns), SeenKeys(), _preview_intake("queries", path)

    def use(block: RowBlock) -> None:
        queries.select_usable(block, intake, seen_keys, settings)

    reads_all = _read(choice.files, choice.format, SourcePreview(columns, intake, settings), use)
    return _format_problems(intake, path, settings, reads_all=reads_all)


def first_queries(path: str, settings: IngestSettings) -> pa.StringArray:
    """Texts from the beginning of a query log, at most `TEXTS`, evenly spaced.

    Raises:
        InputError: as for `try_queries`.
    """
    choice = choose_queries(path, settings.queries.format)
    trial = SourcePreview(query_columns(settings.queries.columns), _preview_intake("queries", path), settings)
    blocks: list[RowBlock] = []
    _read(choice.files, choice.format, trial, blocks.append)
    texts = pa.concat_arrays([pa.array([], pa.string()), *(block.columns["text"] for block in blocks)]).drop_null()
    return texts[:: max(1, -(-len(texts) // TEXTS))]


def try_log(
    path: str,
    settings: LogSettings,
    ingest: IngestSettings,
    dates: Collection[date] | None,
    earlier_days: Mapping[str, Any],
) -> list[str]:
    """Try to read a search log, its first days and its last ones; objects below `s3://` are only listed.

    Args:
        path, settings, ingest, dates, known: as for `ingest_logs`.

    Raises:
        SettingsError: the time zone is not known.
        InputError: the stage would end with it.
    """
    check_zone(settings.time_zone)
    files = without_markers(listing(path, remote=True))
    if not earlier_days:
        require_log_format(path, files, settings.format)
    partitions, ubi = partitions_of(files, settings.format), is_ubi(files, settings.format)
    plan_days(partitions, dates, earlier_days, settings.max_late_days if ubi else 0)
    if path.startswith(REMOTE):
        return []
    intake, tried = _preview_intake("impressions", path), _both_ends(list(partitions.values()))
    form = None if settings.format in {"auto", "ubi"} else settings.format
    trial = SourcePreview(event_columns(settings.columns) if ubi else log_columns(settings.columns), intake, ingest)
    reads_all = len(tried) == len(partitions) and not ubi
    for partition in tried:
        rules = LogRules(settings, ingest, partition.date)

        def use(block: RowBlock, rules: LogRules = rules) -> None:
            if not ubi:
                usable_of_log(block, rules, intake)

        reads_all = _read(partition.files, form, trial, use) and reads_all
    return _format_problems(intake, path, ingest, reads_all=reads_all)


def _both_ends(partitions: Sequence[LogPartition]) -> list[LogPartition]:
    """The first and the last partitions: a new night's log is among them."""
    half = FILES // 2
    return [*partitions] if len(partitions) <= FILES else [*partitions[:half], *partitions[-half:]]


def _preview_intake(kind: str, path: str) -> Intake:
    return Intake(DiscardOutput(), kind, path, ())


@dataclass(frozen=True)
class SourcePreview:
    """What the files of one source are read with."""

    columns: ColumnMapping
    intake: Intake
    settings: IngestSettings


def _read(files: Sequence[InputFile], form: str | None, trial: SourcePreview, use: Use) -> bool:
    """Use the beginning of each of the first files; whether that was all there is."""
    reads_all = _is_short(files, FILES)
    for file in files[:FILES]:
        _use(
            read_tabular(file, form, trial.columns, trial.intake, trial.settings.max_row_bytes),
            use,
            reads_all=reads_all,
        )
    return reads_all


def _use(blocks: Iterator[RowBlock], use: Use, *, reads_all: bool) -> None:
    for block in blocks if reads_all else islice(blocks, 1):
        use(block)


def _is_short(files: Sequence[InputFile], max_files: int) -> bool:
    return len(files) <= max_files and _bytes(files) < PIECE_BYTES


def _bytes(files: Sequence[InputFile]) -> int:
    """Bytes that may have to be read; a packed file is as good as a long one."""
    return sum(PIECE_BYTES if file.name.lower().endswith(".gz") else file.size for file in files)


def _format_problems(intake: Intake, path: str, settings: IngestSettings, *, reads_all: bool) -> list[str]:
    tally = intake.tally()
    if reads_all:
        tally.check(path, intake.name, intake.kind.columns, settings.max_reject_share)
    bad = tally.n_own - tally.n_kept
    remedy = tally.remedy().rstrip("; ")
    messages = [
        f"{path}: {bad} of its first {tally.n_own} rows cannot be read ({tally.main_reasons()}) {remedy}".rstrip()
    ]
    return [*intake.remarks, *(messages if bad else [])]
