"""The admitted rows of the log: its days without what is held back or discarded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Part, Tables, key_of
from darklode.pipeline.base.relations import Relation, materialize, view
from darklode.pipeline.mine.days import digests

OUT = ("held", "discarded")
WITHOUT = "left out"
"""A fact of the stage: for each day the tenants left out, and whether the day has other rows."""


@dataclass(frozen=True)
class AdmittedRows:
    """The days of the log with admitted rows.

    Attributes:
        tables: `impressions`.
        days: parts of `impressions` by ISO date.
        without: tenants whose rows of a day are left out.
    """

    tables: Tables
    days: Mapping[str, Sequence[Part]]
    without: Mapping[str, Sequence[str]]

    @classmethod
    def from_tables(cls, tables: Tables) -> "AdmittedRows":
        """From `log_days`; without that table, all days are admitted."""
        if "log_days" not in tables:
            return cls(tables, tables.by_day("impressions", "timestamp"), {})
        states = tables.read("log_days", ["tenant", "date", "state", "rows"])
        out = pc.is_in(states["state"], pa.array(OUT))
        some = states.filter(pc.and_(pc.invert(out), pc.greater(states["rows"], 0)))
        admitted_days, left_out = (
            set(pc.unique(some["date"]).cast(pa.string()).to_pylist()),
            _by_day(states.filter(out)),
        )
        return cls.without_days(
            tables, {day: {"tenants": out, "some": day in admitted_days} for day, out in left_out.items()}
        )

    @classmethod
    def without_days(cls, tables: Tables, without: Mapping[str, Mapping[str, Any]]) -> "AdmittedRows":
        """From the stage's fact `WITHOUT`."""
        days = tables.by_day("impressions", "timestamp")
        some = {day: held_back["tenants"] for day, held_back in without.items() if held_back["some"]}
        return cls(tables, {day: parts for day, parts in days.items() if day in some or day not in without}, some)

    def only_day(self, day: str) -> "AdmittedRows":
        """Restrict to one day."""
        without = {day: self.without[day]} if day in self.without else {}
        return AdmittedRows(self.tables.with_parts("impressions", self.days[day]), {day: self.days[day]}, without)

    def digests(self) -> dict[str, str]:
        """Fingerprint of each day's admitted rows."""
        names = digests(self.days)
        return names | {day: key_of(names[day], out) for day, out in self.without.items() if day in names}

    def impressions(self, connection: duckdb.DuckDBPyConnection, day: str) -> Relation:
        """The admitted rows of a day."""
        rows = view(connection, self.tables.with_parts("impressions", self.days[day]), "impressions")
        if day not in self.without:
            return rows
        admitted_sql = f"SELECT * FROM {rows} WHERE NOT list_contains($out, tenant)"
        return materialize(connection, admitted_sql, {"out": list(self.without[day])})


def _by_day(states: pa.Table) -> dict[str, list[str]]:
    """The tenants of each day, both sorted."""
    rows = states.select(["date", "tenant"]).sort_by([("date", "ascending"), ("tenant", "ascending")])
    tenants_by_day: dict[str, list[str]] = {}
    for day, tenant in zip(rows["date"].cast(pa.string()).to_pylist(), rows["tenant"].to_pylist(), strict=True):
        tenants_by_day.setdefault(day, []).append(tenant)
    return tenants_by_day
