"""Fetch a source into its snapshot, or its first rows for a check."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Literal

from darklode.pipeline.base.artifacts import key_of
from darklode.pipeline.base.errors import DarklodeError, InputError, NotWritable
from darklode.pipeline.base.types import Rows
from darklode.pipeline.ingest.columns import LOG_COLUMNS, UBI_EVENTS
from darklode.pipeline.ingest.sources.address import address_kind, check_source
from darklode.pipeline.ingest.sources.copies import copy_files, list_copied
from darklode.pipeline.ingest.sources.database import DatabaseTable, parse_database
from darklode.pipeline.ingest.sources.engine import (
    DEFAULT_EVENTS,
    DEFAULT_QUERIES,
    RETRY_TIMEOUT,
    EngineTable,
    parse_engine,
)
from darklode.pipeline.ingest.sources.rows import ALL_DAYS, DayRange, RowTable, days_of
from darklode.pipeline.ingest.sources.snapshot import PartWriter, Snapshot

Role = Literal["docs", "queries", "qrels", "logs"]

PREVIEW_ROWS, PREVIEW_SECONDS = 1000, 10.0
(UBI_TIME,) = UBI_EVENTS["timestamp"]

OPEN_DAYS = timedelta(days=1)
"""Times that are text with their zone, sorted as text, may be a day behind the latest one."""


@dataclass(frozen=True)
class Source:
    """A source that is no local file.

    Attributes:
        role: what it holds.
        address: its address.
        statement: SQL of the user, for a database whose address names no table.
        setting: setting of the statement, for messages.
        time_column: logs: column with the time, by the settings; None: the usual one.
        time_zone: logs: zone of times without one.
        late_days: logs: days before the last fetched one whose rows may have changed since.
    """

    role: Role
    address: str
    statement: str = ""
    setting: str = ""
    time_column: str | None = None
    time_zone: str = "UTC"
    late_days: int = 0

    @property
    def key(self) -> str:
        """Identifies the rows of a full fetch."""
        return key_of(self.role, self.address, self.statement, self.time_column, self.time_zone)

    @property
    def time_names(self) -> tuple[str, ...]:
        """Names of the column with the time of an event; none if the rows have no day."""
        if self.role != "logs":
            return ()
        return (self.time_column,) if self.time_column else LOG_COLUMNS["timestamp"]


@dataclass(frozen=True)
class Fetched:
    """What a fetch did.

    Attributes:
        n_rows: rows fetched, or files; None: the source has not changed since the last fetch.
        days: the days of a log that are new or changed.
        noun: what was counted.
    """

    n_rows: int | None
    days: tuple[date, ...] = ()
    noun: str = "rows"


def is_fetched(path: str, role: Role) -> bool:
    """Whether a path is read through a snapshot; logs below `s3://` are read day by day where they are."""
    kind = address_kind(path)
    return kind is not None and not (kind == "objects" and role == "logs")


def has_files(address: str) -> bool:
    """Whether an address has files, which are copied, and no rows."""
    return address_kind(address) in {"objects", "hub"}


def fetch(source: Source, folder: Path, dates: Collection[date] | None = None) -> Fetched:
    """Fetch a source into a folder, where the readers of files find it.

    Of a log only days from `late_days` before the last fetched one are fetched again, or those in `dates`; a kill loses
    the days that are not complete. Other sources are fetched as a whole. Unchanged parts stay as they are, so the
    files' fingerprint changes only if a row does. Memory: a batch of rows.

    Args:
        source: the source.
        folder: the snapshot.
        dates: days of a log to fetch; None: all new ones.

    Raises:
        DarklodeError: the source cannot be read; the message names it.
        NotWritable: the folder cannot be written.
    """
    check_source(source.address)
    snapshot = Snapshot(folder, source.key)
    if has_files(source.address):
        return Fetched(copy_files(source.address, snapshot), noun="files")
    tables = open_tables(source)
    version = _version(tables) if source.role != "logs" else None
    if version is not None and snapshot.state.is_complete and snapshot.state.version == version:
        return Fetched(None)
    n_rows, days = 0, set[date]()
    snapshot.state.is_complete, snapshot.state.version = False, version
    snapshot.save()
    for name, table in tables.items():
        if table.time_column is None:
            writer = snapshot.writer(name)
            _write_all(writer, table)
            n_rows += writer.n_rows
        else:
            fetch_log = _LogFetch(snapshot, name, table, source)
            fetch_log.run(dates)
            n_rows += fetch_log.n_rows
            days |= fetch_log.changed
    snapshot.state.is_complete = True
    snapshot.save()
    return Fetched(n_rows, tuple(sorted(days)))


def preview(source: Source, folder: Path) -> None:
    """Write the first rows of a source into an empty folder; files are only listed.

    Raises:
        DarklodeError: as for `fetch`.
    """
    check_source(source.address)
    if has_files(source.address):
        list_copied(source.address)
        return
    for name, table in open_tables(source, max_seconds=PREVIEW_SECONDS).items():
        _write_all(PartWriter(folder, "", name), table, PREVIEW_ROWS)


def _version(tables: Mapping[str, RowTable]) -> str | None:
    versions = [table.version() for table in tables.values()]
    return None if None in versions else key_of(*versions)


def open_tables(source: Source, max_seconds: float = RETRY_TIMEOUT) -> Mapping[str, RowTable]:
    """The tables of a source, by the beginning of their files' names.

    Args:
        source: the source.
        max_seconds: seconds of failed retries after which a search engine counts as down.

    Raises:
        DarklodeError: the address is invalid, or a driver or secret is missing.
    """
    if address_kind(source.address) == "engine":
        return _engine_tables(source, max_seconds)
    address = parse_database(source.address, source.statement, source.setting)
    return {source.role: DatabaseTable(address, source.time_names)}


def _engine_tables(source: Source, max_seconds: float) -> Mapping[str, RowTable]:
    engine = parse_engine(source.address, is_log=source.role == "logs")
    if engine.queries:  # a UBI log, whose files the reader knows by their names
        indexes = {DEFAULT_EVENTS: engine.index, DEFAULT_QUERIES: engine.queries}
        return {name: EngineTable(engine, index, UBI_TIME, max_seconds=max_seconds) for name, index in indexes.items()}
    time_column = next(iter(source.time_names), None)
    is_documents = source.role == "docs"
    return {
        source.role: EngineTable(engine, engine.index, time_column, is_documents=is_documents, max_seconds=max_seconds)
    }


def _write_all(writer: PartWriter, table: RowTable, limit: int | None = None) -> None:
    with closing(writer):
        for batch in table.batches(ALL_DAYS, limit):
            writer.write(batch)
        writer.commit()


class _LogFetch:
    """Fetches the days of a table in order; each replaces its former rows `OPEN_DAYS` later.

    Args:
        snapshot: receives the days.
        name: name of the table.
        table: the rows, sorted by time.
        source: the log.
    """

    def __init__(self, snapshot: Snapshot, name: str, table: RowTable, source: Source) -> None:
        self._snapshot, self._name, self._table, self._source = snapshot, name, table, source
        self._day: date | None = None
        self._extends = True
        self._writers = dict[date | None, PartWriter]()
        self._done = set[date]()
        self.n_rows, self.changed = 0, set[date]()

    def run(self, dates: Collection[date] | None) -> None:
        """Fetch the new days, or some days.

        Raises:
            InputError: the table is not sorted by day.
        """
        last_fetched = self._snapshot.state.last_day(self._name)
        if dates:
            days = DayRange(min(dates), max(dates))
            self._extends = last_fetched is not None and min(dates) <= last_fetched + timedelta(days=1)
            if last_fetched:  # until they are complete, so that a fetch after a kill reads them again
                self._set_through(min(last_fetched, min(dates) - timedelta(days=1)))
        else:
            days = DayRange(last_fetched and last_fetched - timedelta(days=self._source.late_days))
        assert self._table.time_column is not None
        try:
            for batch in self._table.batches(days):
                self._write(batch, days_of(batch, self._table.time_column, self._source.time_zone), days)
            self._commit_days()
        finally:
            for writer in self._writers.values():
                writer.close()
        for day in self._snapshot.days(self._name):
            if day in days and day not in self._done:  # deleted at the source
                self._snapshot.writer(self._name, day).commit()
                self.changed.add(day)
        self._raise_through(last_fetched)

    def _set_through(self, day: date) -> None:
        self._snapshot.state.through[self._name] = day.isoformat()
        self._snapshot.save()

    def _raise_through(self, day: date | None) -> None:
        """Record that all days up to one were fetched, unless later ones were."""
        last_fetched = self._snapshot.state.last_day(self._name)
        if day is not None and (last_fetched is None or day > last_fetched):
            self._set_through(day)

    def _write(self, batch: Rows, of_day: list[date | None], days: DayRange) -> None:
        """Write a batch; rows without a readable time go with those before them, to be rejected by the reader."""
        begin = 0
        for at, day in enumerate(of_day):
            if day is not None and day != self._day:
                self._write_rows(batch[begin:at], days)
                begin, self._day = at, day
                self._commit_days(before=day - OPEN_DAYS)
        self._write_rows(batch[begin:], days)

    def _write_rows(self, rows: Rows, days: DayRange) -> None:
        """Write rows of the current day, if it is one of those to fetch."""
        if not rows or (self._day is not None and self._day not in days):
            return
        if self._day in self._done:
            raise InputError(
                f"{self._source.address}: rows of {self._day} follow later days in the order of "
                f"{self._table.time_column}; give it a type of times, or convert it in {self._source.setting}"
            )
        if self._day not in self._writers:
            self._writers[self._day] = self._snapshot.writer(self._name, self._day)
        self._writers[self._day].write(rows)
        self.n_rows += len(rows)

    def _commit_days(self, before: date | None = None) -> None:
        """Commit the days before one, or all, in their order."""
        complete = (day for day in self._writers if before is None or day is None or day < before)
        for day in sorted(complete, key=lambda day: day or date.min):
            is_changed = self._writers[day].commit()
            del self._writers[day]
            if day is None:
                continue
            self._done.add(day)
            if is_changed:
                self.changed.add(day)
            if self._extends:  # a clock that is ahead must not hide the days until then
                self._raise_through(min(day, datetime.now(UTC).date()))


@contextmanager
def name_source(folder: Path, address: str) -> Iterator[None]:
    """Name the source, not its snapshot, in the messages of errors, unless the snapshot cannot be written."""
    try:
        yield
    except NotWritable:
        raise
    except DarklodeError as error:
        error.each = [message.replace(str(folder), address) for message in error.each]
        error.args = ("\n".join(error.each),)
        raise
