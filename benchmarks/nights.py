"""A night of mining on top of many, against mining all of them anew; one-hop evidence against a bare aggregate.

    python -m benchmarks.nights [--days 31] [--searches 100000] [--ranked-searches 2000] [--work DIR]

The log is made up (benchmarks/click_log.py), ten impressions a search. It is mined without a ranker, which would take
most of the time, and a smaller one with it. Writes benchmarks/results/nights.md and nights.json. Needs 8 GB of disk.
"""

import argparse
import hashlib
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import duckdb

from benchmarks.click_log import FIRST, write_day, write_documents
from benchmarks.cost import Measured, observed
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.tables import scratch
from darklode.pipeline.base.relations import keep
from darklode.pipeline.mine.evidence import EVIDENCE, evidence
from darklode.pipeline.mine.one_hop import OneHop
from darklode.schemas.mining import ClickSettings, LogSettings

ROUNDS = 3
RANKER = ("--set", "relevance.ranker=judge")
BARE = """
    SELECT query, doc_id, count(*) AS exposures, count(*) FILTER (clicked) AS clicks
    FROM read_parquet('{log}/*/*.parquet') GROUP BY query, doc_id
"""


@dataclass(frozen=True)
class Nights:
    """One log, mined in two ways.

    Attributes:
        impressions: rows of the log.
        rebuild: all days at once.
        night: the last day on top of the others.
        same: whether both ended with the same triplets, to the byte.
        triplets: how many.
    """

    impressions: int
    rebuild: Measured
    night: Measured
    same: bool
    triplets: int


@dataclass(frozen=True)
class Alone:
    """Median seconds, and the most megabytes, of a piece of work in a process of its own."""

    seconds: float
    megabytes: float


def mine(work: Path, out: Path, first: int, last: int, *options: str) -> Measured:
    """Mine some days of the log."""
    days = [str(FIRST + timedelta(number)) for number in (first, last)]
    command = ["mine", "--logs", str(work / "log"), "--docs", str(work / "docs.parquet"), "--out", str(out)]
    return observed([*command, "--from", days[0], "--to", days[1], *options], out)


def nights(work: Path, days: int, searches: int, *options: str) -> Nights:
    """Write a log, mine it at once, and mine its last day on top of the others."""
    write_documents(work / "docs.parquet")
    impressions = sum(write_day(work / "log", number, searches) for number in range(days))
    once, grown = work / "once", work / "grown"
    rebuild = mine(work, once, 0, days - 1, *options)
    mine(work, grown, 0, days - 2, *options)
    night = mine(work, grown, days - 1, days - 1, *options)
    rows = Run(str(once)).tables("triplets").rows("triplets")
    return Nights(impressions, rebuild, night, triplets(once) == triplets(grown), rows)


def triplets(out: Path) -> dict[str, str]:
    """A hash of every file of triplets."""
    root = out / "tables" / "triplets"
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*.parquet")}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


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
        queries = keep(connection, "SELECT tenant, query_id FROM log_queries")
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
    parser.add_argument("--searches", type=int, default=100_000)
    parser.add_argument("--ranked-searches", type=int, default=2_000)
    parser.add_argument("--work", type=Path, default=None)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="darklode-nights-"))
    try:
        plain = nights(work / "plain", arguments.days, arguments.searches)
        pieces = {"one bare DuckDB aggregate": alone(bare, work / "plain"), "one-hop": alone(one_hop, work / "plain")}
        ranked = nights(work / "ranked", arguments.days, arguments.ranked_searches, *RANKER)
    finally:
        if not arguments.work:
            shutil.rmtree(work)
    found = {"without a ranker": plain, "with the embedded ranker": ranked}
    figures = {name: asdict(one) for name, one in found.items()} | {name: asdict(one) for name, one in pieces.items()}
    write("nights", _markdown(found, pieces, arguments.days), figures)


def _markdown(found: dict[str, Nights], pieces: dict[str, Alone], days: int) -> str:
    lines = ["# Mining, night by night", machine() + f"; DuckDB {duckdb.__version__}, with 2 GB of memory."]
    for name, one in found.items():
        share = one.night.wall / one.rebuild.wall
        rows = [(s, seconds, one.night.seconds.get(s, 0.0)) for s, seconds in one.rebuild.seconds.items()]
        rows.append(("the whole command", one.rebuild.wall, one.night.wall))
        same = "the same, to the byte" if one.same else "DIFFERENT"
        peaks = [max(measured.megabytes.values()) for measured in (one.rebuild, one.night)]
        lines.append(
            f"## {name}\n\n{one.impressions:,} impressions of {days} days, {one.triplets:,} triplets. The last day on "
            f"top of the others takes {share:.1%} of the time of all at once; the triplets are {same}. Peak memory "
            f"{peaks[0]:,.0f} MB at once, {peaks[1]:,.0f} MB for the last day."
        )
        head = ("stage", "all at once, s", "the last day, s")
        lines.append(markdown_table(head, [(n, f"{a:.1f}", f"{b:.1f}") for n, a, b in rows]))
    rows_in = found["without a ranker"].impressions
    lines.append(f"## One-hop evidence, {rows_in:,} impressions, median of {ROUNDS}")
    table = [
        (name, f"{one.seconds:.1f}", f"{rows_in / one.seconds:,.0f}", f"{one.megabytes:,.0f}")
        for name, one in pieces.items()
    ]
    lines.append(markdown_table(("work", "seconds", "impressions a second", "peak MB"), table))
    return "\n\n".join(lines)


if __name__ == "__main__":
    main()
