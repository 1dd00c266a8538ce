"""Ingest search logs, day by day, into one table of impressions.

Only changed partitions are read (from `s3://` through local copies); output of the others is reused.
"""

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from darklode.pipeline.base.artifacts import Output, Stage, Store, Unit, key_of
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.columns import log_columns
from darklode.pipeline.ingest.files import REMOTE_PREFIX, InputFile, list_files
from darklode.pipeline.ingest.log_partitions import (
    LogPartition,
    is_ubi,
    partitions_of,
    remove_marker_files,
    require_log_format,
)
from darklode.pipeline.ingest.log_rows import LogRules, LogStaging, mask_personal_data, open_staging, select_usable
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.ubi import UbiFiles, read_ubi
from darklode.pipeline.ingest.rejects import Intake, RowCounts
from darklode.pipeline.ingest.timestamps import check_zone
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import IngestSettings

NO_QUERY_FILES = "none"  # fingerprint of an earlier day that has no query files
MAX_SUGGESTED_DATES = 3  # dates suggested in an error


@dataclass(frozen=True)
class PlannedDay:
    """Plan for one partition of the log: read it, or reuse its rows of the last run.

    Attributes:
        name: the partition's name: its day, or a file name.
        source: the partition's files; None if they no longer exist.
        basis: fingerprint of the partition's files and of the query files of earlier days, on which its rows depend;
            None if its files no longer exist.
        recorded: the basis when the partition was last read; None if it never was.
        is_selected: whether to read the partition if its basis has changed.
        earlier: existing partitions of the preceding days, nearest first. An event of a UBI log may refer to a query
            that was logged on one of these days.
    """

    name: str
    source: LogPartition | None
    basis: str | None
    recorded: str | None
    is_selected: bool
    earlier: tuple[LogPartition, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """Whether it was read before and need not be read again."""
        return self.recorded is not None and (not self.is_selected or self.basis == self.recorded)


def plan_days(
    partitions: Mapping[str, LogPartition],
    dates: Collection[date] | None,
    earlier_days: Mapping[str, Any],
    days_before: int,
) -> list[PlannedDay]:
    """Plan all partitions that were read before or are to be read; returns the plans sorted by name.

    Args:
        partitions: existing partitions by name.
        dates: days to read; None: all.
        earlier_days: basis of each partition when it was last read, by name.
        days_before: number of preceding days whose query files the rows of a partition depend on.

    Raises:
        InputError: a day in `dates` has no partition.
    """
    _check_days(partitions, dates, earlier_days)
    plans = []
    for name in sorted({*partitions, *earlier_days}):
        source = partitions.get(name)
        recorded = earlier_days.get(name)
        is_selected = source is not None and (dates is None or source.date in dates)
        if not is_selected and recorded is None:
            continue
        preceding = dict(_preceding_partitions(source, partitions, days_before)) if source else {}
        basis = _compute_basis(source, preceding, recorded) if source else None
        existing = tuple(partition for partition in preceding.values() if partition)
        plans.append(PlannedDay(name, source, basis, recorded, is_selected, existing))
    return plans


def _check_days(
    partitions: Mapping[str, LogPartition], dates: Collection[date] | None, earlier_days: Mapping[str, Any]
) -> None:
    """Raise InputError for a day that neither has a partition nor was read before; name the nearest days."""
    available = sorted(partition.date for partition in partitions.values() if partition.date)
    for day in sorted(dates or ()):
        if day not in available and day.isoformat() not in earlier_days:
            nearest_days = sorted(
                sorted(available, key=lambda available_day: abs(available_day - day))[:MAX_SUGGESTED_DATES]
            )
            day_names = ", ".join(nearest_day.isoformat() for nearest_day in nearest_days) or "none with a date"
            raise InputError(f"the log has no partition for {day.isoformat()}; nearest: {day_names}")


def _preceding_partitions(
    source: LogPartition, partitions: Mapping[str, LogPartition], days: int
) -> Iterator[tuple[str, LogPartition | None]]:
    """Yield names and partitions of the days before a partition, nearest first; None for a day without one."""
    if source.date:
        for n_days_back in range(1, days + 1):
            name = (source.date - timedelta(days=n_days_back)).isoformat()
            yield name, partitions.get(name)


def _compute_basis(source: LogPartition, preceding: Mapping[str, LogPartition | None], recorded: str | None) -> str:
    """Join the fingerprints of a partition and of the query files of the preceding days with `-`.

    If the partition itself is unchanged, a preceding day whose files no longer exist keeps its recorded fingerprint:
    deleting old logs must not cause later days to be read again.
    """
    fingerprints = [
        source.fingerprint,
        *(
            partition.search_fingerprint if partition and partition.searches else NO_QUERY_FILES
            for partition in preceding.values()
        ),
    ]
    recorded_fingerprints = (recorded or "").split("-")
    if len(recorded_fingerprints) == len(fingerprints) and recorded_fingerprints[0] == fingerprints[0]:
        fingerprints = [
            recorded_fingerprint if fingerprint == NO_QUERY_FILES else fingerprint
            for recorded_fingerprint, fingerprint in zip(recorded_fingerprints, fingerprints, strict=True)
        ]
    return "-".join(fingerprints)


@contextmanager
def local_files(path: str, files: Sequence[InputFile]) -> Iterator[list[InputFile]]:
    """Make files available locally: those on `s3://` as copies that are deleted on exit.

    Raises:
        InputError: a file cannot be copied.
    """
    if not path.startswith(REMOTE_PREFIX):
        yield list(files)
        return
    store = Store(path)
    with tempfile.TemporaryDirectory(prefix="darklode-log-") as folder:
        try:
            yield [_local_copy(store, file, Path(folder)) for file in files]
        except InputError as error:
            raise InputError(str(error).replace(folder, store.url)) from error


def _local_copy(store: Store, file: InputFile, folder: Path) -> InputFile:
    """Copy a remote file into a folder; raises InputError if it cannot be read."""
    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with store.filesystem.open_input_stream(str(file.path), compression=None) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)  # 1 MiB at a time
    except OSError as error:
        raise InputError(f"{target} cannot be read ({error}); check the bucket and AWS_*") from error
    return replace(file, path=target)


