"""The state of each tenant's day: admitted, held back or missing, and the reasons in words."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Json
from darklode.pipeline.mine.admission.decisions import Decision, identity
from darklode.pipeline.mine.admission.measures import MEASURES, compute_measures
from darklode.pipeline.mine.admission.outlier_score import LEVEL_WINDOW, DayScores, score_day
from darklode.schemas.mining import AdmissionSettings
from darklode.schemas.tables import TABLES

FIRST_LOG_DAYS = 7
"""Days of the first log: its tenants are those of this many days, except one that outweighs the tenants before it."""
N_REASONS = 3
"""Maximum number of measures named for a day."""
MIN_LEVEL_P_VALUE = 0.01
"""Minimum p-value of a day's agreement with the deviating days before it to be at their level."""

ROWS_SQL = "SELECT tenant, rows FROM figures ORDER BY tenant"
LEVEL_DAYS_SQL = """
    SELECT tenant, count(*) AS n, bool_or(state <> 'held') AS is_vouched_for
    FROM (SELECT DISTINCT tenant, date, state FROM measures_before
          WHERE deviates AND date >= CAST($day AS DATE) - $window) GROUP BY tenant
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

    def of_day(self, day: str) -> list[Json]:
        """What a day's state depends on: whether its files were read, and the decisions about it."""
        return [day in self.read, identity({day: self.decided.get(day, ())})]

    def verdict(self, day: str, tenant: str) -> Decision | None:
        """The last decision that applies to a tenant's day, or None."""
        decisions = [decision for decision in self.decided.get(day, ()) if decision.tenant in (None, tenant)]
        return decisions[-1] if decisions else None


@dataclass(frozen=True)
class KnownTenants:
    """Tenants with admitted rows before a day.

    Attributes:
        names: the tenants.
        first_day: the first day of the log with rows; None if the day is the first.
    """

    names: Set[str] = frozenset()
    first_day: str | None = None

    def find_unknown(self, day: str, rows: Mapping[str, int]) -> set[str]:
        """Tenants of a day to be held back because nobody has admitted any of their days.

        On the first day all tenants are known. In the first week, tenants of few searches may come later; only one with
        more rows than all known tenants together is held back, as after a relabelling.

        Args:
            day: ISO date.
            rows: number of rows of each of its tenants.
        """
        if self.first_day is None:
            return set()
        unknown = {tenant for tenant, n in rows.items() if n and tenant not in self.names}
        if (date.fromisoformat(day) - date.fromisoformat(self.first_day)).days >= FIRST_LOG_DAYS:
            return unknown
        n_known = sum(n for tenant, n in rows.items() if tenant in self.names)
        return {tenant for tenant in unknown if rows[tenant] > n_known}


@dataclass(frozen=True)
class DayVerdict:
    """Rows of a day in `day_measures` and `log_days`."""

    measures: pa.Table
    states: list[dict[str, Any]]


@dataclass(frozen=True)
class _Finding:
    """What is unusual about a tenant's day, and whether it keeps the day back."""

    reasons: list[str]
    is_held: bool


