"""What it costs to start: whole processes of the command, from nothing to their last line.

    python -m benchmarks.starts [--rounds 5] [--work DIR]

Processor time of the command and of the Prefect server that it starts. Writes benchmarks/results/starts.md and
starts.json.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.report import machine, markdown_table, write

SAMPLE = Path(__file__).parents[1] / "data" / "sample"
DARKLODE = Path(sys.executable).with_name("darklode")


@dataclass(frozen=True)
class Start:
    """A command's cost.

    Attributes:
        processor: median seconds of the processor, of all its processes together.
        wall: median seconds until it ended.
    """

    command: str
    processor: float
    wall: float


def observed(name: str, command: list[str], rounds: int, environment: dict[str, str]) -> Start:
    """Run a command so many times; it must succeed."""
    processor, wall = [], []
    for _ in range(rounds):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([DARKLODE, *command], check=True, env=environment, stdout=subprocess.DEVNULL)
        wall.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return Start(name, round(median(processor), 2), round(median(wall), 2))


def first_line(name: str, command: list[str], rounds: int, environment: dict[str, str]) -> Start:
    """The cost until a command says something; it is ended then. Its last argument gets the round's number."""
    processor, wall = [], []
    for number in range(rounds):
        began = time.perf_counter()
        asked = [str(DARKLODE), *command[:-1], f"{command[-1]}{number}"]
        with subprocess.Popen(asked, env=environment, stdout=subprocess.PIPE) as process:
            process.stdout.readline()  # type: ignore[union-attr]
            wall.append(time.perf_counter() - began)
            used = psutil.Process(process.pid).cpu_times()
            processor.append(used.user + used.system)
            process.terminate()
    return Start(f"{name}: its first line", round(median(processor), 2), round(median(wall), 2))


def main() -> None:
    """Measure each command, and write what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.work) as work:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        environment = kept | {"PREFECT_HOME": f"{work}/prefect", "DO_NOT_TRACK": "1"}
        run, cache = f"{work}/run", ["--set", f"cache.root={work}/cache"]
        build = ["build", "--docs", str(SAMPLE), "--queries", str(SAMPLE), "--out", run, *cache]
        observed("the first build", build, 1, environment)  # migrates Prefect's database, too
        cases = {
            "darklode --help": ["--help"],
            "darklode status RUN": ["status", run],
            "darklode query RUN 'SELECT 1'": ["query", run, "SELECT 1"],
            "darklode build --check": [*build, "--check"],
            "darklode build, nothing changed": build,
        }
        found = [observed(name, command, given.rounds, environment) for name, command in cases.items()]
        mine = ["mine", "--logs", str(SAMPLE), "--docs", str(SAMPLE), *cache, "--out", f"{work}/mined"]
        found.append(first_line("darklode mine, the sample anew", mine, given.rounds, environment))
        fresh = [[*build[:6], f"{work}/run{number}", *cache] for number in range(given.rounds)]
        each = [observed("darklode build, the sample anew", command, 1, environment) for command in fresh]
        found.append(Start(each[0].command, median(one.processor for one in each), median(one.wall for one in each)))
    table = markdown_table(
        ["command", "processor (s)", "wall (s)"], [[one.command, one.processor, one.wall] for one in found]
    )
    write(
        "starts",
        f"# Starts\n\n{machine()}; medians of {given.rounds}.\n\n{table}",
        {"machine": machine(), "starts": [asdict(one) for one in found]},
    )


if __name__ == "__main__":
    main()
