"""Start-up.

Time of whole `darklode` processes on the sample: processor seconds of all their processes together, and wall time;
medians of five. `darklode mine` is timed until its first line. Baseline: the interpreter alone (`python -c pass`).
Takes 5 minutes; `--quick` times the read-only commands once (2 min).

    python -m benchmarks.startup [--quick] [--rounds N]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import psutil

from benchmarks.measure import child_seconds
from benchmarks.report import ResultTable, options, publish

SAMPLE = Path(__file__).parents[1] / "data" / "sample"
DARKLODE = str(Path(sys.executable).with_name("darklode"))

Cost = tuple[float, float]
"""Processor and wall seconds."""


def run_whole(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Cost of a command that must succeed."""
    before, began = child_seconds(), time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return child_seconds() - before, time.perf_counter() - began


def run_to_first_line(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Cost of a command until it prints something; then it is stopped."""
    began = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # type: ignore[union-attr]
        wall, used = time.perf_counter() - began, psutil.Process(process.pid).cpu_times()
        process.terminate()
    return used.user + used.system, wall


def measure(work: Path, rounds: int, *, quick: bool) -> list[list[object]]:
    """A row for each command."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = inherited | {"PREFECT_HOME": str(work / "prefect"), "DO_NOT_TRACK": "1"}
    run, settings = str(work / "run"), ["--set", f"cache.root={work / 'cache'}"]
    inputs = ["--docs", str(SAMPLE), *settings]

    def build(out: str) -> list[str]:
        return [DARKLODE, "build", "--queries", str(SAMPLE), *inputs, "--out", out]

    run_whole(build(run), environment)  # also migrates Prefect's database
    commands = {
        "python -c pass (baseline)": [sys.executable, "-c", "pass"],
        "darklode --help": [DARKLODE, "--help"],
        "darklode status RUN": [DARKLODE, "status", run],
        "darklode query RUN 'SELECT 1'": [DARKLODE, "query", run, "SELECT 1"],
        "darklode build --check": [*build(run), "--check"],
        "darklode build, nothing changed": build(run),
    }
    rows = [row(name, [run_whole(command, environment) for _ in range(rounds)]) for name, command in commands.items()]
    if not quick:
        mine = [DARKLODE, "mine", "--logs", str(SAMPLE), *inputs, "--out", str(work / "mined")]
        first_lines = [run_to_first_line([*mine[:-1], f"{mine[-1]}{n}"], environment) for n in range(rounds)]
        rows.append(row("darklode mine, new run: first line", first_lines))
        builds = [run_whole(build(f"{run}{n}"), environment) for n in range(rounds)]
        rows.append(row("darklode build, new run", builds))
    return rows


def row(name: str, costs: Sequence[Cost]) -> list[object]:
    """Medians of a command."""
    return [name, *(median(cost[place] for cost in costs) for place in range(2))]


def table(rows: Sequence[Sequence[object]]) -> ResultTable:
    """Costs by command."""
    return ResultTable(
        "Commands on the sample", {"command": "", "processor s": ".2f", "wall s": ".2f"}, rows, packages=["prefect"]
    )


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="darklode-startup-") as folder:
        rows = measure(Path(folder), 1 if arguments.quick else arguments.rounds, quick=arguments.quick)
    publish("startup", [table(rows)], quick=arguments.quick)


if __name__ == "__main__":
    main()
