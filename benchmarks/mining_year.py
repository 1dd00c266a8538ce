"""A year of nights.

A log of 160 searches a day: of the first 30, 200 and 365 days, the last five are mined night by night, the days before
them at once. Processor seconds of a night (median and maximum; term weights are fitted again every 7 days, and such a
night makes all pairs again), memory of the process, number of files and size of the manifests. In one process, without
Prefect, report and start-up. The log is made up: ten impressions a search, 2,000 documents, no ranker. Takes 8 minutes;
`--quick` stops after 12 and 34 days and compares pairs and triplets with those of the whole log mined at once. With
`--keep`, the runs before the last five nights are kept in a folder, and measured again from there in a minute.

    python -m benchmarks.mining_year [--quick] [--days N ...] [--searches N] [--keep FOLDER]
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median

from benchmarks.click_log import FIRST, write_day, write_documents
from benchmarks.measure import in_new_process, resident_megabytes
from benchmarks.mining_night import is_equal_content
from benchmarks.report import ResultTable, options, publish
from darklode.flows.executor import InProcess, executing
from darklode.flows.jobs.mine_logs import mine_logs
from darklode.pipeline.base.artifacts.database import shared_database
from darklode.pipeline.base.errors import HeldBack

DOCUMENTS, NIGHTS = 2_000, 5


@dataclass(frozen=True)
class NightState:
    """Cost of a night, and the run afterwards.

    Attributes:
        seconds: processor seconds of the night.
        megabytes: resident memory of the process.
        table_files: Parquet files of all tables.
        other_files: all other files.
        manifest_megabytes: size of the manifests.
        written_megabytes: size of the files that the night wrote.
    """

    seconds: float
    megabytes: float
    table_files: int
    other_files: int
    manifest_megabytes: float
    written_megabytes: float


def mine(work: Path, out: Path, days: int) -> None:
    """Mine the new ones of the first days of the log, as `darklode mine --no-report` does."""
    with executing(InProcess()), shared_database():
        try:
            mine_logs(
                str(work / "log"),
                str(work / "docs.parquet"),
                str(out),
                first=FIRST,
                last=FIRST + timedelta(days - 1),
                report=False,
                settings={"relevance": {"ranker": "none"}, "cache": {"root": str(work / "cache")}},
            )
        except HeldBack as error:
            print(error)


def grow(work: Path, stop: int, searches: int) -> Path:
    """Mine the days before the nights of a stop at once, unless the folder has that run already; returns it."""
    grown = work / f"before-{stop}-of-{searches}"
    if not grown.exists():
        shutil.rmtree(work / "unfinished", ignore_errors=True)
        in_new_process(mine, work, work / "unfinished", stop - NIGHTS)
        (work / "unfinished").rename(grown)
    return grown


def nights(work: Path, grown: Path, stop: int) -> list[NightState]:
    """Mine the last `NIGHTS` days before a stop night by night, in a copy of the run before them."""
    run = work / "nights"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(grown, run)
    mine(work, run, stop - NIGHTS)  # verifies the files of the copy
    states = []
    for days in range(stop - NIGHTS + 1, stop + 1):
        started, began = time.time_ns(), time.process_time()
        mine(work, run, days)
        states.append(state_of(run, time.process_time() - began, started))
    return states


def state_of(run: Path, seconds: float, since: int) -> NightState:
    """Count the files of a run; those changed after `since` (ns) were written by the night."""
    stats = {path.relative_to(run): path.stat() for path in run.rglob("*") if path.is_file()}
    in_tables = sum(path.parts[0] == "tables" for path in stats)
    return NightState(
        seconds,
        resident_megabytes(),
        in_tables,
        len(stats) - in_tables,
        sum(stat.st_size for path, stat in stats.items() if path.parts[0] == "manifests") / 1e6,
        sum(stat.st_size for stat in stats.values() if stat.st_mtime_ns >= since) / 1e6,
    )


def stop_table(states: Mapping[int, Sequence[NightState]], searches: int, note: str) -> ResultTable:
    """The nights before each stop, and the run there."""
    columns = {"days of the log": ",d", "a night: s": ".2f", "longest: s": ".2f", "memory: MB": ",.0f"}
    columns |= {"table files": ",d", "other files": ",d", "manifests: MB": ".2f", "written a night: MB": ".2f"}
    rows = []
    for stop, stop_states in states.items():
        seconds = [state.seconds for state in stop_states]
        written = [state.written_megabytes for state in stop_states]
        last = stop_states[-1]
        files = [last.table_files, last.other_files]
        rows.append(
            [stop, median(seconds), max(seconds), last.megabytes, *files, last.manifest_megabytes, median(written)]
        )
    return ResultTable(f"Nights of {searches} searches", columns, rows, note, ["duckdb"])


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__)
    parser.add_argument("--days", type=int, nargs="+", default=[30, 200, 365])
    parser.add_argument("--searches", type=int, default=160)
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="keep log and runs there, or use those it has")
    arguments = parser.parse_args()
    stops = [12, 34] if arguments.quick else sorted(arguments.days)
    with tempfile.TemporaryDirectory(prefix="darklode-year-") as folder:
        work, note = (arguments.keep or Path(folder)).resolve(), ""
        if not (work / "docs.parquet").exists():
            write_documents(work / "docs.parquet", DOCUMENTS)
        for number in range(len(list(work.glob("log/date=*"))), max(stops)):
            write_day(work / "log", number, arguments.searches, DOCUMENTS)
        states = {}
        for stop in stops:
            grown = grow(work, stop, arguments.searches)
            states[stop] = in_new_process(nights, work, grown, stop)
        if arguments.quick:
            in_new_process(mine, work, work / "once", stops[-1])
            equal = "equal" if is_equal_content(work / "once", work / "nights") else "DIFFERENT"
            note = f"Pairs and triplets are {equal} to those of the whole log mined at once."
    table = stop_table(states, arguments.searches, note)
    print(note)
    publish("mining_year", [table], quick=arguments.quick)


if __name__ == "__main__":
    main()
