"""Which partitions of a log are read, and which stay as they were read before."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from pipeline.errors import InputError
from pipeline.ingest.partitions import Partition

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