OTHER_FILES_UNIT = "others"  # unit of the files that belong to no partition


class LogReader:
    """Reads the partitions of a log, each as one unit of the output.

    A unit is the part of a stage's output that is reused as long as its key, here the basis, stays the same.

    Attributes:
        intake: counts rows and receives the rejected ones.
        sources: basis of each partition whose rows are in the output, by partition name.
        days: numbers of the output parts with the impressions of a day, by day.
    """

    def __init__(self, path: str, output: Output, settings: LogSettings, ingest: IngestSettings, *, ubi: bool) -> None:
        self._path = path
        self._output = output
        self._settings = settings
        self._ingest = ingest
        self._ubi = ubi
        masking = mask_personal_data if settings.mask_personal_data else None
        self.intake = Intake(output, "impressions", path, (), masking)
        self.sources: dict[str, str] = {}
        self.days: dict[str, list[int]] = {}

    def read(self, plans: list[PlannedDay], other_files: list[InputFile]) -> tuple[RowCounts, RowCounts]:
        """Read changed partitions and reuse the rows of the others.

        Args:
            plans: plans of all partitions.
            other_files: files that belong to no partition; they are rejected.

        Returns:
            Row counts of all partitions and other files, and of the partitions whose basis is new.
        """
        self.intake.expect(file for plan in plans if plan.source and not plan.is_unchanged for file in plan.source.all)
        total, new = RowCounts(), RowCounts()
        for plan in plans:
            basis = self._choose_basis(plan)
            with self._output.unit(plan.name, basis) as unit:
                if not unit.done:
                    self._write_partition(unit, plan)
            self._record_days(unit)
            self.sources[plan.name] = basis
            total.add(RowCounts.from_facts(unit.facts["tally"]))
            if basis != plan.recorded:
                new.add(RowCounts.from_facts(unit.facts["tally"]))
        total.add(self._reject_others(other_files))
        return total, new

    def _reject_others(self, other_files: list[InputFile]) -> RowCounts:
        """Reject files that belong to no partition; returns their counts."""
        with self._output.unit(OTHER_FILES_UNIT, key_of([file.name for file in other_files])) as unit:
            if not unit.done:
                for file in other_files:
                    self.intake.reject_file(file)
                unit.facts["tally"] = self.intake.tally().facts()
        return RowCounts.from_facts(unit.facts["tally"])

    def _choose_basis(self, plan: PlannedDay) -> str:
        """Basis of the partition's unit: the recorded one, unless the partition must be read again.

        An unselected partition whose files changed keeps its recorded basis if its old unit is still intact.
        """
        if plan.recorded is None or not plan.is_unchanged:
            return plan.basis or ""
        if plan.basis is None or plan.basis == plan.recorded or self._output.is_done(plan.name, plan.recorded):
            return plan.recorded
        return plan.basis

    def _write_partition(self, unit: Unit, plan: PlannedDay) -> None:
        """Read a partition into its unit; raises InputError if its files no longer exist."""
        if plan.source is None:
            raise InputError(
                f"{plan.name} must be read again (settings changed, or its parts are damaged), but its files are gone "
                f"from {self._path}; restore them, or start a new run without this day"
            )
        days = []
        with open_staging() as staged:
            shift = self._stage(plan.source, plan.earlier, staged)
            for day, pieces in groupby(staged.pieces(shift), itemgetter(0)):
                n_parts_before = len(self._output.parts["impressions"])
                with self._output.row_group_writer("impressions", PART_ROWS) as write_rows:
                    for _, rows in pieces:
                        write_rows(rows)
                days += [day.isoformat()] * (len(self._output.parts["impressions"]) - n_parts_before)
        unit.facts |= {"tally": self.intake.tally().facts(), "days": days}

    def _stage(self, source: LogPartition, earlier: Sequence[LogPartition], staged: LogStaging) -> int:
        """Read a partition's rows into the staging table; returns the offset that makes positions count from 1."""
        rules = LogRules(self._settings, self._ingest, source.date)
        for file in source.other_files:
            self.intake.reject_file(file)
        preceding_searches = [file for partition in earlier for file in partition.searches]
        with (
            local_files(self._path, source.files) as files,
            local_files(self._path, source.searches) as searches,
            local_files(self._path, preceding_searches) as searches_before,
        ):
            if self._ubi:
                read_ubi(UbiFiles(files, searches, searches_before), rules, self.intake, staged)
            else:
                self._read_rows(files, rules, staged)
        return rules.position_shift(has_zero=staged.has_zero_position)

    def _read_rows(self, files: Sequence[InputFile], rules: LogRules, staged: LogStaging) -> None:
        """Stage the rows of tabular files, such as CSV or Parquet."""
        file_format = None if self._settings.format == "auto" else self._settings.format
        columns = log_columns(self._settings.columns)
        for file in files:
            for block in read_tabular(file, file_format, columns, self.intake, self._ingest.max_row_bytes):
                staged.add(select_usable(block, rules, self.intake))

    def _record_days(self, unit: Unit) -> None:
        """Add the numbers of the unit's parts, which are the last parts of the output, to their days."""
        n_parts = len(self._output.parts["impressions"])
        first_part = n_parts - len(unit.facts["days"])
        for number, day in enumerate(unit.facts["days"], first_part):
            self.days.setdefault(day, []).append(number)


