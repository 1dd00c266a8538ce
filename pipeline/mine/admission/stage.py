"""The stage that admits days of the log or holds them back, based on earlier admitted days only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Json, Output, Part, Stage, Tables, Unit, key_of
from darklode.pipeline.mine.admission.admitted_log import LEFT_OUT_FACT, LEFT_OUT_STATES
from darklode.pipeline.mine.admission.decisions import Decision, identity
from darklode.pipeline.mine.admission.measures import MEASURES, compute_measures
from darklode.pipeline.mine.admission.outlier_score import COMPARED_WEEKS, distances
from darklode.pipeline.mine.days import Days, digests
from darklode.schemas.mining import AdmissionSettings
from darklode.schemas.tables import TABLES

ADMIT_DAYS = Stage("admit_days", 2, ("day_figures", "day_marks"), ("day_measures", "log_days"))

COMPARISON_WINDOW = timedelta(7 * COMPARED_WEEKS)
"""How far back the days lie that a day is compared with."""
MEASURES_BY_NAME = {measure.name: measure for measure in MEASURES}

# Measures of the day that deviate more than the limit.
DEVIATING_MEASURES_SQL = """
    SELECT tenant, measure, value, expected, distance FROM measures WHERE distance > $limit
    ORDER BY tenant, distance DESC, measure
"""

# Each tenant's greatest deviation, and its rows of the day.
TENANT_DISTANCES_SQL = """
    SELECT tenant, max(distance) AS distance, coalesce(any_value(rows), 0) AS rows
    FROM measures LEFT JOIN (SELECT tenant, rows FROM figures) USING (tenant) GROUP BY tenant ORDER BY tenant
"""


@dataclass(frozen=True)
class TenantHistory:
    """Inputs of the stage that are not tables.

    Attributes:
        read: ISO dates of days whose files were read, even if empty. A day with no rows is missing only if its files
            were not read.
        decided: people's decisions by ISO date, oldest first.
    """

    read: frozenset[str] = frozenset()
    decided: Mapping[str, Sequence[Decision]] = field(default_factory=dict)

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that can change a day's state."""
        return {"read": sorted(self.read), "decided": identity(self.decided)}

    def verdict(self, day: str, tenant: str) -> Decision | None:
        """The last decision that applies to a tenant's day, or None."""
        decisions = [decision for decision in self.decided.get(day, ()) if decision.tenant in (None, tenant)]
        return decisions[-1] if decisions else None


def admit_days(tables: Tables, output: Output, settings: AdmissionSettings, history: TenantHistory) -> None:
    """Compare each tenant's day with its earlier admitted days, in calendar order, whenever the days arrived.

    A day depends on the eight weeks before it: a nightly run computes its own day, and a late day recomputes those
    after it.

    Args:
        tables: tables that contain `day_figures` and `day_marks`.
        output: receives `day_measures` and `log_days`, one part per day, and the fact `LEFT_OUT_FACT`.
        settings: the limit of the deviation, and whether implausible days are held back.
        history: files read, and people's decisions.
    """
    figures, marks = tables.by_day("day_figures"), tables.by_day("day_marks")
    rows_by_state = Counter[str]()
    left_out_by_day: dict[str, Any] = {}
    with tables.connect() as connection:
        past = PastDays(connection, tables, output, figures, marks)
        days = _calendar(figures, history)
        for number, day in enumerate(days):
            with output.unit(day, key_of(past.basis(day), _history_of_day(history, day))) as unit:
                if not unit.done:
                    past.load(day)
                    unit.facts[LEFT_OUT_FACT] = _decide_states(connection, output, day, settings, history)
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


def _history_of_day(history: TenantHistory, day: str) -> list[Json]:
    """What a day's state depends on besides tables: whether its files were read, and the decisions about it."""
    return [day in history.read, identity({day: history.decided.get(day, ())})]


def _calendar(figures: Days, history: TenantHistory) -> list[str]:
    """The days of the log and those between them; at most eight weeks of a gap, since a wrong clock may say 1970."""
    day_dates = sorted(date.fromisoformat(day) for day in {*figures, *history.read})
    gaps = (
        current + timedelta(number)
        for current, following in pairwise(day_dates)
        for number in range(1, min(following - current, COMPARISON_WINDOW).days)
    )
    return [day.isoformat() for day in sorted([*day_dates, *gaps])]


