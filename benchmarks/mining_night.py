"""A night of mining.

Mining one new day on top of 30 mined ones against mining all 31 days at once. First whole `darklode mine` commands:
processor seconds of all their processes, start-up included. Then processor seconds of each stage, card and report, and
megabytes written, in one process. Pairs and triplets of both ways must be equal. The log is made up: ten impressions a
search, 40,000 documents, no ranker. Takes 15 minutes; `--quick` mines 4 days of 500 searches (2 min); `--commands`
measures whole commands only.

    python -m benchmarks.mining_night [--quick] [--commands] [--days N] [--searches N ...]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median

from benchmarks.click_log import FIRST, SHOWN, write_day, write_documents
from benchmarks.measure import child_seconds, in_new_process
from benchmarks.report import ResultTable, options, publish
from darklode.flows.config import load_settings
from darklode.flows.jobs.mine_logs import steps
from darklode.flows.runs import write_run
from darklode.flows.stage_runner import finish
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import MinedInputs

DOCUMENTS, ROUNDS = 40_000, 3
CONTENT = "SELECT count(*) AS rows, CAST(bit_xor(hash(t)) AS VARCHAR) AS content FROM {table} t"


@dataclass(frozen=True)
class MiningCost:
    """Processor seconds of each stage that ran and of all of it, and megabytes written."""

    stages: Mapping[str, float]
    seconds: float
    megabytes: float


@dataclass(frozen=True)
class MiningCosts:
    """A log mined at once and by its last night.

    Attributes:
        impressions: rows of the log.
        triplets: how many are mined from it.
        is_equal: pairs and triplets of both ways have the same rows.
    """

    impressions: int
    triplets: int
    at_once: MiningCost
    night: MiningCost
    is_equal: bool


def mine(work: Path, out: Path, first: int, last: int) -> MiningCost:
    """Mine some days of the log in this process."""
    began, stages, run, before = time.process_time(), dict[str, float](), Run(str(out)), file_sizes(out)
    settings = load_settings(assignments=["relevance.ranker=none"])
    logs, docs = str(work / "log"), str(work / "docs.parquet")
    write_run(run, MinedInputs(logs=logs, docs=docs), settings)
    job = steps(run, logs, docs, settings, [FIRST + timedelta(number) for number in range(first, last + 1)])
    for step in job:
        start = time.process_time()
        if step.enabled and not (plan := step.plan(run)).is_up_to_date:
            run.execute(plan, step.execute)
            stages[step.stage.name] = time.process_time() - start
    start = time.process_time()
    finish(run)
    stages["card, views and report"] = time.process_time() - start
    written = sum(size for key, size in file_sizes(out).items() if key not in before)
    return MiningCost(stages, time.process_time() - began, written / 1e6)


@dataclass(frozen=True)
class CommandCosts:
    """Processor seconds of whole commands: a new run with all days, and nights on top of all days but the last."""

    at_once: float
    night: float
    night_with_report: float
    quiet_night: float


def measure_commands(work: Path, days: int, searches: int) -> CommandCosts:
    """Write a log, and mine it by the command: at once, and its last day (the median of some rounds)."""
    write_log(work, days, searches)
    last = (FIRST + timedelta(days - 2)).isoformat()
    at_once = command_seconds(work, "once")
    command_seconds(work, "base", "--from", FIRST.isoformat(), "--to", last)
    costs: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for has_report in [True, False] * ROUNDS:
        options = [] if has_report else ["--no-report"]
        shutil.rmtree(work / "night", ignore_errors=True)
        shutil.copytree(work / "base", work / "night")
        command_seconds(work, "night", "--date", last, *options)  # verifies the files of the copy
        night, quiet_night = (command_seconds(work, "night", *options) for _ in range(2))
        costs[has_report].append((night, quiet_night))
    with_report, without = (tuple(map(median, zip(*costs[kind], strict=True))) for kind in (True, False))
    return CommandCosts(at_once, without[0], with_report[0], without[1])


def command_seconds(work: Path, out: str, *options: str) -> float:
    """Processor seconds of `darklode mine` into a folder."""
    inputs = ["--logs", str(work / "log"), "--docs", str(work / "docs.parquet"), "--out", str(work / out)]
    settings = ["--set", "relevance.ranker=none", "--set", f"cache.root={work / 'cache'}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"PREFECT_HOME": str(work / "prefect")}
    before = child_seconds()
    command = [sys.executable, "-m", "darklode", "mine", *inputs, *settings, *options]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return child_seconds() - before


def command_table(costs: Mapping[int, CommandCosts], days: int) -> ResultTable:
    """Whole commands: a night beside mining everything."""
    columns = {"searches per day": ",d", "impressions": ",d", "all at once: s": ".1f", "a night with report: s": ".2f"}
    columns |= {"a night, --no-report: s": ".2f", "night ÷ all": ".1%", "a night without news: s": ".2f"}
    rows = []
    for searches, cost in costs.items():
        nights = [cost.night_with_report, cost.night, cost.night / cost.at_once, cost.quiet_night]
        rows.append([searches, searches * SHOWN * days, cost.at_once, *nights])
    note = "night ÷ all and the night without news are with --no-report."
    return ResultTable(f"Whole commands: the last of {days} days", columns, rows, note, ["duckdb"])


def write_log(work: Path, days: int, searches: int) -> None:
    """Write documents and log."""
    write_documents(work / "docs.parquet", DOCUMENTS)
    for number in range(days):
        write_day(work / "log", number, searches, DOCUMENTS)


def file_sizes(folder: Path) -> dict[tuple[str, int], int]:
    """Bytes of each file, by path and time of the last change."""
    stats = [(path, path.stat()) for path in folder.rglob("*") if path.is_file()]
    return {(str(path), stat.st_mtime_ns): stat.st_size for path, stat in stats}


def measure(work: Path, days: int, searches: int) -> MiningCosts:
    """Write a log, mine it at once, and mine its last day on top of the others (the median round)."""
    write_log(work, days, searches)
    in_new_process(mine, work, work / "base", 0, days - 2)
    at_once = in_new_process(mine, work, work / "once", 0, days - 1)
    nights: list[MiningCost] = []
    for _ in range(ROUNDS):
        shutil.rmtree(work / "night", ignore_errors=True)
        shutil.copytree(work / "base", work / "night")
        in_new_process(mine, work, work / "night", 0, days - 2)  # verifies the files of the copy
        nights.append(in_new_process(mine, work, work / "night", days - 1, days - 1))
    night = sorted(nights, key=lambda cost: cost.seconds)[len(nights) // 2]
    once_tables, is_equal = Run(str(work / "once")).tables(), is_equal_content(work / "once", work / "night")
    return MiningCosts(once_tables.rows("impressions"), once_tables.rows("triplets"), at_once, night, is_equal)


def is_equal_content(first: Path, second: Path) -> bool:
    """Whether pairs and triplets of two runs have the same rows."""
    runs = [Run(str(folder)).tables() for folder in (first, second)]
    queries = [CONTENT.format(table=table) for table in ("mined_pairs", "triplets")]
    return all(runs[0].sql(query).equals(runs[1].sql(query)) for query in queries)


def night_table(costs: Mapping[int, MiningCosts], days: int) -> ResultTable:
    """A night beside mining everything."""
    columns = {
        "searches per day": ",d",
        "impressions": ",d",
        "triplets": ",d",
        "all at once: s": ".1f",
        "a night: s": ".1f",
    }
    columns |= {"night ÷ all": ".1%", "all at once: MB": ".1f", "a night: MB": ".1f"}
    rows = []
    for searches, cost in costs.items():
        seconds, megabytes = (
            [getattr(way, unit) for way in (cost.at_once, cost.night)] for unit in ("seconds", "megabytes")
        )
        rows.append([searches, cost.impressions, cost.triplets, *seconds, seconds[1] / seconds[0], *megabytes])
    equal = "equal" if all(cost.is_equal for cost in costs.values()) else "DIFFERENT"
    return ResultTable(f"The last of {days} days", columns, rows, f"Pairs and triplets are {equal}.", ["duckdb"])


def stage_table(largest: MiningCosts) -> ResultTable:
    """Processor seconds of each stage, for the largest log."""
    rows = [[name, seconds, largest.night.stages.get(name)] for name, seconds in largest.at_once.stages.items()]
    columns = {"stage": "", "all at once: s": ".2f", "a night: s": ".2f"}
    return ResultTable("Stages of the largest log", columns, rows, "–: up to date, not run again.")


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__)
    parser.add_argument("--days", type=int, default=31)
    parser.add_argument("--searches", type=int, nargs="+", default=[2_500, 6_800])
    parser.add_argument("--commands", action="store_true")
    arguments = parser.parse_args()
    days, sizes = (4, [500]) if arguments.quick else (arguments.days, sorted(arguments.searches))
    with tempfile.TemporaryDirectory(prefix="darklode-night-") as folder:
        commands = {size: measure_commands(Path(folder, f"commands-{size}"), days, size) for size in sizes[-1:]}
        tables = [command_table(commands, days)]
        if not arguments.commands:
            costs = {size: measure(Path(folder, str(size)), days, size) for size in sizes}
            tables += [night_table(costs, days), stage_table(costs[sizes[-1]])]
    publish("mining_night", tables, quick=arguments.quick)


if __name__ == "__main__":
    main()
