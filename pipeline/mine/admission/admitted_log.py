"""The admitted rows of the log: rows of days that the admission stage did not hold back and that nobody discarded.

Admission decides by tenant and day, so a day may have admitted rows of some tenants only. All later stages read the log
through `AdmittedRows`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Part, Tables, key_of
from darklode.pipeline.base.relations import Relation, materialize, view
from darklode.pipeline.mine.days import digests

LEFT_OUT_STATES = ("held", "discarded")
"""States of `log_days` whose rows are not admitted: held back as implausible, or discarded by a person."""
LEFT_OUT_FACT = "left out"
"""Key of a fact of the stage `admit_days`: for each day with tenants that are not admitted, `tenants` (their names) and
`some` (whether the day has admitted rows of other tenants).
"""


@dataclass(frozen=True)
class AdmittedRows:
    """The days of the log with admitted rows.

    Attributes:
        tables: tables that contain `impressions`.
        days: the parts of `impressions` by ISO date; days without admitted rows are missing.
        without: by ISO date, the tenants whose rows of that day are not admitted; only days that also have admitted
            rows.
    """

    tables: Tables
    days: Mapping[str, Sequence[Part]]
    without: Mapping[str, Sequence[str]]

    @classmethod
    def from_tables(cls, tables: Tables) -> "AdmittedRows":
        """Read the admission states from the table `log_days`; if it does not exist, all rows are admitted."""
        if "log_days" not in tables:
            return cls(tables, tables.by_day("impressions", "timestamp"), {})
        states = tables.read("log_days", ["tenant", "date", "state", "rows"])
        is_left_out = pc.is_in(states["state"], pa.array(LEFT_OUT_STATES))
        admitted_states = states.filter(pc.and_(pc.invert(is_left_out), pc.greater(states["rows"], 0)))
        days_with_admitted_rows = set(pc.unique(admitted_states["date"]).cast(pa.string()).to_pylist())
        left_out_tenants = _tenants_by_day(states.filter(is_left_out))
        return cls.without_days(
            tables,
            {
                day: {"tenants": tenants, "some": day in days_with_admitted_rows}
                for day, tenants in left_out_tenants.items()
            },
        )

    @classmethod
    def without_days(cls, tables: Tables, without: Mapping[str, Mapping[str, Any]]) -> "AdmittedRows":
        """Use the admission states that the stage `admit_days` recorded as its fact `LEFT_OUT_FACT`.

        Args:
            tables: tables that contain `impressions`.
            without: value of the fact; days that it does not contain are admitted completely.
        """
        parts_by_day = tables.by_day("impressions", "timestamp")
        partly_admitted = {day: left_out["tenants"] for day, left_out in without.items() if left_out["some"]}
        admitted_parts = {
            day: parts for day, parts in parts_by_day.items() if day in partly_admitted or day not in without
        }
        return cls(tables, admitted_parts, partly_admitted)

    def only_day(self, day: str) -> "AdmittedRows":
        """Restrict to one day."""
        left_out_tenants = {day: self.without[day]} if day in self.without else {}
        tables_of_day = self.tables.with_parts("impressions", self.days[day])
        return AdmittedRows(tables_of_day, {day: self.days[day]}, left_out_tenants)

    def digests(self) -> dict[str, str]:
        """Fingerprint of each day's admitted rows; it changes if the files or the left-out tenants of the day change.

        Later stages recompute a day if its fingerprint changes.
        """
        fingerprints = digests(self.days)
        partly_admitted = {
            day: key_of(fingerprints[day], tenants) for day, tenants in self.without.items() if day in fingerprints
        }
        return fingerprints | partly_admitted

    def impressions(self, connection: duckdb.DuckDBPyConnection, day: str) -> Relation:
        """The admitted rows of a day, in the columns of `impressions`.

        Raises:
            KeyError: the day has no admitted rows.
        """
        rows = view(connection, self.tables.with_parts("impressions", self.days[day]), "impressions")
        if day not in self.without:
            return rows
        admitted_sql = f"SELECT * FROM {rows} WHERE NOT list_contains($left_out, tenant)"
        return materialize(connection, admitted_sql, {"left_out": list(self.without[day])})


def _tenants_by_day(states: pa.Table) -> dict[str, list[str]]:
    """The tenants of each day: days in ascending order, and the tenants of a day sorted."""
    rows = states.select(["date", "tenant"]).sort_by([("date", "ascending"), ("tenant", "ascending")])
    tenants_by_day: dict[str, list[str]] = {}
    for day, tenant in zip(rows["date"].cast(pa.string()).to_pylist(), rows["tenant"].to_pylist(), strict=True):
        tenants_by_day.setdefault(day, []).append(tenant)
    return tenants_by_day