def _decide_states(
    connection: duckdb.DuckDBPyConnection,
    output: Output,
    day: str,
    settings: AdmissionSettings,
    history: TenantHistory,
) -> dict[str, Any]:
    """Write a day's measures and states.

    Returns:
        The day's value of the fact `LEFT_OUT_FACT`; empty if no tenant is left out.
    """
    measures = distances(connection, compute_measures(connection, day), day)
    output.write("day_measures", measures.cast(TABLES["day_measures"].schema))
    connection.register("measures", measures)
    reasons: dict[str, list[str]] = {}
    deviating = connection.sql(DEVIATING_MEASURES_SQL, params={"limit": settings.max_robust_z}).to_arrow_table()
    for row in deviating.to_pylist():
        reasons.setdefault(row["tenant"], []).append(reason(row))
    rows = []
    for row in connection.sql(TENANT_DISTANCES_SQL).to_arrow_table().to_pylist():
        tenant_reasons = reasons.get(row["tenant"], [])
        decision = history.verdict(day, row["tenant"])
        if row["rows"] or tenant_reasons or decision:
            state = _state(
                bool(row["rows"]) or day in history.read,
                bool(tenant_reasons) and settings.hold_anomalous_days,
                decision,
            )
            decision_columns = {"decided_at": decision.at, "note": decision.note} if decision else {}
            rows.append(
                row | {"date": date.fromisoformat(day), "state": state, "reasons": tenant_reasons} | decision_columns
            )
    output.write("log_days", pa.Table.from_pylist(rows, TABLES["log_days"].schema))
    left_out_tenants = sorted(row["tenant"] for row in rows if row["state"] in LEFT_OUT_STATES)
    has_admitted_rows = any(row["rows"] and row["state"] not in LEFT_OUT_STATES for row in rows)
    return {"tenants": left_out_tenants, "some": has_admitted_rows} if left_out_tenants else {}


def _state(is_present: bool, implausible: bool, decision: Decision | None) -> str:
    """State of a tenant's day in `log_days`; a person's decision overrides the measures."""
    if decision:
        return decision.verdict
    return "admitted" if not implausible else "held" if is_present else "missing"


def reason(row: Mapping[str, Any]) -> str:
    """Describe a measure that deviates, for people: its value, and the expected one."""
    measure = MEASURES_BY_NAME[row["measure"]]
    return f"{measure.plain(row['value'])} {measure.words}, {measure.plain(row['expected'])} expected"


class PastDays:
    """The earlier admitted days, as tables of the connection.

    The tables `figures_before`, `marks_before` and `measures_before` hold the rows of the eight weeks before the day
    that was loaded last, without tenants' days that were not admitted.
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
        self._left_out_tenants: dict[str, list[str]] = {}
        self._loaded_days: set[str] = set()
        for name, table in (("figures", "day_figures"), ("marks", "day_marks"), ("measures", "day_measures")):
            connection.register("no_rows", TABLES[table].empty())
            connection.execute(f"CREATE TEMP TABLE {name}_before AS FROM no_rows")

    def basis(self, day: str) -> list[Json]:
        """Fingerprint of what a day's state depends on: its own statistics, and those of the eight weeks before."""
        day_statistics: list[Json] = [self._digests[name].get(day, "") for name in ("figures", "marks")]
        return [day_statistics, [[earlier, self._day_fingerprints[earlier]] for earlier in self._days_before(day)]]

    def add(self, day: str, unit: Unit) -> Counter[str]:
        """Add a day whose states are decided; returns its rows by state."""
        states = self._output.read_unit(unit, "log_days").to_pylist()
        self._left_out_tenants[day] = sorted(
            row["tenant"] for row in states if row["state"] in (*LEFT_OUT_STATES, "missing")
        )
        measures = unit.parts.get("day_measures", [])
        self._parts["measures"] = {**self._parts["measures"], day: measures}
        self._day_fingerprints[day] = key_of(
            self.basis(day)[0], [part.sha256 for part in measures], self._left_out_tenants[day]
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
        if days:
            self._view("more_days", name, days)
            left_out = [f"{day}\0{tenant}" for day in days for tenant in self._left_out_tenants[day]]
            is_admitted_sql = "NOT list_contains($left_out, concat_ws(chr(0), date, tenant))"
            insert_sql = f"INSERT INTO {name}_before FROM more_days WHERE {is_admitted_sql}"
            self._connection.execute(insert_sql, {"left_out": left_out})

    def _view(self, view: str, name: str, days: Sequence[str]) -> None:
        """Create a view of the parts of some days."""
        parts = [part for day in days for part in self._parts[name].get(day, [])]
        self._tables.with_parts(f"day_{name}", parts).view(self._connection, view, f"day_{name}")


def _rows_by_state(states: list[dict[str, Any]]) -> Counter[str]:
    row_counts = Counter[str]()
    for row in states:
        row_counts[row["state"]] += row["rows"]
    return row_counts
