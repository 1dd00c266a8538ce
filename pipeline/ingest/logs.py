"""Stage 1 of `mine-logs`: search logs, day by day, as one table of impressions.

Partitions that changed are read (below an `s3://` prefix from copies of the objects), the others stay as they were.
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
from darklode.pipeline.ingest.files import REMOTE, InputFile, listing
from darklode.pipeline.ingest.log_partitions import (
    LogPartition,
    is_ubi,
    partitions_of,
    require_log_format,
    without_markers,
)
from darklode.pipeline.ingest.log_rows import LogRules, LogStaging, select_usable, staging, without_personal_data
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.ubi import UbiFiles, read_ubi
from darklode.pipeline.ingest.rejects import Intake, RowCounts
from darklode.pipeline.ingest.timestamps import check_zone
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import IngestSettings

NOTHING = "none"
NEAREST = 3


@dataclass(frozen=True)
class PlannedDay:
    """A partition on its way into a table.

    Attributes:
        name: the partition's name.
        source: its files; None where they are gone.
        basis: what its rows hang on, as its source is now; None where it is gone.
        recorded: the basis on which it was read before, or None.
        is_selected: whether it is to be read where its basis is another now.
        earlier: the partitions of the days before that a UBI log needs, nearest first.
    """

    name: str
    source: LogPartition | None
    basis: str | None
    recorded: str | None
    is_selected: bool
    earlier: tuple[LogPartition, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """Whether it was read before, and is not to be read again."""
        return self.recorded is not None and (not self.is_selected or self.basis == self.recorded)


def plan_days(
    partitions: Mapping[str, LogPartition],
    dates: Collection[date] | None,
    earlier_days: Mapping[str, Any],
    days_before: int,
) -> list[PlannedDay]:
    """The partitions that were read before and those to read, by name.

    Args:
        partitions: those that are there, by name.
        dates: the days to read; None: all there is.
        earlier_days: the basis of each partition that was read before, by name.
        days_before: so many days before its own a partition may need.

    Raises:
        InputError: a day that is asked for has no partition.
    """
    _check_days(partitions, dates, earlier_days)
    plans = []
    for name in sorted({*partitions, *earlier_days}):
        source, recorded = partitions.get(name), earlier_days.get(name)
        is_selected = source is not None and (dates is None or source.date in dates)
        if not is_selected and recorded is None:
            continue
        earlier = dict(_earlier_days(source, partitions, days_before)) if source else {}
        basis = _basis(source, earlier, recorded) if source else None
        neighbors = tuple(day_plan for day_plan in earlier.values() if day_plan)
        plans.append(PlannedDay(name, source, basis, recorded, is_selected, neighbors))
    return plans


def _check_days(
    partitions: Mapping[str, LogPartition], dates: Collection[date] | None, earlier_days: Mapping[str, Any]
) -> None:
    available = sorted(partition.date for partition in partitions.values() if partition.date)
    for day in sorted(dates or ()):
        if day not in available and day.isoformat() not in earlier_days:
            nearest_days = sorted(sorted(available, key=lambda other: abs(other - day))[:NEAREST])
            day_names = ", ".join(other.isoformat() for other in nearest_days) or "none with a date"
            raise InputError(f"the log has no partition of {day.isoformat()}; the nearest there are: {day_names}")


def _earlier_days(
    source: LogPartition, partitions: Mapping[str, LogPartition], days: int
) -> Iterator[tuple[str, LogPartition | None]]:
    if source.date:
        for back in range(1, days + 1):
            name = (source.date - timedelta(days=back)).isoformat()
            yield name, partitions.get(name)


def _basis(source: LogPartition, earlier: Mapping[str, LogPartition | None], recorded: str | None) -> str:
    """The marks of a partition and of its neighbours. A neighbour that is gone counts as it was when it was read."""
    marks = [
        source.mark,
        *(day_plan.search_mark if day_plan and day_plan.searches else NOTHING for day_plan in earlier.values()),
    ]
    before = (recorded or "").split("-")
    if len(before) == len(marks) and before[0] == marks[0]:
        marks = [old if new == NOTHING else new for old, new in zip(before, marks, strict=True)]
    return "-".join(marks)


@contextmanager
def at_hand(path: str, files: Sequence[InputFile]) -> Iterator[list[InputFile]]:
    """The files where they can be opened: those below an `s3://` prefix as copies that are gone afterwards.

    Raises:
        InputError: one cannot be copied.
    """
    if not path.startswith(REMOTE):
        yield list(files)
        return
    store = Store(path)
    with tempfile.TemporaryDirectory(prefix="darklode-log-") as folder:
        try:
            yield [_local_copy(store, file, Path(folder)) for file in files]
        except InputError as error:
            raise InputError(str(error).replace(folder, store.url)) from error


def _local_copy(store: Store, file: InputFile, folder: Path) -> InputFile:
    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with store.filesystem.open_input_stream(str(file.path), compression=None) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    except OSError as error:
        raise InputError(f"{target} cannot be read ({error}); check the bucket and AWS_*") from error
    return replace(file, path=target)


OTHERS = "others"


class LogReader:
    """One pass over the partitions of a log.

    Attributes:
        intake: the rejects.
        sources: what each partition's rows hang on, by partition.
        days: the numbers of the parts that hold a day's rows, by day.
    """

    def __init__(self, path: str, output: Output, settings: LogSettings, ingest: IngestSettings, *, ubi: bool) -> None:
        self._path, self._output, self._settings, self._ingest, self._ubi = path, output, settings, ingest, ubi
        masking = without_personal_data if settings.mask_personal_data else None
        self.intake = Intake(output, "impressions", path, (), masking)
        self.sources: dict[str, str] = {}
        self.days: dict[str, list[int]] = {}

    def read(self, plans: list[PlannedDay], other_files: list[InputFile]) -> tuple[RowCounts, RowCounts]:
        """Read the partitions that are new and take those that stay; return the counts of all, and of the new."""
        self.intake.expect(file for plan in plans if plan.source and not plan.is_unchanged for file in plan.source.all)
        everything, fresh = RowCounts(), RowCounts()
        for plan in plans:
            basis = self._basis(plan)
            with self._output.unit(plan.name, basis) as unit:
                if not unit.done:
                    self._fill(unit, plan)
            self._place(unit)
            self.sources[plan.name] = basis
            everything.add(RowCounts.from_facts(unit.facts["tally"]))
            if basis != plan.recorded:
                fresh.add(RowCounts.from_facts(unit.facts["tally"]))
        everything.add(self._reject_others(other_files))
        return everything, fresh

    def _reject_others(self, other_files: list[InputFile]) -> RowCounts:
        with self._output.unit(OTHERS, key_of([file.name for file in other_files])) as unit:
            if not unit.done:
                for file in other_files:
                    self.intake.reject_file(file)
                unit.facts["tally"] = self.intake.tally().facts()
        return RowCounts.from_facts(unit.facts["tally"])

    def _basis(self, plan: PlannedDay) -> str:
        """What the partition's unit hangs on: as it was read before, unless it is to be read again, or has to be."""
        if plan.recorded is None or not plan.is_unchanged:
            return plan.basis or ""
        if plan.basis is None or plan.basis == plan.recorded or self._output.is_done(plan.name, plan.recorded):
            return plan.recorded
        return plan.basis

    def _fill(self, unit: Unit, plan: PlannedDay) -> None:
        if plan.source is None:
            raise InputError(
                f"{plan.name} has to be read again (for other settings, or as its parts are damaged), but is gone from "
                f"{self._path}; bring its files back, or begin a new run without it"
            )
        days = []
        with staging() as staged:
            shift = self._stage(plan.source, plan.earlier, staged)
            for day, pieces in groupby(staged.pieces(shift), itemgetter(0)):
                before = len(self._output.parts["impressions"])
                with self._output.row_group_writer("impressions", PART_ROWS) as take:
                    for _, rows in pieces:
                        take(rows)
                days += [day.isoformat()] * (len(self._output.parts["impressions"]) - before)
        unit.facts |= {"tally": self.intake.tally().facts(), "days": days}

    def _stage(self, source: LogPartition, earlier: Sequence[LogPartition], staged: LogStaging) -> int:
        """Stage a partition's rows; return what is to be added to their positions."""
        rules = LogRules(self._settings, self._ingest, source.date)
        for file in source.other_files:
            self.intake.reject_file(file)
        before = [file for day_plan in earlier for file in day_plan.searches]
        with (
            at_hand(self._path, source.files) as files,
            at_hand(self._path, source.searches) as searches,
            at_hand(self._path, before) as searches_before,
        ):
            if self._ubi:
                read_ubi(UbiFiles(files, searches, searches_before), rules, self.intake, staged)
            else:
                self._read_rows(files, rules, staged)
        return rules.shift(zero=staged.zero)

    def _read_rows(self, files: Sequence[InputFile], rules: LogRules, staged: LogStaging) -> None:
        form = None if self._settings.format == "auto" else self._settings.format
        columns = log_columns(self._settings.columns)
        for file in files:
            for block in read_tabular(file, form, columns, self.intake, self._ingest.max_row_bytes):
                staged.add(select_usable(block, rules, self.intake))

    def _place(self, unit: Unit) -> None:
        """Note which parts hold which days."""
        end = len(self._output.parts["impressions"])
        begin = end - len(unit.facts["days"])
        for number, day in enumerate(unit.facts["days"], begin):
            self.days.setdefault(day, []).append(number)


