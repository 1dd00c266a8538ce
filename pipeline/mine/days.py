"""Tables whose every part holds one day: which parts are whose, and what a day's work depends on."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from darklode.pipeline.base.artifacts import Part, key_of

Days = Mapping[str, Sequence[Part]]
"""A table's parts by ISO date."""


def digests(days: Days) -> dict[str, str]:
    """What names each day's rows: the parts' contents, in whatever order they were written."""
    return {day: key_of(*sorted(part.sha256 for part in parts)) for day, parts in days.items()}


def chain_fingerprints(days: Mapping[str, str]) -> dict[str, str]:
    """What names each day together with all days before it: one that changes changes all after it."""
    chain, link = {}, ""
    for day, digest in sorted(days.items()):
        chain[day] = link = key_of(link, day, digest)
    return chain


def days_until(days: Mapping[str, str], last: date | None) -> dict[str, str]:
    """The days up to and including one; none for None."""
    return {} if last is None else {day: digest for day, digest in days.items() if day <= last.isoformat()}


def settled_through(
    first: date, last: date, *, refresh_days: int, late_days: int, requested: date | None
) -> date | None:
    """The last day from which something is learned (a planner, a click model); None: nothing is settled yet.

    Learning is for periods of `refresh_days` from the first day on; a period learns from what lies before it, less the
    days for which events may still come in late. So a night, a rebuild and a day that comes late all learn the same.

    Args:
        first: first day of the log.
        last: last day of the log.
        refresh_days: length of a period in days; 0: learn anew only when asked.
        late_days: an event may come in so many days late.
        requested: the last day of the log when somebody asked to learn anew.
    """
    begins = first + (last - first) // timedelta(refresh_days) * timedelta(refresh_days) if refresh_days else first
    if requested is not None and requested >= begins:
        begins = min(requested, last) + timedelta(1)
    through = begins - timedelta(1 + late_days)
    return through if through >= first else None
