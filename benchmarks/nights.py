"""A night of mining on top of many, against mining all of them; one-hop evidence against a bare aggregate.

    python -m benchmarks.nights [--days 31] [--searches 2500 10000] [--old DIR] [--rounds 3] [--work DIR]

The log is made up (benchmarks/click_log.py), ten impressions a search, 40,000 documents; it is mined without a ranker,
which would take most of the time. What counts is the processor time of all stages, the card and the report, in a
process of its own without Prefect, and the bytes of the files that it writes. With --old, the root of another version
of Darklode, both versions mine the same night in turns. Writes benchmarks/results/nights.md and nights.json; what lies
in --work already is taken as it is.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from math import log
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

from benchmarks import click_log
from benchmarks.click_log import FIRST, write_day, write_documents
from benchmarks.report import machine, markdown_table, write
from darklode.flows.config import load_settings
from darklode.flows.jobs.mine_logs import steps
from darklode.flows.runs import write_run
from darklode.flows.stage_runner import finish
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.tables import scratch
from darklode.pipeline.base.relations import materialize
from darklode.pipeline.mine.evidence import EVIDENCE, evidence
from darklode.pipeline.mine.one_hop import OneHop
from darklode.schemas.mining import ClickSettings, LogSettings
from darklode.schemas.run_inputs import MinedInputs

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = 40_000
ROUNDS = 3
BARE = """
    SELECT query, doc_id, count(*) AS exposures, count(*) FILTER (clicked) AS clicks
    FROM read_parquet('{log}/*/*.parquet') GROUP BY query, doc_id
