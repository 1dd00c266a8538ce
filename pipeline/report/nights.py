"""The last days of a mined log: their states, measures and pending decisions, as rows and as one HTML page.

Reads only the tables `log_days` and `day_measures`, which `admit_days` writes before anything is mined.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.mine.admission.held_days import DAY_NAME_SQL
from darklode.pipeline.mine.admission.measures import MEASURES
from darklode.pipeline.report.drawing import AxisScale
from darklode.pipeline.report.formatting import number
from darklode.pipeline.report.page import render_page
from darklode.pipeline.report.statistic import Statistic

TABLES_READ = ("log_days", "day_measures")
MAX_TENANTS = 30
"""Maximum number of tenants with sparklines, those with the most rows first; the table of days has all."""

STATE_TONES = {"admitted": "a", "held": "b", "accepted": "c", "discarded": "d", "missing": "faint"}
"""Colour class of each state."""
MEASURES_BY_NAME = {measure.name: measure for measure in MEASURES}

_LAST_DAYS_SQL = "(SELECT DISTINCT date FROM log_days ORDER BY date DESC LIMIT $1)"
days = Statistic(f"""
    SELECT date, tenant, state, rows, reasons, decided_at, note, {DAY_NAME_SQL} AS name
    FROM log_days WHERE date IN {_LAST_DAYS_SQL} ORDER BY date DESC, tenant
""")
"""The last `$1` days, newest first; `name` is the argument of --accept-day."""

measures = Statistic(f"""
    SELECT date, tenant, measure, value, expected, distance
    FROM day_measures WHERE date IN {_LAST_DAYS_SQL} ORDER BY date, tenant, measure
""")
"""The measures of these days, oldest first, on the scale of each measure."""


@dataclass(frozen=True)
class DayMark:
    """A day in a drawing: its position from 0 to 100 in both directions (y only in sparklines), and a tip."""

    x: float
    tone: str
    tip: str
    y: float = 50.0


@dataclass(frozen=True)
class Sparkline:
    """A measure of a tenant over the days.

    Attributes:
        value: its last value, formatted.
        words: what the value counts.
        note: the expected value, if there is one.
        lines: the values as points of SVG polylines; one for each run of days that have a value.
        expected_lines: likewise, the expected values.
        dots: days that are not admitted, and the last one.
    """

    value: str
    words: str
    note: str
    lines: Sequence[str]
    expected_lines: Sequence[str]
    dots: Sequence[DayMark]


@dataclass(frozen=True)
class TenantDays:
    """A tenant's days: a mark for each, and its sparklines."""

    tenant: str
    marks: Sequence[DayMark]
    sparklines: Sequence[Sparkline]


@dataclass(frozen=True)
class HeldNight:
    """A day that waits for a decision, with the commands that accept and discard it."""

    date: date
    tenant: str
    rows: int
    reasons: Sequence[str]
    accept: str
    discard: str


DecisionCommand = Callable[[str, str], str]
"""Returns the command for an option, `--accept-day` or `--discard-day`, and the name of a day."""


@dataclass(frozen=True)
class LastDays:
    """The last days of a log.

    Attributes:
        rows: as in `days`, newest first.
        measures: as in `measures`, oldest first.
    """

    rows: Sequence[Mapping[str, Any]]
    measures: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, tables: Tables, n_days: int, tenant: str | None = None) -> "LastDays":
        """Read the last days of all tenants, or of one."""
        day_rows, measure_rows = (statistic(tables, n_days).to_pylist() for statistic in (days, measures))
        return cls(*([row for row in rows if tenant in (None, row["tenant"])] for rows in (day_rows, measure_rows)))

    def table(self) -> pa.Table:
        """The days as a table for people."""
        columns = ("date", "tenant", "state", "rows", "reasons", "decided_at", "note")
        rows = [{name: row[name] for name in columns} | {"reasons": "; ".join(row["reasons"])} for row in self.rows]
        texts = dict.fromkeys(("tenant", "state", "reasons", "decided_at", "note"), pa.string())
        kinds = texts | {"date": pa.date32(), "rows": pa.int64()}
        return pa.Table.from_pylist(rows, pa.schema([(name, kinds[name]) for name in columns]))

    def held_nights(self, command: DecisionCommand) -> list[HeldNight]:
        """The days that wait for a decision, oldest first."""
        held_days = []
        for row in reversed(self.rows):
            if row["state"] == "held":
                commands = (command(option, row["name"]) for option in ("--accept-day", "--discard-day"))
                held_days.append(HeldNight(row["date"], row["tenant"], row["rows"], row["reasons"], *commands))
        return sorted(held_days, key=lambda day: (day.date, day.tenant))

    def counts(self) -> list[tuple[str, str]]:
        """Numbers of tenants' days by state."""
        states = [row["state"] for row in self.rows]
        return [(state, number(states.count(state))) for state in STATE_TONES if state in states]


