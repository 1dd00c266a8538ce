"""A year of nights with three garbage days, against one run over a log that never held them.

    python -m benchmarks.year_of_nights [--days 365] [--every 1]

The log is drawn from the sample's sessions (benchmarks/day_gate.py), in a file a day. A night reads one day; with
--every 7 a week, but garbage, and each of the three days after it, by itself. No ranker, no report. Writes
benchmarks/results/year_of_nights.md and year_of_nights.json.
"""

import argparse
import hashlib
import tempfile
import time
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.day_gate import FIRST, GARBAGE, read_sample, sample_log
from benchmarks.report import machine, write
from darklode.flows.config import load_settings
from darklode.flows.jobs.mine_logs import steps
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import MinedInputs
from darklode.schemas.settings import Settings

DOCUMENTS = Path(__file__).resolve().parents[1] / "data" / "sample"
BROKEN: Mapping[float, str] = {
    0.2: "eight copies of a day, random documents, half clicked",
    0.5: "documents shuffled",
    0.8: "one query only",
}
"""What takes the place of a day, after so much of the year."""
STATES = "SELECT DISTINCT CAST(date AS VARCHAR) AS day, state FROM log_days WHERE state <> 'admitted' ORDER BY day"


def write_logs(folder: Path, days: int) -> list[str]:
    """Write the log with garbage and the one without its days; returns these days."""
    day = sample_log(read_sample(folder / "sample"))
    broken = {int(share * days): kind for share, kind in BROKEN.items()}
    for number in range(days):
        rows, name = day(number), f"date={FIRST + timedelta(number)}"
        if number in broken:
            rows = GARBAGE[broken[number]](rows, np.random.default_rng(number), number)
        for log in ["nights"] if number in broken else ["nights", "clean"]:
            (folder / log / name).mkdir(parents=True)
            pq.write_table(rows.drop_columns(["query_id"]), folder / log / name / "impressions.parquet")
    return [str(FIRST + timedelta(number)) for number in broken]


def mine(log: Path, out: Path, settings: Settings, days: list[date] | None = None) -> float:
    """Run the stages of a night; returns its seconds."""
    began, run = time.perf_counter(), Run(str(out))
    write_run(run, MinedInputs(logs=str(log), docs=str(DOCUMENTS)), settings)
    for step in steps(run, str(log), str(DOCUMENTS), settings, days):
        if step.enabled and not (plan := step.plan(run)).is_up_to_date:
            run.execute(plan, step.execute)
    return time.perf_counter() - began


def triplets(out: Path) -> dict[str, str]:
    """A hash of every file of triplets."""
    root = out / "tables" / "triplets"
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*.parquet")}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def nights_of(days: int, every: int) -> list[list[date]]:
    """The days that each night reads."""
    alone = {int(share * days) + after for share in BROKEN for after in range(4)}
    found: list[list[date]] = []
    for number in range(days):
        if number in alone or number - 1 in alone or not found or len(found[-1]) == every:
            found.append([])
        found[-1].append(FIRST + timedelta(number))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    nights = nights_of(given.days, given.every)
    settings = load_settings(assignments=["relevance.ranker=none"])
    with tempfile.TemporaryDirectory(prefix="darklode-year-") as work:
        folder = Path(work)
        broken = write_logs(folder, given.days)
        run, clean = folder / "run", folder / "one"
        seconds = [mine(folder / "nights", run, settings, days) for days in nights]
        at_once = mine(folder / "clean", clean, settings)
        states = {row["day"]: row["state"] for row in Run(str(run)).tables("log_days").sql(STATES).to_pylist()}
        same, rows = triplets(run) == triplets(clean), Run(str(run)).tables("triplets").rows("triplets")
    if not rows:
        raise SystemExit("no triplet was mined, so the comparison says nothing")
    found = {
        "days": given.days,
        "nights": len(nights),
        "garbage": broken,
        "not admitted": states,
        "same triplets": same,
        "triplets": rows,
        "seconds of all nights": round(sum(seconds), 1),
        "seconds of the last night": round(seconds[-1], 2),
        "seconds at once": round(at_once, 1),
    }
    write("year_of_nights", _markdown(found), found)


def _markdown(found: Mapping[str, object]) -> str:
    lines = [f"- {name}: {value}" for name, value in found.items()]
    return "\n\n".join(["# A year of nights with three garbage days", machine(), "\n".join(lines)])


if __name__ == "__main__":
    main()
