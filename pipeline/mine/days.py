"""Tables with parts of one day each: parts by day, and fingerprints that a day's work depends on."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Part, key_of

Days = Mapping[str, Sequence[Part]]
"""A table's parts by ISO date."""

PIECE_ROWS = 200_000
"""Maximum rows of a piece of `by_date`."""


def digests(days: Days) -> dict[str, str]:
    """Fingerprint of each day's rows, independent of the order of the parts."""
    return {day: key_of(*sorted(part.sha256 for part in parts)) for day, parts in days.items()}


def chain_fingerprints(days: Mapping[str, str]) -> dict[str, str]:
    """Fingerprint of each day and all days before it: a changed day changes all later ones."""
    chained: dict[str, str] = {}
    fingerprint = ""
    for day, day_fingerprint in sorted(days.items()):
        fingerprint = key_of(fingerprint, day, day_fingerprint)
        chained[day] = fingerprint
    return chained


def days_until(days: Mapping[str, str], last: date | None) -> dict[str, str]:
    """The days up to and including `last`; none if `last` is None."""
    return {} if last is None else {day: digest for day, digest in days.items() if day <= last.isoformat()}


def settled_through(
    first: date, last: date, *, refresh_days: int, late_days: int, requested: date | None
) -> date | None:
    """The last day from which term weights and click model are learned; None if no day is settled yet.

    Learning happens once per period of `refresh_days` from the first day on, from the days before the period, without
    those that may still receive late events. A nightly run, a rebuild and a late day therefore learn from the same
    days.

    Args:
        first: first day of the log.
        last: last day of the log.
        refresh_days: length of a period in days; 0: learn only on request.
        late_days: events may arrive this many days late.
        requested: last day of the log when learning was requested.
    """
    period = timedelta(refresh_days)
    period_start = first + (last - first) // period * period if refresh_days else first
    if requested is not None and requested >= period_start:
        period_start = min(requested, last) + timedelta(1)
    through = period_start - timedelta(1 + late_days)
    return through if through >= first else None


def by_date(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[date, pa.Table]]:
    """Split rows ordered by `date` into pieces of one date and at most `PIECE_ROWS` rows.

    DuckDB's batch sizes depend on its number of threads; these pieces are the same on every machine.
    """
    buffer: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        buffer = pa.concat_tables([buffer, rows]) if buffer else rows
        while buffer.num_rows:
            day = buffer["date"][0]
            n_rows_of_day = pc.sum(pc.equal(buffer["date"], day)).as_py()
            # The next batch may have more rows of this date.
            if n_rows_of_day == buffer.num_rows and n_rows_of_day < PIECE_ROWS:
                break
            size = min(n_rows_of_day, PIECE_ROWS)
            yield day.as_py(), buffer.slice(0, size)
            buffer = buffer.slice(size)
    if buffer:
        yield buffer["date"][0].as_py(), buffer
