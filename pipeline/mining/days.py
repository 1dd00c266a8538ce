"""Tables whose every part holds one day: which parts are whose, and what a day's work depends on."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta

import pyarrow.parquet as pq

from pipeline.artifacts import Part, Tables, key_of

Days = Mapping[str, Sequence[Part]]
"""A table's parts by ISO date."""


def by_day(tables: Tables, table: str, column: str = "date") -> dict[str, list[Part]]:
    """A table's parts by the ISO date of their rows, in order; each part's date is read off its footer."""
    days: dict[str, list[Part]] = {}
    for part in tables.parts(table):
        if part.rows:
            days.setdefault(_day(tables, part, column), []).append(part)
    return dict(sorted(days.items()))


def _day(tables: Tables, part: Part, column: str) -> str:
    footer: pq.FileMetaData = tables.footer(part)
    place = footer.schema.to_arrow_schema().get_field_index(column)
    first = footer.row_group(0).column(place).statistics.min
    return (first.date() if isinstance(first, datetime) else first).isoformat()


def digests(days: Days) -> dict[str, str]:
    """What names each day's rows: the parts' contents, in whatever order they were written."""
    return {day: key_of(*sorted(part.sha256 for part in parts)) for day, parts in days.items()}


def chained(days: Mapping[str, str]) -> dict[str, str]:
    """What names each day together with all days before it: one that changes changes all after it."""
    chain, link = {}, ""
    for day, digest in sorted(days.items()):
        chain[day] = link = key_of(link, day, digest)
    return chain


def until(days: Mapping[str, str], last: date | None) -> dict[str, str]:
    """The days up to and including one; none for None."""
    return {} if last is None else {day: digest for day, digest in days.items() if day <= last.isoformat()}


def settled(first: date, last: date, *, refresh_days: int, late_days: int, asked: date | None) -> date | None:
    """The last day from which something is learned (a planner, a click model); None: nothing is settled yet.

    Learning is for periods of `refresh_days` from the first day on; a period learns from what lies before it, less the
    days for which events may still come in late. So a night, a rebuild and a day that comes late all learn the same.

    Args:
        first: first day of the log.
        last: last day of the log.
        refresh_days: length of a period in days; 0: learn anew only when asked.
        late_days: an event may come in so many days late.
        asked: the last day of the log when somebody asked to learn anew.
    """
    begins = first + (last - first) // timedelta(refresh_days) * timedelta(refresh_days) if refresh_days else first
    if asked is not None and asked >= begins:
        begins = min(asked, last) + timedelta(1)
    through = begins - timedelta(1 + late_days)
    return through if through >= first else None
