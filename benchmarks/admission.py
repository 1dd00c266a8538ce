"""Days that are held back.

Ten shapes of made-up logs, 60 ordinary nights each, and nineteen kinds of garbage at three sizes: how many ordinary
nights are held back, and which garbage is found. The days pass through the statistics, measures and verdicts of
`mine-logs`, without its files. Constants were chosen on the first five shapes; the others only report. Garbage comes on
two days, a weekday and a weekend, of a log of six weeks. A launch moves a share of the searches to 40 new products for
a week. The goal is at most 1 % of the ordinary nights of each shape, and all garbage. Takes 15 minutes; `--quick` runs
two shapes (30 s).

    python -m benchmarks.admission [--quick] [--seeds N]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.garbage_days import KINDS
from benchmarks.log_shapes import CHOICE_SHAPES, FIRST, SHAPES, LogShape, Rows, SimulatedLog, impressions, shape_of_size
from benchmarks.report import ResultTable, options, publish
from darklode.pipeline.base.relations import drop, materialize
from darklode.pipeline.mine.admission.daily_statistics import (
    DAY_FIGURES_SQL,
    DAY_MARKS_SQL,
    MARKS_PER_DAY,
    MAX_POSITION,
    N_HEAD_QUERIES,
)
from darklode.pipeline.mine.admission.outlier_score import COMPARED_DAYS
from darklode.pipeline.mine.admission.stage import TenantDay, create_past_tables, insert_days
from darklode.pipeline.mine.admission.verdicts import KnownTenants, TenantHistory, judge_day
from darklode.pipeline.mine.evidence import Exposures
from darklode.schemas.mining import AdmissionSettings, LogSettings
from darklode.schemas.tables import TABLES

NIGHTS, HISTORY = 60, 44
GARBAGE_DAYS = (38, 41)  # a Thursday and a Sunday
GARBAGE_SHAPES = ("shop", "growing", "support", "shrinking")
SIZES = (160, 1_600, 16_000)
LAUNCH_SHARES, LAUNCH_DAY, LAUNCH_DAYS = (0.12, 0.2), 30, 7
SETTINGS = AdmissionSettings()


@dataclass(frozen=True)
class DayTables:
    """Rows of a day in `day_figures` and `day_marks`."""

    figures: pa.Table
    marks: pa.Table


class NightlyGate:
    """The admission of a log, night by night, in memory."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        create_past_tables(self._connection)
        self._known = KnownTenants()

    def summarize(self, number: int, rows: Rows) -> DayTables:
        """Daily statistics of simulated rows."""
        connection = self._connection
        connection.register("impressions", impressions(number, rows))
        exposures = Exposures.from_impressions(connection, "impressions", LogSettings())  # type: ignore[arg-type]
        people = materialize(connection, f"FROM {exposures.people}")
        relations = {"impressions": "impressions", "shown": exposures.shown, "people": people}
        day = {"day": iso_day(number)}
        queries = {
            "day_figures": (DAY_FIGURES_SQL, {"max_position": MAX_POSITION}),
            "day_marks": (DAY_MARKS_SQL, {"head": N_HEAD_QUERIES, "max_marks": MARKS_PER_DAY}),
        }
        tables = [
            connection.sql(sql.format(**relations), params=day | parameters).to_arrow_table().cast(TABLES[table].schema)
            for table, (sql, parameters) in queries.items()
        ]
        drop(connection, people)
        exposures.drop(connection)
        return DayTables(*tables)

    def judge(self, number: int, tables: DayTables, *, remember: bool = True) -> list[dict[str, Any]]:
        """States of a day's tenants (rows of `log_days`); `remember` makes it one of the days before."""
        day = iso_day(number)
        self._connection.register("figures", tables.figures)
        self._connection.register("marks", tables.marks)
        history = TenantHistory(frozenset([day]))
        verdict = judge_day(self._connection, day, SETTINGS, history, self._known)
        if remember:
            tenant_days = [TenantDay(row["tenant"], row["state"], bool(row["reasons"])) for row in verdict.states]
            named = (("figures", tables.figures), ("marks", tables.marks), ("measures", verdict.measures))
            for name, rows in named:
                oldest = (FIRST + timedelta(number - COMPARED_DAYS)).isoformat()
                self._connection.execute(f"DELETE FROM {name}_before WHERE date < CAST('{oldest}' AS DATE)")
                self._connection.register("more_days", rows)
                insert_days(self._connection, name, {day: tenant_days})
            admitted = {row["tenant"] for row in verdict.states if row["rows"] and row["state"] == "admitted"}
            self._known = KnownTenants(self._known.names | admitted, self._known.first_day or day)
        return verdict.states


def iso_day(number: int) -> str:
    """ISO date of a day of the log."""
    return (FIRST + timedelta(number)).isoformat()


