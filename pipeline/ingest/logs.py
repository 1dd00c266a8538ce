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
from darklode.pipeline.ingest.files import REMOTE, File, listing
from darklode.pipeline.ingest.log_partitions import (
    Partition,
    is_ubi,
    partitions_of,
    require_log_format,
    without_markers,
)
from darklode.pipeline.ingest.log_rows import Rules, Staging, staging, usable, without_personal_data
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.readers.ubi import UbiFiles, read_ubi
from darklode.pipeline.ingest.rejects import Intake, Tally
from darklode.pipeline.ingest.times import check_zone
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import IngestSettings

NOTHING = "none"
NEAREST = 3


@dataclass(frozen=True)
class Planned:
    """A partition on its way into a table.

    Attributes:
        name: the partition's name.
        source: its files; None where they are gone.
        basis: what its rows hang on, as its source is now; None where it is gone.
        recorded: the basis on which it was read before, or None.
        wanted: whether it is to be read where its basis is another now.
        earlier: the partitions of the days before that a UBI log needs, nearest first.
    """

    name: str
    source: Partition | None
    basis: str | None
    recorded: str | None
    wanted: bool
    earlier: tuple[Partition, ...] = ()

    @property
    def stays(self) -> bool:
        """Whether it was read before, and is not to be read again."""
        return self.recorded is not None and (not self.wanted or self.basis == self.recorded)


def planned(
    partitions: Mapping[str, Partition], dates: Collection[date] | None, known: Mapping[str, Any], days_before: int
) -> list[Planned]:
    """The partitions that were read before and those to read, by name.

    Args:
        partitions: those that are there, by name.
        dates: the days to read; None: all there is.
        known: the basis of each partition that was read before, by name.
        days_before: so many days before its own a partition may need.

    Raises:
        InputError: a day that is asked for has no partition.
    """
    _check(partitions, dates, known)
    found = []
    for name in sorted({*partitions, *known}):
        source, recorded = partitions.get(name), known.get(name)
        wanted = source is not None and (dates is None or source.date in dates)
        if not wanted and recorded is None:
            continue
        earlier = dict(_earlier(source, partitions, days_before)) if source else {}
        basis = _basis(source, earlier, recorded) if source else None
        near = tuple(one for one in earlier.values() if one)
        found.append(Planned(name, source, basis, recorded, wanted, near))
    return found


def _check(partitions: Mapping[str, Partition], dates: Collection[date] | None, known: Mapping[str, Any]) -> None:
    there = sorted(partition.date for partition in partitions.values() if partition.date)
    for day in sorted(dates or ()):
        if day not in there and day.isoformat() not in known:
            near = sorted(sorted(there, key=lambda other: abs(other - day))[:NEAREST])
            named = ", ".join(other.isoformat() for other in near) or "none with a date"
            raise InputError(f"the log has no partition of {day.isoformat()}; the nearest there are: {named}")


def _earlier(
    source: Partition, partitions: Mapping[str, Partition], days: int
) -> Iterator[tuple[str, Partition | None]]:
    if source.date:
        for back in range(1, days + 1):
            name = (source.date - timedelta(days=back)).isoformat()
            yield name, partitions.get(name)


def _basis(source: Partition, earlier: Mapping[str, Partition | None], recorded: str | None) -> str:
    """The marks of a partition and of its neighbours. A neighbour that is gone counts as it was when it was read."""
    marks = [source.mark, *(one.search_mark if one and one.searches else NOTHING for one in earlier.values())]
    before = (recorded or "").split("-")
    if len(before) == len(marks) and before[0] == marks[0]:
        marks = [old if new == NOTHING else new for old, new in zip(before, marks, strict=True)]
    return "-".join(marks)


@contextmanager
def at_hand(path: str, files: Sequence[File]) -> Iterator[list[File]]:
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
            yield [_copied(store, file, Path(folder)) for file in files]
        except InputError as error:
            raise InputError(str(error).replace(folder, store.url)) from error


