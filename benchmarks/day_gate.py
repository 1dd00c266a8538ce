"""How often an ordinary day of a log is held back, and how often garbage in its place is.

    python -m benchmarks.day_gate [--days 200] [--chances 2]

Two logs of ordinary days: days drawn from the sample's own sessions, and days of benchmarks/click_log.py. Both have
weekends with a third to a half of the searches, growth, and days that vary by more than chance. Every day of them is
judged as a night would judge it. Then each kind of garbage takes the place of some day, after five weeks of ordinary
ones, and that day is judged again; two kinds of days that are unusual but right are shown apart. The garbage was
not used to choose anything (docs/mining.md). Writes benchmarks/results/day_gate.md and day_gate.json.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.click_log import day_of_log
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.ingest.logs import ingest_logs
from darklode.pipeline.mine.admission.daily_statistics import DAY_FIGURES_STAGE, day_figures
from darklode.pipeline.mine.admission.stage import ADMIT_DAYS, TenantHistory, admit_days
from darklode.schemas.mining import AdmissionSettings, LogSettings
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import TABLES

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample" / "impressions"
FIRST = date(2026, 1, 5)
WEEKEND = (0.49, 0.32)
"""Searches of a Saturday and a Sunday as shares of a weekday's: weekends of -51 % and -68 %."""
GROWTH = 0.01
"""A week."""
UNEVEN = 0.08
"""Standard deviation of the logarithm of a day's searches, besides chance."""
HISTORY = 35
"""Days before garbage, at least."""
FAR = "SELECT date, max(distance) AS far FROM day_measures GROUP BY date"
SCHEMA = TABLES["impressions"].schema
UTC_TIME = pa.timestamp("us", tz="UTC")

Rng = np.random.Generator
Ints = NDArray[np.int64]
Log = Callable[[int], pa.Table]


def level(number: int, chance: Rng) -> float:
    """A day's searches, relative to the first Monday's."""
    weekday = (FIRST + timedelta(number)).weekday()
    share = 1.0 if weekday < 5 else WEEKEND[weekday - 5]
    trend: float = (1 + GROWTH) ** (number / 7)
    return share * trend * float(np.exp(chance.normal(0, UNEVEN)))


def sample_log(impressions: pa.Table) -> Log:
    """Days of whole sessions drawn from the sample's with replacement, weekend days from those of its weekend."""
    stamps = pc.cast(impressions["timestamp"], pa.date32())
    weekend = pc.greater_equal(pc.day_of_week(stamps), 5)
    pools = {flag: _sessions(impressions.filter(pc.equal(weekend, flag))) for flag in (False, True)}
    each = len(pools[False][1]) / pc.count_distinct(stamps.filter(pc.invert(weekend))).as_py()

    def day(number: int) -> pa.Table:
        chance = np.random.default_rng([1, number])
        rows, sessions = pools[(FIRST + timedelta(number)).weekday() >= 5]
        drawn = chance.integers(0, len(sessions), chance.poisson(each * level(number, chance)))
        lengths = np.array([len(sessions[one]) for one in drawn], np.int64)
        taken = rows.take(np.concatenate([sessions[one] for one in drawn]))
        return moved(taken, number, np.repeat(np.arange(len(drawn)), lengths))

    return day


def _sessions(rows: pa.Table) -> tuple[pa.Table, list[Ints]]:
    day = pc.cast(pc.cast(rows["timestamp"], pa.date32()), pa.string())
    codes = pc.binary_join_element_wise(rows["tenant"], rows["session_id"], day, "/").combine_chunks()
    numbers = codes.dictionary_encode().indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    return rows, np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def moved(rows: pa.Table, number: int, copy: Ints) -> pa.Table:
    """The rows on another day at the same time of day, each copy of a session one of its own."""
    tail = pa.array([f"-{number}-{one}" for one in copy])
    ids = ("event_id", "search_id", "session_id")
    named = {name: pc.binary_join_element_wise(rows[name].cast(pa.string()), tail, "") for name in ids}
    since = pc.subtract(rows["timestamp"], pc.floor_temporal(rows["timestamp"], unit="day"))
    start = pa.scalar(datetime.combine(FIRST + timedelta(number), time(), UTC), UTC_TIME)
    columns = {name: rows[name] for name in SCHEMA.names} | named | {"timestamp": pc.add(start, since)}
    return pa.table(columns, schema=SCHEMA)


