"""A night of mining.

Mining one new day on top of 30 mined ones against mining all 31 days at once: processor seconds of all stages, card
and report, and megabytes written, in its own process without Prefect. Pairs and triplets of both ways must be equal.
The log is made up: ten impressions a search, 40,000 documents, no ranker. Takes 10 minutes; `--quick` mines 4 days of
500 searches (2 min).

    python -m benchmarks.mining_night [--quick] [--days N] [--searches N ...]
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from benchmarks.click_log import FIRST, write_day, write_documents
from benchmarks.measure import in_new_process
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


def file_sizes(folder: Path) -> dict[tuple[str, int], int]:
    """Bytes of each file, by path and time of the last change."""
    stats = [(path, path.stat()) for path in folder.rglob("*") if path.is_file()]
    return {(str(path), stat.st_mtime_ns): stat.st_size for path, stat in stats}


def measure(work: Path, days: int, searches: int) -> MiningCosts:
    """Write a log, mine it at once, and mine its last day on top of the others (the median round)."""
    write_documents(work / "docs.parquet", DOCUMENTS)
    for number in range(days):
        write_day(work / "log", number, searches, DOCUMENTS)
    in_new_process(mine, work, work / "base", 0, days - 2)
    at_once = in_new_process(mine, work, work / "once", 0, days - 1)
    nights: list[MiningCost] = []
    for _ in range(ROUNDS):
        shutil.rmtree(work / "night", ignore_errors=True)
        shutil.copytree(work / "base", work / "night")
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
    parser.add_argument("--searches", type=int, nargs="+", default=[2_500, 10_000])
    arguments = parser.parse_args()
    days, sizes = (4, [500]) if arguments.quick else (arguments.days, sorted(arguments.searches))
    with tempfile.TemporaryDirectory(prefix="darklode-night-") as folder:
        costs = {searches: measure(Path(folder, str(searches)), days, searches) for searches in sizes}
    publish("mining_night", [night_table(costs, days), stage_table(costs[sizes[-1]])], quick=arguments.quick)


if __name__ == "__main__":
    main()