def _copied(store: Store, file: File, folder: Path) -> File:
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

    def read(self, plans: list[Planned], others: list[File]) -> tuple[Tally, Tally]:
        """Read the partitions that are new and take those that stay; return the counts of all, and of the new."""
        self.intake.expect(file for plan in plans if plan.source and not plan.stays for file in plan.source.all)
        everything, fresh = Tally(), Tally()
        for plan in plans:
            basis = self._basis(plan)
            with self._output.unit(plan.name, basis) as unit:
                if not unit.done:
                    self._fill(unit, plan)
            self._place(unit)
            self.sources[plan.name] = basis
            everything.add(Tally.of(unit.facts["tally"]))
            if basis != plan.recorded:
                fresh.add(Tally.of(unit.facts["tally"]))
        everything.add(self._turned_away(others))
        return everything, fresh

    def _turned_away(self, others: list[File]) -> Tally:
        with self._output.unit(OTHERS, key_of([file.name for file in others])) as unit:
            if not unit.done:
                for file in others:
                    self.intake.foreign(file)
                unit.facts["tally"] = self.intake.tally().facts()
        return Tally.of(unit.facts["tally"])

    def _basis(self, plan: Planned) -> str:
        """What the partition's unit hangs on: as it was read before, unless it is to be read again, or has to be."""
        if plan.recorded is None or not plan.stays:
            return plan.basis or ""
        if plan.basis is None or plan.basis == plan.recorded or self._output.stands(plan.name, plan.recorded):
            return plan.recorded
        return plan.basis

    def _fill(self, unit: Unit, plan: Planned) -> None:
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
                with self._output.filled("impressions", PART_ROWS) as take:
                    for _, rows in pieces:
                        take(rows)
                days += [day.isoformat()] * (len(self._output.parts["impressions"]) - before)
        unit.facts |= {"tally": self.intake.tally().facts(), "days": days}

    def _stage(self, source: Partition, earlier: Sequence[Partition], staged: Staging) -> int:
        """Stage a partition's rows; return what is to be added to their positions."""
        rules = Rules(self._settings, self._ingest, source.date)
        for file in source.others:
            self.intake.foreign(file)
        before = [file for one in earlier for file in one.searches]
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

    def _read_rows(self, files: Sequence[File], rules: Rules, staged: Staging) -> None:
        form = None if self._settings.format == "auto" else self._settings.format
        columns = log_columns(self._settings.columns)
        for file in files:
            for block in read_tabular(file, form, columns, self.intake, self._ingest.max_row_bytes):
                staged.add(usable(block, rules, self.intake))

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
    known: Mapping[str, Any] | None = None,
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
        known: `facts["sources"]` of the last complete run: what was read then stays, even when its files are gone.

    Raises:
        SettingsError: the time zone is not known.
        InputError: there is nothing to read, a day has no partition, a file cannot be read at all or lacks a column,
            or a partition has to be read again whose files are gone.
        TooManyRejects: more than `ingest.max_reject_share` of the rows that are new cannot be read; where none is new,
            of all rows.
    """
    check_zone(settings.time_zone)
    files = without_markers(listing(path, remote=True))
    if not known:
        require_log_format(path, files, settings.format)
    partitions = partitions_of(files, settings.format)
    ubi = is_ubi(files, settings.format)
    plans = planned(partitions, dates, known or {}, settings.late_days if ubi else 0)
    reader = LogReader(path, output, settings, ingest, ubi=ubi)
    everything, fresh = reader.read(plans, _others(files, partitions))
    checked = fresh if fresh.own else everything
    checked.check(path, "impressions", reader.intake.kind.columns, ingest.max_reject_share)
    output.count(everything.step("impressions"))
    output.facts["sources"] = reader.sources
    output.facts["days"] = {day: reader.days[day] for day in sorted(reader.days)}


def log_sources(
    path: str, settings: LogSettings, dates: Collection[date] | None, known: Mapping[str, Any]
) -> dict[str, str | None]:
    """What `ingest_logs` would read, without reading it: the basis of each partition, by name.

    Raises:
        InputError: there is nothing to read, or a day has no partition.
    """
    files = without_markers(listing(path, remote=True))
    late_days = settings.late_days if is_ubi(files, settings.format) else 0
    plans = planned(partitions_of(files, settings.format), dates, known, late_days)
    return {plan.name: plan.recorded if plan.stays else plan.basis for plan in plans}


def _others(files: list[File], partitions: Mapping[str, Partition]) -> list[File]:
    inside = {file.name for partition in partitions.values() for file in partition.all}
    return [file for file in files if file.name not in inside]