def made_up_log(searches: int) -> Log:
    """Days of benchmarks/click_log.py."""

    def day(number: int) -> pa.Table:
        chance = np.random.default_rng([2, number])
        rows = day_of_log(number, int(chance.poisson(searches * level(number, chance))), FIRST)
        ids = pc.binary_join_element_wise(rows["search_id"], rows["doc_id"], "/")
        fixed = {"tenant": pa.repeat("default", len(rows)), "event_id": ids, "query_id": rows["query"]}
        none = {"dwell_seconds": pa.nulls(len(rows), pa.float32())}
        columns = {name: rows[name] for name in rows.column_names} | fixed | none
        return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)

    return day


def changed(rows: pa.Table, **columns: object) -> pa.Table:
    """The rows with other columns."""
    held = {name: rows[name] for name in SCHEMA.names} | columns
    return pa.table(held, schema=SCHEMA)


def shuffled(rows: pa.Table, name: str, chance: Rng) -> pa.Table:
    return changed(rows, **{name: rows[name].take(pa.array(chance.permutation(len(rows))))})


def eight_copies(rows: pa.Table, chance: Rng, number: int) -> pa.Table:
    """Eight copies of a day, other documents at random, half of them clicked."""
    eight = pa.concat_tables([moved(rows, number, np.full(len(rows), copy)) for copy in range(8)])
    return changed(shuffled(eight, "doc_id", chance), clicked=pa.array(chance.random(len(eight)) < 0.5))


def renamed(rows: pa.Table, name: str, tail: str) -> pa.Table:
    return changed(rows, **{name: pc.binary_join_element_wise(rows[name], tail, "")})


def one_query(rows: pa.Table) -> pa.Table:
    return changed(rows, **{name: pa.repeat(rows[name][0], len(rows)) for name in ("query_id", "query")})


