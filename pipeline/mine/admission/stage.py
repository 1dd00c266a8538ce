"""The stage that admits days of the log or holds them back, based on earlier days only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Json, Output, Part, Stage, Tables, Unit, key_of
from darklode.pipeline.mine.admission.admitted_log import LEFT_OUT_FACT, LEFT_OUT_STATES
from darklode.pipeline.mine.admission.outlier_score import COMPARED_DAYS
from darklode.pipeline.mine.admission.verdicts import KnownTenants, TenantHistory, judge_day
from darklode.pipeline.mine.days import Days, digests
from darklode.schemas.mining import AdmissionSettings
from darklode.schemas.tables import TABLES

ADMIT_DAYS = Stage("admit_days", 3, ("day_figures", "day_marks"), ("day_measures", "log_days"))

COMPARISON_WINDOW = timedelta(COMPARED_DAYS)
"""How far back the days lie that a day is compared with."""


def admit_days(tables: Tables, output: Output, settings: AdmissionSettings, history: TenantHistory) -> None:
    """Compare each tenant's day with the days before, in calendar order, whenever the days arrived.

    A day depends on the eight weeks before it and on the tenants known until then: a nightly run computes its own day,
    and a late day recomputes those after it.

    Args:
        tables: tables that contain `day_figures` and `day_marks`.
        output: receives `day_measures` and `log_days`, one part per day, and the fact `LEFT_OUT_FACT`.
        settings: false-alarm rate, and days that confirm a new level.
        history: files read, and people's decisions.
    """
    figures, marks = tables.by_day("day_figures"), tables.by_day("day_marks")
    rows_by_state = Counter[str]()
    left_out_by_day: dict[str, Any] = {}
    with tables.connect() as connection:
        past = PastDays(connection, tables, output, figures, marks)
        days = _calendar(figures, history)
        for number, day in enumerate(days):
            with output.unit(day, key_of(past.basis(day), history.of_day(day))) as unit:
                if not unit.done:
                    past.load(day)
                    verdict = judge_day(connection, day, settings, history, past.known_tenants)
                    output.write("day_measures", verdict.measures)
                    output.write("log_days", pa.Table.from_pylist(verdict.states, TABLES["log_days"].schema))
                    unit.facts[LEFT_OUT_FACT] = _left_out(verdict.states)
            rows_by_state.update(past.add(day, unit))
            left_out_by_day[day] = unit.facts.get(LEFT_OUT_FACT)
            output.progress(number + 1, len(days), day)
    # A unit without the fact is from an earlier version: readers then use the table `log_days` instead.
    if None not in left_out_by_day.values():
        output.facts[LEFT_OUT_FACT] = {day: left_out for day, left_out in left_out_by_day.items() if left_out}
    n_rows = sum(rows_by_state.values())
    dropped = {f"the day is {state}": rows_by_state[state] for state in LEFT_OUT_STATES if rows_by_state[state]}
    n_admitted = n_rows - sum(dropped.values())
    output.count(FunnelStep("admit_days", "impressions", n_rows, "impressions", n_admitted, dropped))


def _calendar(figures: Days, history: TenantHistory) -> list[str]:
    """The days of the log and those between them; at most eight weeks of a gap, since a wrong clock may say 1970."""
    day_dates = sorted(date.fromisoformat(day) for day in {*figures, *history.read})
    gaps = (
        current + timedelta(number)
        for current, following in pairwise(day_dates)
        for number in range(1, min(following - current, COMPARISON_WINDOW).days)
    )
    return [day.isoformat() for day in sorted([*day_dates, *gaps])]


def _left_out(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The day's value of the fact `LEFT_OUT_FACT`; empty if no tenant is left out."""
    left_out_tenants = sorted(row["tenant"] for row in states if row["state"] in LEFT_OUT_STATES)
    has_admitted_rows = any(row["rows"] and row["state"] not in LEFT_OUT_STATES for row in states)
    return {"tenants": left_out_tenants, "some": has_admitted_rows} if left_out_tenants else {}


@dataclass(frozen=True)
class TenantDay:
    """What later days need to know of a tenant's day: its state, and whether it deviates."""

    tenant: str
    state: str
    deviates: bool

    def is_in(self, table: str) -> bool:
        """Whether the day's rows are in one of the tables of `PastDays`."""
        if table == "measures":
            return self.state not in ("discarded", "missing")
        return self.state not in (*LEFT_OUT_STATES, "missing")