INGEST_LOGS = Stage("ingest_logs", 4, (), ("impressions",))


def ingest_logs(
    path: str,
    output: Output,
    settings: LogSettings,
    ingest: IngestSettings,
    *,
    dates: Collection[date] | None = None,
    earlier_days: Mapping[str, Any] | None = None,
) -> None:
    """Read search logs into `impressions`, a unit for each partition; what cannot be read goes to `rejects`.

    Each part holds rows of one day (UTC). The facts say which: `days` has the numbers of the parts of `impressions`
    by day, and `sources` the basis of each partition, which the next run wants to know. Memory holds a part's rows
    (262,144), and for UBI the queries of a partition; the rows of a partition wait in DuckDB, which spills to disk.

    Args:
        path: a file, a folder or an `s3://` prefix.
        output: where the rows go.
        settings: how the log is read.
        ingest: the tenant, the longest row, and the share of rejects that passes.
        dates: read only the partitions of these days, besides those read before; None: all.
        earlier_days: `facts["sources"]` of the last complete run: its days stay, even when their files are gone.

    Raises:
        SettingsError: the time zone is not known.
        InputError: there is nothing to read, a day has no partition, a file cannot be read at all or lacks a column,
            or a partition has to be read again whose files are gone.
        TooManyRejects: more than `ingest.max_reject_share` of the rows that are new cannot be read; where none is new,
            of all rows.
    """
    check_zone(settings.time_zone)
    files = without_markers(listing(path, remote=True))
    if not earlier_days:
        require_log_format(path, files, settings.format)
    partitions = partitions_of(files, settings.format)
    ubi = is_ubi(files, settings.format)
    plans = plan_days(partitions, dates, earlier_days or {}, settings.max_late_days if ubi else 0)
    reader = LogReader(path, output, settings, ingest, ubi=ubi)
    everything, fresh = reader.read(plans, _other_files(files, partitions))
    checked = fresh if fresh.n_own else everything
    checked.check(path, "impressions", reader.intake.kind.columns, ingest.max_reject_share)
    output.count(everything.step("impressions"))
    output.facts["sources"] = reader.sources
    output.facts["days"] = {day: reader.days[day] for day in sorted(reader.days)}


def log_sources(
    path: str, settings: LogSettings, dates: Collection[date] | None, earlier_days: Mapping[str, Any]
) -> dict[str, str | None]:
    """What `ingest_logs` would read, without reading it: the basis of each partition, by name.

    Raises:
        InputError: there is nothing to read, or a day has no partition.
    """
    files = without_markers(listing(path, remote=True))
    late_days = settings.max_late_days if is_ubi(files, settings.format) else 0
    plans = plan_days(partitions_of(files, settings.format), dates, earlier_days, late_days)
    return {plan.name: plan.recorded if plan.is_unchanged else plan.basis for plan in plans}


def _other_files(files: list[InputFile], partitions: Mapping[str, LogPartition]) -> list[InputFile]:
    inside = {file.name for partition in partitions.values() for file in partition.all}
    return [file for file in files if file.name not in inside]