def is_held(states: Sequence[dict[str, Any]]) -> bool:
    """Whether a tenant's day is held back."""
    return any(row["state"] == "held" for row in states)


def count_held_nights(shape: LogShape, seed: int) -> int:
    """Ordinary nights of a log that are held back."""
    gate, log = NightlyGate(), SimulatedLog(shape, seed)
    return sum(is_held(gate.judge(night, gate.summarize(night, log.day(night)))) for night in range(NIGHTS))


def find_garbage(shape: LogShape, seed: int) -> Counter[str]:
    """Number of garbage days of each kind that are held back."""
    gate, log = NightlyGate(), SimulatedLog(shape, seed)
    found = Counter[str]()
    for night in range(HISTORY):
        rows = log.day(night)
        if night in GARBAGE_DAYS:
            for kind, garbage in KINDS.items():
                tables = gate.summarize(night, garbage(rows, log, night))
                found[kind] += is_held(gate.judge(night, tables, remember=False))
        gate.judge(night, gate.summarize(night, rows))
    return found


def launch_states(shape: LogShape, seed: int, share: float) -> list[str]:
    """State of each day of a launch."""
    gate, log = NightlyGate(), SimulatedLog(shape, seed)
    states = []
    for night in range(LAUNCH_DAY + LAUNCH_DAYS):
        launched = share if night >= LAUNCH_DAY else 0.0
        rows = gate.judge(night, gate.summarize(night, log.day(night, launch_share=launched)))
        states.append(rows[0]["state"])
    return states[LAUNCH_DAY:]


def measure_nights(shapes: Sequence[LogShape], seeds: int) -> ResultTable:
    """Ordinary nights that are held back."""
    rows = []
    for shape in shapes:
        held = sum(count_held_nights(shape, seed) for seed in range(1, seeds + 1))
        half = "chosen on" if shape.name in CHOICE_SHAPES else "reported only"
        rows.append([shape.name, half, seeds * NIGHTS, held, held / (seeds * NIGHTS)])
        print(*rows[-1], flush=True)
    columns = {"log": "", "constants": "", "ordinary nights": ",d", "held back": ",d", "share": ".1%"}
    return ResultTable("Ordinary nights", columns, rows)


def measure_garbage(shapes: Sequence[LogShape], sizes: Sequence[int]) -> list[ResultTable]:
    """Garbage days that are held back: by log and size, and the kinds that are missed."""
    totals, missed = [], []
    for shape in shapes:
        half = "chosen on" if shape.name in CHOICE_SHAPES else "reported only"
        for size in sizes:
            found = find_garbage(shape_of_size(shape, size, GARBAGE_DAYS[0]), 1)
            n_days = len(GARBAGE_DAYS)
            totals.append([shape.name, half, size, len(KINDS) * n_days, found.total()])
            missed += [[shape.name, size, kind, n_days, found[kind]] for kind in KINDS if found[kind] < n_days]
            print(*totals[-1], [row[2:] for row in missed if row[:2] == [shape.name, size]], flush=True)
    columns = {"log": "", "constants": "", "searches a day": ",d", "garbage days": ",d", "held back": ",d"}
    columns_missed = {"log": "", "searches a day": ",d", "garbage": "", "days": ",d", "held back": ",d"}
    note = "All other kinds are held back on all days."
    return [ResultTable("Garbage", columns, totals), ResultTable("Garbage missed", columns_missed, missed, note)]


def measure_launches(shapes: Sequence[LogShape]) -> ResultTable:
    """Days of a launch that are held back, and the first day from which all are admitted."""
    rows = []
    for shape in shapes:
        for share in LAUNCH_SHARES:
            states = launch_states(shape, 1, share)
            held = [number for number, state in enumerate(states, 1) if state == "held"]
            rows.append([shape.name, share, len(held), max(held, default=0) + 1])
            print(*rows[-1], flush=True)
    columns = {"log": "", "share of searches": ".0%", "days held back": ",d", "admitted from day": ",d"}
    return ResultTable("Launches", columns, rows)


def main() -> None:
    """Measure and publish."""
    parser = options(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="logs of each shape")
    arguments = parser.parse_args()
    shapes = [shape for shape in SHAPES if not arguments.quick or shape.name == "tiny"]
    sources = [shape for shape in SHAPES if shape.name in GARBAGE_SHAPES[: 1 if arguments.quick else None]]
    tables = [
        measure_nights(shapes, 1 if arguments.quick else arguments.seeds),
        *measure_garbage(sources, SIZES[: 1 if arguments.quick else None]),
        measure_launches([shape for shape in shapes if shape.name in ("shop", "tiny", "support")]),
    ]
    publish("admission", tables, quick=arguments.quick)


if __name__ == "__main__":
    main()
