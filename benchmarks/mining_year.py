"""A year of nights.

A log of 160 searches a day is mined night by night for 365 nights, in one process and without Prefect or report:
processor seconds of a night, memory of the process, number of files and size of the manifests at the end of each
month. The log is made up: ten impressions a search, 2,000 documents, no ranker. The last row mines the whole log at
once; pairs and triplets of both ways must be equal. Takes 20 minutes; `--quick` mines 14 nights (1 min).

    python -m benchmarks.mining_year [--quick] [--nights N] [--searches N]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.click_log import write_day, write_documents
from benchmarks.measure import in_new_process, resident_megabytes
from benchmarks.mining_night import is_equal_content
from benchmarks.report import ResultTable, options, publish
from darklode.flows.executor import InProcess, executing
from darklode.flows.jobs.mine_logs import mine_logs
from darklode.pipeline.base.artifacts.database import shared_database
from darklode.pipeline.base.errors import HeldBack

DOCUMENTS, MONTH = 2_000, 30


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


def mine(work: Path, out: Path) -> None:
    """Mine the new days of the log, as `darklode mine --no-report` does."""
    with executing(InProcess()), shared_database():
        try:
            mine_logs(
                str(work / "log"),
                str(work / "docs.parquet"),
                str(out),
                report=False,
                settings={"relevance": {"ranker": "none"}, "cache": {"root": str(work / "cache")}},
            )
        except HeldBack as error:
            print(error)


def nights(work: Path, count: int, searches: int) -> list[NightState]:
    """Write a day of the log and mine it, again and again."""
    write_documents(work / "docs.parquet", DOCUMENTS)
    states = []
    for number in range(count):
        write_day(work / "log", number, searches, DOCUMENTS)
        started, began = time.time_ns(), time.process_time()
        mine(work, work / "nights")
        states.append(state_of(work / "nights", time.process_time() - began, started))
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


def mine_at_once(work: Path) -> float:
    """Processor seconds of mining the whole log in a new run."""
    began = time.process_time()
    mine(work, work / "once")
    return time.process_time() - began


def month_table(states: Sequence[NightState], searches: int, at_once: float, is_equal: bool) -> ResultTable:
    """Means of each month of 30 nights, and the state at its end."""
    columns = {"nights": "", "a night: s": ".2f", "memory: MB": ",.0f", "table files": ",d", "other files": ",d"}
    columns |= {"manifests: MB": ".2f", "written a night: MB": ".2f"}
    rows: list[list[object]] = []
    for first in range(0, len(states), MONTH):
        month = states[first : first + MONTH]
        last = month[-1]
        means = [sum(getattr(state, name) for state in month) / len(month) for name in ("seconds", "written_megabytes")]
        rows.append(
            [
                f"{first + 1}–{first + len(month)}",
                means[0],
                last.megabytes,
                last.table_files,
                last.other_files,
                last.manifest_megabytes,
                means[1],
            ]
        )
    equal = "equal" if is_equal else "DIFFERENT"
    note = f"The whole log at once: {at_once:.1f} s; pairs and triplets are {equal}."
    return ResultTable(f"{len(states)} nights of {searches} searches", columns, rows, note, ["duckdb"])


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--searches", type=int, default=160)
    arguments = parser.parse_args()
    count = 14 if arguments.quick else arguments.nights
    with tempfile.TemporaryDirectory(prefix="darklode-year-") as folder:
        work = Path(folder)
        states = in_new_process(nights, work, count, arguments.searches)
        at_once = in_new_process(mine_at_once, work)
        is_equal = is_equal_content(work / "once", work / "nights")
    publish("mining_year", [month_table(states, arguments.searches, at_once, is_equal)], quick=arguments.quick)


if __name__ == "__main__":
    main()
