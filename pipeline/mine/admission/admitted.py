"""The days of the log without what is held or discarded: what other stages make evidence from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Part, Tables, key_of
from darklode.pipeline.base.relations import Relation, keep, view
from darklode.pipeline.mine.days import digests

OUT = ("held", "discarded")
WITHOUT = "left out"
"""A fact of the stage: the tenants of which a day is left out, and whether that day has other rows."""


@dataclass(frozen=True)
class Admitted:
    """The log's days of which something is admitted.

    Attributes:
        tables: holds `impressions`.
        days: parts of `impressions` by ISO date.
        without: the tenants whose rows of a day are left out.
    """

    tables: Tables
    days: Mapping[str, Sequence[Part]]
    without: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, tables: Tables) -> "Admitted":
        """By `log_days`; where there is no such table, all days."""
        if "log_days" not in tables:
            return cls(tables, tables.by_day("impressions", "timestamp"), {})
        states = tables.read("log_days", ["tenant", "date", "state", "rows"])
        out = pc.is_in(states["state"], pa.array(OUT))
        some = states.filter(pc.and_(pc.invert(out), pc.greater(states["rows"], 0)))
        kept, left_out = set(pc.unique(some["date"]).cast(pa.string()).to_pylist()), _by_day(states.filter(out))
        return cls.but(tables, {day: {"tenants": out, "some": day in kept} for day, out in left_out.items()})

    @classmethod
    def but(cls, tables: Tables, without: Mapping[str, Mapping[str, Any]]) -> "Admitted":
        """By what the stage noted (`WITHOUT`) of the days with tenants that are left out."""
        days = tables.by_day("impressions", "timestamp")
        some = {day: found["tenants"] for day, found in without.items() if found["some"]}
        return cls(tables, {day: parts for day, parts in days.items() if day in some or day not in without}, some)

    def only(self, day: str) -> "Admitted":
        """One of the days."""
        without = {day: self.without[day]} if day in self.without else {}
        return Admitted(self.tables.of("impressions", self.days[day]), {day: self.days[day]}, without)

    def digests(self) -> dict[str, str]:
        """What names each day's admitted rows."""
        names = digests(self.days)
        return names | {day: key_of(names[day], out) for day, out in self.without.items() if day in names}

    def impressions(self, connection: duckdb.DuckDBPyConnection, day: str) -> Relation:
        """The rows of a day that are admitted."""
        rows = view(connection, self.tables.of("impressions", self.days[day]), "impressions")
        if day not in self.without:
            return rows
        kept = f"SELECT * FROM {rows} WHERE NOT list_contains($out, tenant)"
        return keep(connection, kept, {"out": list(self.without[day])})


def _by_day(states: pa.Table) -> dict[str, list[str]]:
    """The tenants of each day, both in order."""
    rows = states.select(["date", "tenant"]).sort_by([("date", "ascending"), ("tenant", "ascending")])
    found: dict[str, list[str]] = {}
    for day, tenant in zip(rows["date"].cast(pa.string()).to_pylist(), rows["tenant"].to_pylist(), strict=True):
        found.setdefault(day, []).append(tenant)
    return found