def one_session(rows: pa.Table) -> pa.Table:
    """Three searches of four are one session's, too slow for the bounds on bots."""
    numbers = rows["search_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    return changed(rows, session_id=pc.if_else(pa.array(numbers % 4 == 0), rows["session_id"], pa.scalar("one")))


def reversed_places(rows: pa.Table) -> pa.Table:
    """The lowest place of each search is the first, and so on."""
    numbers = rows["search_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    place = rows["position"].to_numpy()
    lowest = np.zeros(numbers.max() + 1, np.int32)
    np.maximum.at(lowest, numbers, place)
    return changed(rows, position=pa.array(lowest[numbers] + 1 - place, pa.int32()))


def morning(rows: pa.Table) -> pa.Table:
    """The first half of the day's rows."""
    times = pc.cast(rows["timestamp"], pa.int64()).to_numpy()
    return rows.filter(pa.array(times < np.median(times)))


def half(rows: pa.Table, chance: Rng) -> pa.Table:
    """Every second search, at random."""
    searches = pc.unique(rows["search_id"])
    kept = searches.filter(pa.array(chance.random(len(searches)) < 0.5))
    return rows.filter(pc.is_in(rows["search_id"], kept))


Kind = Callable[[pa.Table, Rng, int], pa.Table]
GARBAGE: Mapping[str, Kind] = {
    "eight copies of a day, random documents, half clicked": eight_copies,
    "every click on the first place": lambda rows, _c, _n: changed(rows, clicked=pc.equal(rows["position"], 1)),
    "an empty file": lambda rows, _c, _n: rows.slice(0, 0),
    "clicks shuffled": lambda rows, chance, _n: shuffled(rows, "clicked", chance),
    "documents shuffled": lambda rows, chance, _n: shuffled(rows, "doc_id", chance),
    "one query only": lambda rows, _c, _n: one_query(rows),
    "the afternoon is missing": lambda rows, _c, _n: morning(rows),
    "every second search is missing": lambda rows, chance, _n: half(rows, chance),
    "one session searches three of four times": lambda rows, _c, _n: one_session(rows),
    "another catalogue's documents": lambda rows, _c, _n: renamed(rows, "doc_id", "-x"),
    "queries in a broken encoding": lambda rows, _c, _n: renamed(rows, "query_id", "-x"),
    "places counted from the end": lambda rows, _c, _n: reversed_places(rows),
    "the file twice": lambda rows, _c, _n: pa.concat_tables([rows, rows]),
    "nothing clicked": lambda rows, _c, _n: changed(rows, clicked=pa.repeat(False, len(rows))),
}
UNUSUAL: Mapping[str, Kind] = {
    "a holiday: a quarter of the searches": lambda rows, chance, _n: half(half(rows, chance), chance),
    "a busy day: twice the searches": lambda rows, _c, n: pa.concat_tables(
        [rows, moved(rows, n, np.full(len(rows), 1))]
    ),
}


class Judge:
    """Judges days as nights would.

    Args:
        folder: for its run.
        day: the ordinary log.
    """

    def __init__(self, folder: Path, day: Log) -> None:
        self._run, self.day = Run(str(folder)), cache(day)

    def distances(self, days: Mapping[int, pa.Table]) -> dict[date, float]:
        """The greatest distance of each day that can be judged, over its tenants; what was judged before stands."""

        def given(_tables: Tables, output: Output) -> None:
            for rows in days.values():
                output.write("impressions", rows)

        read = frozenset((FIRST + timedelta(number)).isoformat() for number in days)
        self._stage(Stage("given", 1, (), ("impressions",)), given)
        self._stage(DAY_FIGURES_STAGE, lambda t, o: day_figures(t, o, LogSettings()))
        self._stage(
            ADMIT_DAYS, lambda t, o: admit_days(t, o, AdmissionSettings(hold_anomalous_days=False), TenantHistory(read))
        )
        rows = self._run.tables("day_measures").sql(FAR)
        return {row["date"]: row["far"] for row in rows.to_pylist() if row["far"] is not None}

    def _stage(self, stage: Stage, work: Callable[[Tables, Output], None]) -> None:
        self._run.execute(self._run.plan(stage, {}), work)

    def night(self, number: int, rows: pa.Table) -> float:
        """The distance of other rows in place of a day, after the ordinary days before it."""
        before = {other: self.day(other) for other in range(number)}
        return self.distances(before | {number: rows})[FIRST + timedelta(number)]


def read_sample(folder: Path) -> pa.Table:
    """The sample's impressions, as a night reads them."""
    run = Run(str(folder))
    stage = Stage("ingest_logs", 1, (), ("impressions",))
    run.execute(
        run.plan(stage, {}), lambda _t, output: ingest_logs(str(SAMPLE), output, LogSettings(), IngestSettings())
    )
    return run.tables("impressions").read("impressions")


def put_in(judge: Judge, kinds: Mapping[str, Kind], chances: int) -> dict[str, list[float]]:
    """The distances of each kind of day in place of some days of the log."""
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(HISTORY, HISTORY + 9 * chances, 9):
        for kind, make in kinds.items():
            rows = make(judge.day(number), np.random.default_rng([3, number]), number)
            found[kind].append(judge.night(number, rows))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=200)
    parser.add_argument("--chances", type=int, default=2)
    arguments = parser.parse_args()
    limit, figures = AdmissionSettings().max_robust_z, {}
    with tempfile.TemporaryDirectory(prefix="darklode-day-gate-") as work:
        folder = Path(work)
        logs = {"the sample's sessions": sample_log(read_sample(folder / "sample")), "click_log": made_up_log(600)}
        for number, (name, log) in enumerate(logs.items()):
            judge = Judge(folder / f"log{number}", log)
            ordinary = judge.distances({day: judge.day(day) for day in range(arguments.days)})
            far = sorted(ordinary.values())
            figures[name] = {
                "nights": len(far),
                "held": sum(one > limit for one in far),
                "median": round(float(np.median(far)), 2),
                "99 %": round(float(np.quantile(far, 0.99)), 2),
                "most": round(far[-1], 2),
                "garbage": put_in(judge, GARBAGE, arguments.chances),
                "unusual": put_in(judge, UNUSUAL, arguments.chances),
            }
    write("day_gate", _markdown(figures, limit), figures)


def _markdown(figures: Mapping[str, Mapping[str, Any]], limit: float) -> str:
    names = ("nights", "held", "median", "99 %", "most")
    rows = [(log, *(f"{one[name]:g}" for name in names)) for log, one in figures.items()]
    lines = ["# Days of a log that are held back", machine(), f"A day is held beyond a distance of {limit:g}."]
    lines += ["## Ordinary days", "Their distances:", markdown_table(("log", *names), rows)]
    for title, key in (("Garbage", "garbage"), ("Unusual, but right", "unusual")):
        kinds = list(next(iter(figures.values()))[key])
        cells = [(kind, *(_held(one[key][kind], limit) for one in figures.values())) for kind in kinds]
        lines += [f"## {title}", "Days held, and the least distance.", markdown_table(("kind", *figures), cells)]
    return "\n\n".join(lines)


def _held(distances: list[float], limit: float) -> str:
    return f"{sum(one > limit for one in distances)} of {len(distances)} ({min(distances):.1f})"


if __name__ == "__main__":
    main()
