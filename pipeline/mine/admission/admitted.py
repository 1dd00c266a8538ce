"""The days of the log without what is held or discarded: what other stages make evidence from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from darklode.pipeline.base.artifacts import Part, Tables, key_of
from darklode.pipeline.base.relations import Relation, keep, view
from darklode.pipeline.mine.days import digests

OUT = ("held", "discarded")

STATES = f"""
    SELECT CAST(date AS VARCHAR) AS day, list(tenant ORDER BY tenant) FILTER (state IN {OUT}) AS left_out,
           count(*) FILTER (state NOT IN {OUT} AND rows > 0) AS kept
    FROM log_days GROUP BY date HAVING count(*) FILTER (state IN {OUT}) > 0 ORDER BY date
"""


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
        states = tables.sql(STATES).to_pylist() if "log_days" in tables else []
        nothing = {row["day"] for row in states if not row["kept"]}
        days = tables.by_day("impressions", "timestamp")
        without = {row["day"]: row["left_out"] for row in states if row["kept"]}
        return cls(tables, {day: parts for day, parts in days.items() if day not in nothing}, without)

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
