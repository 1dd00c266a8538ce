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
from darklode.pipeline.ingest.columns import Columns, document_columns, event_columns, log_columns, query_columns
from darklode.pipeline.ingest.files import REMOTE, File, choose_documents, choose_queries, conversions, listing
from darklode.pipeline.ingest.log_partitions import (
    Partition,
    is_ubi,
    partitions_of,
    require_log_format,
    without_markers,
)
from darklode.pipeline.ingest.log_rows import Rules
from darklode.pipeline.ingest.log_rows import usable as usable_of_log
from darklode.pipeline.ingest.logs import planned
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.text import PIECE_BYTES
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import Block, Seen
from darklode.pipeline.ingest.times import check_zone
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import IngestSettings

FILES = 8
"""So many files with columns are looked into, the first megabyte of each."""
PAGES = 64
"""So many files of prose."""
TEXTS = 1000
"""So many queries are looked at for their language."""

Use = Callable[[Block], None]


class Nowhere:
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
    columns, seen, intake = document_columns(settings.documents.columns), Seen(), _intake("documents", path)

    def use(block: Block) -> None:
        documents.usable(block, intake, seen, settings)

    if choice.format == "folder":
        whole = _is_short(choice.files, PAGES)
        folder = documents.Folder(path, columns, intake, settings.max_row_bytes)
        _use(folder.read(choice) if whole else folder.blocks(choice.files[:PAGES]), use, whole=whole)
    else:
        whole = _read(choice.files, choice.format, Trial(columns, intake, settings), use)
    others = [f"{path}: {phrase}" for phrase in conversions(choice.others)]
    return [*others, *_told(intake, path, settings, whole=whole)]


def try_queries(path: str, settings: IngestSettings) -> list[str]:
    """Try to read queries; see `try_documents`."""
    choice = choose_queries(path, settings.queries.format)
    columns, seen, intake = query_columns(settings.queries.columns), Seen(), _intake("queries", path)

    def use(block: Block) -> None:
        queries.usable(block, intake, seen, settings)

    whole = _read(choice.files, choice.format, Trial(columns, intake, settings), use)
    return _told(intake, path, settings, whole=whole)


def first_queries(path: str, settings: IngestSettings) -> pa.StringArray:
    """Texts from the beginning of a query log, at most `TEXTS`, evenly spaced.

    Raises:
        InputError: as for `try_queries`.
    """
    choice = choose_queries(path, settings.queries.format)
    trial = Trial(query_columns(settings.queries.columns), _intake("queries", path), settings)
    blocks: list[Block] = []
    _read(choice.files, choice.format, trial, blocks.append)
    texts = pa.concat_arrays([pa.array([], pa.string()), *(block.columns["text"] for block in blocks)]).drop_null()
    return texts[:: max(1, -(-len(texts) // TEXTS))]


def try_log(
    path: str, settings: LogSettings, ingest: IngestSettings, dates: Collection[date] | None, known: Mapping[str, Any]
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
    if not known:
        require_log_format(path, files, settings.format)
    partitions, ubi = partitions_of(files, settings.format), is_ubi(files, settings.format)
    planned(partitions, dates, known, settings.late_days if ubi else 0)
    if path.startswith(REMOTE):
        return []
    intake, tried = _intake("impressions", path), _both_ends(list(partitions.values()))
    form = None if settings.format in {"auto", "ubi"} else settings.format
    trial = Trial(event_columns(settings.columns) if ubi else log_columns(settings.columns), intake, ingest)
    whole = len(tried) == len(partitions) and not ubi
    for one in tried:
        rules = Rules(settings, ingest, one.date)

        def use(block: Block, rules: Rules = rules) -> None:
            if not ubi:
                usable_of_log(block, rules, intake)

        whole = _read(one.files, form, trial, use) and whole
    return _told(intake, path, ingest, whole=whole)


def _both_ends(partitions: Sequence[Partition]) -> list[Partition]:
    """The first and the last partitions: a new night's log is among them."""
    half = FILES // 2
    return [*partitions] if len(partitions) <= FILES else [*partitions[:half], *partitions[-half:]]


def _intake(kind: str, path: str) -> Intake:
    return Intake(Nowhere(), kind, path, ())


@dataclass(frozen=True)
class Trial:
    """What the files of one source are read with."""

    columns: Columns
    intake: Intake
    settings: IngestSettings


def _read(files: Sequence[File], form: str | None, trial: Trial, use: Use) -> bool:
    """Use the beginning of each of the first files; whether that was all there is."""
    whole = _is_short(files, FILES)
    for file in files[:FILES]:
        _use(read_tabular(file, form, trial.columns, trial.intake, trial.settings.max_row_bytes), use, whole=whole)
    return whole


def _use(blocks: Iterator[Block], use: Use, *, whole: bool) -> None:
    for block in blocks if whole else islice(blocks, 1):
        use(block)


def _is_short(files: Sequence[File], most: int) -> bool:
    return len(files) <= most and _bytes(files) < PIECE_BYTES


def _bytes(files: Sequence[File]) -> int:
    """Bytes that may have to be read; a packed file is as good as a long one."""
    return sum(PIECE_BYTES if file.name.lower().endswith(".gz") else file.size for file in files)


def _told(intake: Intake, path: str, settings: IngestSettings, *, whole: bool) -> list[str]:
    tally = intake.tally()
    if whole:
        tally.check(path, intake.name, intake.kind.columns, settings.max_reject_share)
    bad = tally.own - tally.kept
    remedy = tally.remedy().rstrip("; ")
    told = [f"{path}: {bad} of its first {tally.own} rows cannot be read ({tally.worst()}) {remedy}".rstrip()]
    return [*intake.remarks, *(told if bad else [])]