def draw_tenants(last: LastDays) -> list[TenantDays]:
    """Marks and sparklines of the `MAX_TENANTS` tenants with the most rows."""
    dates = sorted({row["date"] for row in last.rows})
    row_counts: dict[str, int] = {}
    for row in last.rows:
        row_counts[row["tenant"]] = row_counts.get(row["tenant"], 0) + row["rows"]
    tenants = sorted(row_counts, key=lambda name: (-row_counts[name], name))[:MAX_TENANTS]
    return [_draw_tenant(last, tenant, dates) for tenant in tenants]


def _draw_tenant(last: LastDays, tenant: str, dates: Sequence[date]) -> TenantDays:
    states = {row["date"]: row for row in last.rows if row["tenant"] == tenant}
    positions = {day: round(100 * (index + 0.5) / len(dates), 2) for index, day in enumerate(dates)}
    marks = [
        DayMark(positions[day], STATE_TONES.get(row["state"], "faint"), _tip(row))
        for day, row in sorted(states.items())
    ]
    values: dict[str, dict[date, Mapping[str, Any]]] = {}
    for row in last.measures:
        if row["tenant"] == tenant:
            values.setdefault(row["measure"], {})[row["date"]] = row
    order = [*(name for name in MEASURES_BY_NAME if name in values), *sorted(values.keys() - MEASURES_BY_NAME.keys())]
    sparklines = [_draw_sparkline(name, values[name], states, positions) for name in order]
    return TenantDays(tenant, marks, sparklines)


def _tone(state: str) -> str:
    return STATE_TONES.get(state, "faint")


def _tip(row: Mapping[str, Any]) -> str:
    """Text about a day: date, state, rows and reasons."""
    parts = [f"{row['date']} {row['state']}, {number(row['rows'])} rows", *row["reasons"]]
    return "; ".join(parts)


def _draw_sparkline(
    name: str,
    values: Mapping[date, Mapping[str, Any]],
    states: Mapping[date, Mapping[str, Any]],
    positions: Mapping[date, float],
) -> Sparkline:
    numbers = [row[column] for row in values.values() for column in ("value", "expected") if row[column] is not None]
    low, high = min(numbers), max(numbers)
    padding = (high - low) * 0.1 or 1.0  # a constant is drawn in the middle
    scale = AxisScale(low - padding, high + padding)
    last_day = max(values)
    dots = []
    for day, row in sorted(values.items()):
        state = states[day]["state"] if day in states else "admitted"
        if state != "admitted" or day == last_day:
            tip = f"{day} {state}: {_plain(name, row['value'])}"
            dots.append(DayMark(positions[day], _tone(state), tip, scale.position_of(row["value"])))
    expected = values[last_day]["expected"]
    measure = MEASURES_BY_NAME.get(name)
    return Sparkline(
        _plain(name, values[last_day]["value"]),
        measure.words if measure else name.replace("_", " "),
        "" if expected is None else f"{_plain(name, expected)} expected",
        _polylines(values, "value", scale, positions),
        _polylines(values, "expected", scale, positions),
        dots,
    )


def _plain(name: str, value: float) -> str:
    """A measure's value in the unit that people know."""
    measure = MEASURES_BY_NAME.get(name)
    return measure.plain(value) if measure else number(value)


def _polylines(
    values: Mapping[date, Mapping[str, Any]], column: str, scale: AxisScale, positions: Mapping[date, float]
) -> list[str]:
    """Points of the polylines of a column; days without a value interrupt the line."""
    lines: list[list[str]] = [[]]
    for day in sorted(positions):
        value = values[day][column] if day in values else None
        if value is None:
            lines.append([])
        else:
            lines[-1].append(f"{positions[day]},{round(100 - scale.position_of(value), 2)}")
    return [" ".join(points) for points in lines if len(points) > 1]


def nights_page(name: str, last: LastDays, command: DecisionCommand) -> bytes:
    """Render the page as UTF-8; like the report it has no script, and all texts of the log are escaped.

    Args:
        name: the run, for the title.
        last: its last days.
        command: makes the commands of the held days.
    """
    dates = sorted({row["date"] for row in last.rows})
    return render_page(
        "nights.html",
        ("nights.css",),
        name=name,
        first=dates[0] if dates else None,
        last=dates[-1] if dates else None,
        n_days=len(dates),
        held=last.held_nights(command),
        sizes=last.counts(),
        tones=STATE_TONES,
        tenants=draw_tenants(last),
        n_tenants=len({row["tenant"] for row in last.rows}),
        rows=last.rows,
    )