def judge_day(
    connection: duckdb.DuckDBPyConnection,
    day: str,
    settings: AdmissionSettings,
    history: TenantHistory,
    known_tenants: KnownTenants,
) -> DayVerdict:
    """Compare a day with the days before, tenant by tenant.

    Args:
        connection: with `figures` and `marks` of the day, `figures_before` and `marks_before` of admitted days, and
            `measures_before` (see `score_day`).
        day: ISO date.
        settings: false-alarm rate (0: nothing is held back), and days that confirm a new level.
        history: files read, and people's decisions.
        known_tenants: the tenants before the day.
    """
    scores = score_day(connection, compute_measures(connection, day), day)
    rows = dict(zip(*connection.sql(ROWS_SQL).to_arrow_table().to_pydict().values(), strict=True))
    unknown = known_tenants.find_unknown(day, rows)
    level_days = _level_days(connection, day)
    limit = settings.false_alarm_rate / max(len(scores.tenants), 1)
    states = []
    for number, tenant in enumerate(scores.tenants):
        if tenant in unknown:
            finding = _Finding([f"{rows[tenant]:,} rows of a tenant with no admitted day"], is_held=True)
        else:
            finding = _find(scores, number, limit, settings.confirm_days, level_days.get(tenant))
        decision = history.verdict(day, tenant)
        is_present = bool(rows.get(tenant)) or day in history.read
        if rows.get(tenant) or finding.reasons or decision:
            states.append(
                {
                    "tenant": tenant,
                    "date": date.fromisoformat(day),
                    "state": _state(is_present, finding.is_held and settings.false_alarm_rate > 0, decision),
                    "reasons": finding.reasons,
                    "distance": _number(np.nanmax(scores.distances[number], initial=-1.0)),
                    "p_value": _number(scores.night[number]),
                    "rows": rows.get(tenant, 0),
                    "decided_at": decision.at if decision else None,
                    "note": decision.note if decision else None,
                }
            )
    return DayVerdict(scores.measure_rows(day).cast(TABLES["day_measures"].schema), states)


def _number(value: float) -> float | None:
    """A value of `log_days`; None for NaN, and for the distance of a day without a forecast."""
    return None if np.isnan(value) or value < 0 else float(f"{value:.6g}")


def _level_days(connection: duckdb.DuckDBPyConnection, day: str) -> dict[str, tuple[int, bool]]:
    """By tenant, the number of deviating days in the week before, and whether one of them was admitted or accepted."""
    rows = connection.sql(LEVEL_DAYS_SQL, params={"day": day, "window": LEVEL_WINDOW}).to_arrow_table().to_pylist()
    return {row["tenant"]: (row["n"], row["is_vouched_for"]) for row in rows}


def _find(
    scores: DayScores, number: int, limit: float, confirm_days: int, level_days: tuple[int, bool] | None
) -> _Finding:
    """Judge a known tenant's day."""
    if not scores.night[number] < limit:
        return _Finding([], is_held=False)
    reasons = _reasons(scores, number)
    n_before, is_vouched_for = level_days or (0, False)
    agrees = bool(scores.level[number] >= MIN_LEVEL_P_VALUE)
    is_confirmed = n_before + 1 >= confirm_days and scores.content[number] >= limit
    if agrees and (is_vouched_for or is_confirmed):
        return _Finding([f"new level for {n_before + 1} days: {reasons[0]}", *reasons[1:]], is_held=False)
    return _Finding(reasons, is_held=True)


def _reasons(scores: DayScores, number: int) -> list[str]:
    """The most unusual measures in words: today's value, the usual one, and the day before's."""
    p_values = np.nan_to_num(scores.p_values[number], nan=1.0)
    order = np.argsort(p_values, kind="stable")[:N_REASONS]
    worst = p_values[order[0]]
    limit = max(1e-3, min(worst * 1e3, 0.01))
    deviating = [order[0], *(index for index in order[1:] if p_values[index] < limit)]
    return [describe(index, *(array[number, index] for array in scores.compared_values)) for index in deviating]


def describe(index: int, value: float, expected: float, previous: float) -> str:
    """A deviating measure in words.

    Args:
        index: index of the measure in `MEASURES`.
        value: today's value, on the scale of the measure.
        expected: the forecast.
        previous: the latest earlier value; NaN if there is none.
    """
    measure = MEASURES[index]
    before = "" if np.isnan(previous) else f", {measure.plain(previous)} the day before"
    return f"{measure.plain(value)} {measure.words} ({measure.plain(expected)} expected{before})"


def _state(is_present: bool, implausible: bool, decision: Decision | None) -> str:
    """State of a tenant's day in `log_days`; a person's decision overrides the measures."""
    if decision:
        return decision.verdict
    return "admitted" if not implausible else "held" if is_present else "missing"