INGEST_LOGS = Stage("ingest_logs", 6, (), ("impressions",))


def ingest_logs(
    path: str,
    output: Output,
    settings: LogSettings,
    ingest: IngestSettings,
    *,
    dates: Collection[date] | None = None,
    earlier_days: Mapping[str, Any] | None = None,
) -> None:
    """Read search logs into `impressions`, one unit per partition; unreadable rows go to `rejects`.

    A partition is the files of a day. Each part of the output has rows of one day (UTC). Facts for later stages and the
    next run: `days` has the part numbers of each day, `sources` the basis of each partition, the fingerprint of the
    files that its rows depend on. Memory is bounded by a part (262,144 rows) and, for UBI, the queries of a partition;
    DuckDB sorts a partition and spills to disk.

    Args:
        path: a file, a folder or an `s3://` prefix.
        output: receives rows and rejects.
        settings: settings `logs`.
        ingest: settings `ingest`: tenant, maximum row length, maximum share of rejects.
        dates: days to read, None for all; rows of other days that were read before stay in the table.
        earlier_days: `facts["sources"]` of the last complete run; its days stay, even if their files no longer exist.

    Raises:
        SettingsError: unknown time zone.
        InputError: there is nothing to read, a day has no partition, a file is unreadable or has a missing column, or
            the files of a partition to be read again are gone.
        TooManyRejects: more than `ingest.max_reject_share` of the new rows (or of all, if none are new) are unreadable.
    """
    check_zone(settings.time_zone)
    files = remove_marker_files(list_files(path, remote=True))
    if not earlier_days:
        require_log_format(path, files, settings.format)
    partitions = partitions_of(files, settings.format)
    ubi = is_ubi(files, settings.format)
    plans = plan_days(partitions, dates, earlier_days or {}, settings.max_late_days if ubi else 0)
    reader = LogReader(path, output, settings, ingest, ubi=ubi)
    total, new = reader.read(plans, _other_files(files, partitions))
    checked_counts = new if new.n_own else total  # the rows of earlier runs were checked then
    checked_counts.check(path, "impressions", reader.intake.kind.columns, ingest.max_reject_share)
    output.count(total.step("impressions"))
    output.facts["sources"] = reader.sources
    output.facts["days"] = {day: reader.days[day] for day in sorted(reader.days)}


def log_sources(
    path: str, settings: LogSettings, dates: Collection[date] | None, earlier_days: Mapping[str, Any]
) -> dict[str, str | None]:
    """Basis of each partition that `ingest_logs` would have afterwards, by name, without reading the log.

    Raises:
        InputError: there is nothing to read, or a day has no partition.
    """
    files = remove_marker_files(list_files(path, remote=True))
    late_days = settings.max_late_days if is_ubi(files, settings.format) else 0
    plans = plan_days(partitions_of(files, settings.format), dates, earlier_days, late_days)
    return {plan.name: plan.recorded if plan.is_unchanged else plan.basis for plan in plans}


def _other_files(files: list[InputFile], partitions: Mapping[str, LogPartition]) -> list[InputFile]:
    """The files that belong to no partition."""
    partition_files = {file.name for partition in partitions.values() for file in partition.all}
    return [file for file in files if file.name not in partition_files]
