"""Rows of sources as JSON lines, and the days that they belong to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Protocol

import pyarrow as pa

from darklode.pipeline.base.types import Row, Rows
from darklode.pipeline.ingest.timestamps import read_times

BATCH_ROWS = 1000
"""Rows in memory at a time: a batch of 16 kB documents has 16 MB."""


@dataclass(frozen=True)
class DayRange:
    """Days of a log to fetch.

    Attributes:
        first: the first day; None: from the beginning.
        last: the last day; None: to the end.
    """

    first: date | None = None
    last: date | None = None

    def __contains__(self, day: date) -> bool:
        return (self.first is None or day >= self.first) and (self.last is None or day <= self.last)

    @property
    def bounds(self) -> tuple[date | None, date | None]:
        """Days from which (inclusive) and before which to query, a day wider for time zones."""
        one_day = timedelta(days=1)
        return self.first and self.first - one_day, self.last and self.last + 2 * one_day


ALL_DAYS = DayRange()


class RowTable(Protocol):
    """A table of a source."""

    @property
    def time_column(self) -> str | None:
        """Column or field of the time of an event; None: rows have no day."""

    def version(self) -> str | None:
        """Version of all rows, which changes with any of them; None if it is unknown."""

    def batches(self, days: DayRange, limit: int | None = None) -> Iterator[Rows]:
        """Rows in batches of at most `BATCH_ROWS`, in a stable order; by time if they have one.

        Args:
            days: days to read; rows of the day before and after may be among them.
            limit: maximum number of rows, in any order; None: all.

        Raises:
            DarklodeError: the source cannot be read.
        """


def json_line(row: Row) -> bytes:
    """A row as a line of JSON; types that JSON lacks become text, and NaN becomes null."""
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        return text.encode() + b"\n"
    except ValueError:  # NaN, or a lone surrogate, which is no UTF-8
        cleaned = json.dumps(_without_nan(row), allow_nan=False, separators=(",", ":"), default=_plain)
        return cleaned.encode() + b"\n"


def _plain(value: Any) -> Any:
    """What JSON writes for a value of another type; bytes that are no text become an object, which readers reject."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"bytes": len(bytes(value))}
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, list | tuple) else value


def days_of(rows: Sequence[Row], column: str, zone: str) -> list[date | None]:
    """The day (UTC) of each row; None if its time is missing or unreadable. Times without a zone are in `zone`."""
    texts = [_time_text(row.get(column)) for row in rows]
    times, _ = read_times(pa.array(texts, pa.string()), zone)
    days: list[date | None] = times.cast(pa.date32()).to_pylist()
    return days


def _time_text(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    return value.isoformat() if isinstance(value, date) else str(value)