"""
ALIKE = "SELECT count(*) AS rows, CAST(bit_xor(hash(t)) AS VARCHAR) AS content FROM {table} t"


@dataclass(frozen=True)
class Mined:
    """One call: processor seconds of each stage that worked and of all, and megabytes written."""

    stages: Mapping[str, float]
    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Nights:
    """One log, mined at once and by a last night.

    Attributes:
        impressions: rows of the log.
        triplets: how many it makes.
        once: all days at once.
        night: the last day on top of the others: the median round.
        old: the same by the other version; None where none was named.
        same: whether pairs and triplets of both ways have the same rows.
    """

    impressions: int
    triplets: int
    once: Mined
    night: Mined
    old: Mined | None
    same: bool

    @property
    def share(self) -> float:
        """Processor time of the night as a share of that of everything."""
        return self.night.seconds / self.once.seconds


@dataclass(frozen=True)
class Alone:
    """Median seconds, and the most megabytes, of a piece of work in a process of its own."""

    seconds: float
    megabytes: float


def mine(work: Path, out: Path, first: int, last: int) -> Mined:
    """Mine some days of the log, in this process."""
    began, stages, run = time.process_time(), dict[str, float](), Run(str(out))
    lying = _lying(out)
    settings = load_settings(assignments=["relevance.ranker=none"])
    logs, docs = str(work / "log"), str(work / "docs.parquet")
    write_run(run, MinedInputs(logs=logs, docs=docs), settings)
    job = steps(run, logs, docs, settings, [FIRST + timedelta(number) for number in range(first, last + 1)])
    for step in job:
        before = time.process_time()
        if step.enabled and not (plan := step.plan(run)).is_up_to_date:
            run.execute(plan, step.execute)
            stages[step.stage.name] = round(time.process_time() - before, 3)
    before = time.process_time()
    finish(run, settings, job)
    stages["card, views and report"] = round(time.process_time() - before, 3)
    size = sum(size for (name, stamp), size in _lying(out).items() if (name, stamp) not in lying)
    return Mined(stages, round(time.process_time() - began, 3), round(size / 1e6, 2))


def _lying(out: Path) -> dict[tuple[str, int], int]:
    found = [(path, path.stat()) for path in out.rglob("*") if path.is_file()]
    return {(str(path), stat.st_mtime_ns): stat.st_size for path, stat in found}


def apart(code: Path, work: Path, out: Path, first: int, last: int) -> Mined:
    """The same in a process of its own, by a version of Darklode."""
    known = os.environ | {"PYTHONPATH": os.pathsep.join([str(code / "src"), str(code)])}
    command = [
        sys.executable,
        "-P",
        str(Path(__file__).resolve()),
        "--mine",
        str(work),
        str(out),
        str(first),
        str(last),
    ]
    said = subprocess.run(command, env=known, cwd=code, check=True, capture_output=True, text=True)
    return Mined(**json.loads(said.stdout.splitlines()[-1]))


def nights(work: Path, days: int, searches: int, old: Path | None, rounds: int) -> Nights:
    """Write a log, mine it at once, and mine its last day on top of the others."""
    if not (work / "log").exists():
        write_documents(work / "docs.parquet")
        for number in range(days):
            write_day(work / "log", number, searches)
    if not (work / "base").exists():
        apart(ROOT, work, work / "base", 0, days - 2)
    shutil.rmtree(work / "once", ignore_errors=True)
    once = apart(ROOT, work, work / "once", 0, days - 1)
    found: dict[Path, list[Mined]] = {code: [] for code in (old, ROOT) if code}
    for _ in range(rounds):
        for code, measured in found.items():
            shutil.rmtree(work / "night", ignore_errors=True)
            shutil.copytree(work / "base", work / "night")
            measured.append(apart(code, work, work / "night", days - 1, days - 1))
    middle = {code: sorted(some, key=lambda one: one.seconds)[len(some) // 2] for code, some in found.items()}
    whole, grown = (Run(str(work / name)).tables() for name in ("once", "night"))
    same = all(
        whole.sql(ALIKE.format(table=table)).equals(grown.sql(ALIKE.format(table=table)))
        for table in ("mined_pairs", "triplets")
    )
    rows = whole.rows("impressions"), whole.rows("triplets")
    return Nights(*rows, once, middle[ROOT], middle[old] if old else None, same)


def bare(work: Path) -> None:
    """What DuckDB alone takes for clicks and exposures of each query and document of the log."""
    with scratch() as connection:
        connection.execute(f"CREATE TABLE sums AS {BARE.format(log=work / 'log')}")


def one_hop(work: Path) -> None:
    """The days' evidence from `impressions`, and every query's own pairs from that."""
    run, click = Run(str(work / "once")), ClickSettings()
    target = Run(str(work / "evidence"))
    impressions = run.tables("impressions", "click_model")
    stage = replace(EVIDENCE, reads=())
    target.execute(target.plan(stage, {}), lambda _, output: evidence(impressions, output, click, LogSettings()))
    tables = run.tables("click_evidence", "click_prior", "relevance_evidence", "log_queries")
    with tables.connect() as connection:
        queries = materialize(connection, "SELECT tenant, query_id FROM log_queries")
        OneHop(click, "9999-12-31", 13).pairs(connection, queries)


def alone(what: Callable[[Path], None], work: Path) -> Alone:
    """Measure in new processes, several times."""
    context, rounds = get_context("spawn"), []
    for _ in range(ROUNDS):
        ours, theirs = context.Pipe()
        process = context.Process(target=_measured, args=(what, work, theirs))
        process.start()
        theirs.close()
        rounds.append(ours.recv())
        process.join()
        shutil.rmtree(work / "evidence", ignore_errors=True)
    return Alone(median(seconds for seconds, _ in rounds), max(megabytes for _, megabytes in rounds))


def _measured(what: Callable[[Path], None], work: Path, pipe: object) -> None:
    began = time.perf_counter()
    what(work)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send((time.perf_counter() - began, megabytes))  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=31)
    parser.add_argument("--searches", type=int, nargs="+", default=[2_500, 10_000])
    parser.add_argument("--old", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--mine", nargs=4, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.mine:
        work, out, first, last = given.mine
        print(json.dumps(asdict(mine(Path(work), Path(out), int(first), int(last)))))
        return
    click_log.DOCUMENTS = DOCUMENTS
    root = given.work or Path(tempfile.mkdtemp(prefix="darklode-nights-"))
    try:
        found = {
            searches: nights(root / str(searches), given.days, searches, given.old, given.rounds)
            for searches in sorted(given.searches)
        }
        largest = root / str(max(found))
        pieces = {"one bare DuckDB aggregate": alone(bare, largest), "one-hop": alone(one_hop, largest)}
    finally:
        if not given.work:
            shutil.rmtree(root)
    figures: dict[str, Any] = {f"{searches} searches a day": asdict(one) for searches, one in found.items()}
    figures |= {name: asdict(one) for name, one in pieces.items()}
    write("nights", _markdown(found, pieces, given.days), figures)


def _markdown(found: Mapping[int, Nights], pieces: Mapping[str, Alone], days: int) -> str:
    lines = ["# Mining, night by night", machine() + f"; DuckDB {duckdb.__version__}, with 2 GB of memory."]
    head = (
        "searches a day",
        "impressions",
        "triplets",
        "all at once, s",
        "a night, s",
        "share",
        "MB at once",
        "MB a night",
    )
    rows = [
        (f"{n:,}", f"{one.impressions:,}", f"{one.triplets:,}", f"{one.once.seconds:.1f}", f"{one.night.seconds:.1f}",
         f"{one.share:.1%}", f"{one.once.megabytes:.1f}", f"{one.night.megabytes:.1f}")
        for n, one in found.items()
    ]  # fmt: skip
    lines.append(f"Processor time; {days} days, of which the night is the last one.\n\n{markdown_table(head, rows)}")
    if any(one.old for one in found.values()):
        before = [
            (f"{n:,}", f"{one.old.seconds:.1f}", f"{one.night.seconds:.1f}", f"{one.old.megabytes:.1f}",
             f"{one.night.megabytes:.1f}")
            for n, one in found.items() if one.old
        ]  # fmt: skip
        titles = ("searches a day", "the night before, s", "now, s", "MB before", "MB now")
        lines.append(f"## The version before, in turns\n\n{markdown_table(titles, before)}")
    sizes = sorted(found)
    if len(sizes) > 1:
        small, large = found[sizes[0]], found[sizes[-1]]
        growth = log(large.impressions / small.impressions)
        powers = {
            name: log(getattr(large, name).seconds / getattr(small, name).seconds) / growth
            for name in ("once", "night")
        }
        lines.append(
            f"From the smallest log to the largest, processor time grows with the impressions to the power of "
            f"{powers['once']:.2f} for everything, {powers['night']:.2f} for the night."
        )
    lines.append("Pairs and triplets are " + ("the same." if all(one.same for one in found.values()) else "DIFFERENT."))
    for n, one in found.items():
        table = [(name, f"{s:.2f}", f"{one.night.stages.get(name, 0):.2f}") for name, s in one.once.stages.items()]
        lines.append(f"## {n:,} searches a day\n\n" + markdown_table(("stage", "all at once, s", "a night, s"), table))
    rows_in = found[sizes[-1]].impressions
    lines.append(f"## One-hop evidence, {rows_in:,} impressions, median of {ROUNDS}")
    pace = [
        (name, f"{one.seconds:.1f}", f"{rows_in / one.seconds:,.0f}", f"{one.megabytes:,.0f}")
        for name, one in pieces.items()
    ]
    lines.append(markdown_table(("work", "seconds", "impressions a second", "peak MB"), pace))
    return "\n\n".join(lines)


if __name__ == "__main__":
    main()