class PastDays:
    """The earlier days, as tables of the connection.

    The tables `figures_before`, `marks_before` and `measures_before` hold the rows of the eight weeks before the day
    that was loaded last: of admitted days, and `measures_before` also of held ones, with `state` and `deviates`.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, tables: Tables, output: Output, figures: Days, marks: Days
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._output = output
        self._parts = {"figures": figures, "marks": marks, "measures": dict[str, list[Part]]()}
        self._digests = {name: digests(days) for name, days in self._parts.items()}
        self._day_fingerprints: dict[str, str] = {}  # of the days added so far
        self._tenant_days: dict[str, list[TenantDay]] = {}
        self._loaded_days: set[str] = set()
        self.known_tenants = KnownTenants()
        create_past_tables(connection)

    def basis(self, day: str) -> list[Json]:
        """Fingerprint of what a day's state depends on: its own and the earlier statistics, and the tenants."""
        day_statistics: list[Json] = [self._digests[name].get(day, "") for name in ("figures", "marks")]
        tenants: list[Json] = [self.known_tenants.first_day, key_of(*sorted(self.known_tenants.names))]
        return [
            day_statistics,
            tenants,
            [[before, self._day_fingerprints[before]] for before in self._days_before(day)],
        ]

    def add(self, day: str, unit: Unit) -> Counter[str]:
        """Add a day whose states are decided; returns its rows by state."""
        states = self._output.read_unit(unit, "log_days").to_pylist()
        self._tenant_days[day] = [TenantDay(row["tenant"], row["state"], bool(row["reasons"])) for row in states]
        admitted = {row["tenant"] for row in states if row["rows"] and row["state"] in ("admitted", "accepted")}
        first_day = self.known_tenants.first_day or (day if any(row["rows"] for row in states) else None)
        self.known_tenants = KnownTenants(self.known_tenants.names | admitted, first_day)
        measures = unit.parts.get("day_measures", [])
        self._parts["measures"] = {**self._parts["measures"], day: measures}
        tenant_days: list[Json] = [[row.tenant, row.state, row.deviates] for row in self._tenant_days[day]]
        self._day_fingerprints[day] = key_of(
            [self._digests[name].get(day, "") for name in ("figures", "marks")],
            [part.sha256 for part in measures],
            tenant_days,
        )
        return Counter({row["state"]: 0 for row in states}) + _rows_by_state(states)

    def load(self, day: str) -> None:
        """Move the tables to a day: `figures` and `marks` of the day, and of the days before it."""
        days_before = set(self._days_before(day))
        for name in self._parts:
            self._delete_days(name, sorted(self._loaded_days - days_before))
            self._insert_days(name, sorted(days_before - self._loaded_days))
        self._loaded_days = days_before
        for name in ("figures", "marks"):
            self._view(name, name, [day])

    def _days_before(self, day: str) -> list[str]:
        """The days that a day is compared with, of those added so far."""
        first = (date.fromisoformat(day) - COMPARISON_WINDOW).isoformat()
        return [earlier for earlier in self._day_fingerprints if first <= earlier < day]

    def _delete_days(self, name: str, days: Sequence[str]) -> None:
        if days:
            query = f"DELETE FROM {name}_before WHERE list_contains($days, date)"
            self._connection.execute(query, {"days": [date.fromisoformat(day) for day in days]})

    def _insert_days(self, name: str, days: Sequence[str]) -> None:
        if not days:
            return
        tenant_days = {day: self._tenant_days[day] for day in days}
        if name == "measures":  # written by this stage, perhaps not to files yet
            parts = [part for day in days for part in self._parts[name].get(day, [])]
            self._connection.register("measures_of_days", self._output.read_parts("day_measures", parts))
            insert_days(self._connection, name, tenant_days, "measures_of_days")
        else:
            self._view("more_days", name, days)
            insert_days(self._connection, name, tenant_days)

    def _view(self, view: str, name: str, days: Sequence[str]) -> None:
        """Create a view of the parts of some days."""
        parts = [part for day in days for part in self._parts[name].get(day, [])]
        self._tables.with_parts(f"day_{name}", parts).view(self._connection, view, f"day_{name}")


def create_past_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the empty tables `figures_before`, `marks_before` and `measures_before`."""
    for name in ("figures", "marks", "measures"):
        connection.register("no_rows", TABLES[f"day_{name}"].empty())
        extra = ", NULL::VARCHAR AS state, NULL::BOOLEAN AS deviates" if name == "measures" else ""
        connection.execute(f"CREATE TEMP TABLE {name}_before AS SELECT *{extra} FROM no_rows")


def insert_days(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    tenant_days: Mapping[str, Sequence[TenantDay]],
    more_days: str = "more_days",
) -> None:
    """Insert the rows of some days that later days are compared with.

    Args:
        connection: with the tables of `create_past_tables`.
        name: figures, marks or measures.
        tenant_days: the tenants of each of these days.
        more_days: the relation that holds their rows.
    """
    rows = [
        {"tenant": row.tenant, "date": date.fromisoformat(day), "state": row.state, "deviates": row.deviates}
        | {"is_in": row.is_in(name)}
        for day, tenants in tenant_days.items()
        for row in tenants
    ]
    connection.register("tenant_days", pa.Table.from_pylist(rows, TENANT_DAYS))
    # A tenant without rows that is not unusual has no row in `log_days`.
    extra = ", coalesce(state, 'admitted'), coalesce(deviates, false)" if name == "measures" else ""
    insert_sql = f"""
        INSERT INTO {name}_before SELECT m.*{extra} FROM {more_days} m LEFT JOIN tenant_days USING (tenant, date)
        WHERE coalesce(is_in, true)
    """
    connection.execute(insert_sql)


TENANT_DAYS = pa.schema(
    [
        ("tenant", pa.string()),
        ("date", pa.date32()),
        ("state", pa.string()),
        ("deviates", pa.bool_()),
        ("is_in", pa.bool_()),
    ]
)


def _rows_by_state(states: list[dict[str, Any]]) -> Counter[str]:
    row_counts = Counter[str]()
    for row in states:
        row_counts[row["state"]] += row["rows"]
    return row_counts
