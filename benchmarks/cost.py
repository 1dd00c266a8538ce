"""What the whole job costs: seconds and peak memory per stage, on real documentation, cold, warm and after a change.

Usage: python -m benchmarks.cost [--copies 10] [--work DIR]
Needs ../shared/collections (opensearch-docs, stackfaq). Writes benchmarks/results/cost.md and cost.json.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from benchmarks.report import machine, markdown_table, write
from darklode.flows.config import load_settings
from darklode.flows.jobs import build_benchmark, mine_logs
from darklode.flows.jobs.job import stages
from darklode.pipeline.base.artifacts import Run

SHARED = Path(__file__).resolve().parents[2] / "shared" / "collections"
DOCS = SHARED / "opensearch-docs" / "raw"
QUERIES = SHARED / "stackfaq" / "queries.jsonl"
SAMPLE_SECONDS = 0.05
CHANGED_WORDS = 0.05
STAGES = {
    *stages(build_benchmark.steps(".", ".", load_settings())),
    *stages(mine_logs.steps(Run("."), ".", ".", load_settings())),
}


@dataclass
class Measured:
    """One call of the command: wall time, what its stages took, and the most memory each held."""

    wall: float = 0.0
    start: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    megabytes: dict[str, float] = field(default_factory=dict)
    redone: list[str] = field(default_factory=list)

    @property
    def outside(self) -> float:
        """Share of the wall time spent neither in stages nor before the first one."""
        return (self.wall - self.start - sum(self.seconds.values())) / self.wall


def build(docs: Path, out: Path, *options: str) -> Measured:
    """Run `darklode build` and watch it."""
    command = ["build", "--docs", str(docs), "--queries", str(QUERIES)]
    return observed([*command, "--out", str(out), "--keep-all-queries", *options], out)


def observed(arguments: list[str], out: Path) -> Measured:
    """Run `darklode …` and watch it from outside: its lines tell when a stage starts and ends."""
    command = [str(Path(sys.executable).with_name("darklode")), *arguments]
    measured, began, current = Measured(), time.perf_counter(), ""
    with tempfile.NamedTemporaryFile("w") as log, Path(log.name).open(encoding="utf-8") as said:
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(command, stdout=log, env=environment, text=True)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            for line in said.read().splitlines():
                current = _follow(line, current, measured, time.perf_counter() - began)
            _sample(watched, current, measured)
            time.sleep(SAMPLE_SECONDS)
    if process.returncode:
        raise SystemExit(f"darklode {arguments[0]} failed with {process.returncode}")
    measured.wall = time.perf_counter() - began
    manifests = Run(str(out)).manifests()
    measured.seconds = {name: manifests[name].seconds for name in measured.redone}
    return measured


def _follow(line: str, current: str, measured: Measured, now: float) -> str:
    if line.startswith("✓") and not measured.start:
        measured.start = now
    name, colon, _ = line.partition(": ")
    if not colon or name not in STAGES:
        return current
    if not measured.start:
        measured.start = now
    if name not in measured.redone:
        measured.redone.append(name)
    return name


def _sample(process: psutil.Process, stage: str, measured: Measured) -> None:
    try:
        megabytes = process.memory_info().rss / 1e6
    except psutil.NoSuchProcess:
        return
    measured.megabytes[stage] = max(measured.megabytes.get(stage, 0.0), megabytes)


def repeat(source: Path, target: Path, copies: int) -> None:
    """Copy a folder of documents several times, with some words of each copy exchanged for others of its text."""
    for copy in range(copies):
        shuffler = random.Random(copy)
        for path in sorted(source.rglob("*.md")):
            words = path.read_text(encoding="utf-8").split(" ")
            for _ in range(int(len(words) * CHANGED_WORDS) if copy else 0):
                words[shuffler.randrange(len(words))] = words[shuffler.randrange(len(words))]
            place = target / f"copy{copy}" / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(" ".join(words), encoding="utf-8")


def change_one(docs: Path) -> None:
    """Add a paragraph to one document."""
    path = sorted(docs.rglob("*.md"))[100]
    path.write_text(path.read_text(encoding="utf-8") + "\n\nA paragraph that was not there before.\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--work", type=Path, default=None)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="darklode-cost-"))
    try:
        results = _measure(work, arguments.copies)
    finally:
        if not arguments.work:
            shutil.rmtree(work)
    write("cost", _markdown(results, arguments.copies), {name: asdict(found) for name, found in results.items()})


def _measure(work: Path, copies: int) -> dict[str, Measured]:
    docs, out = work / "docs", work / "run"
    repeat(DOCS, docs, 1)
    results = {"cold": build(docs, out), "unchanged": build(docs, out)}
    change_one(docs)
    results["one document changed"] = build(docs, out)
    print(json.dumps({name: asdict(found) for name, found in results.items()}, indent=1))
    if copies > 1:
        many = work / "many"
        repeat(DOCS, many, copies)
        results[f"{copies} times the documents"] = build(many, work / "run-many")
    return results


def _markdown(results: dict[str, Measured], copies: int) -> str:
    cold, many = results["cold"], results.get(f"{copies} times the documents")
    head = ["stage", "seconds", "peak MB"]
    if many:
        head += [f"seconds, {copies}×", f"peak MB, {copies}×", "memory ratio"]
    rows = []
    for stage in cold.redone:
        row = [stage, f"{cold.seconds[stage]:.1f}", f"{cold.megabytes.get(stage, 0):.0f}"]
        if many:
            peak = many.megabytes.get(stage, 0)
            ratio = peak / cold.megabytes[stage] if cold.megabytes.get(stage) else float("nan")
            row += [f"{many.seconds[stage]:.1f}", f"{peak:.0f}", f"{ratio:.1f}"]
        rows.append(row)
    calls = [
        [name, f"{one.wall:.1f}", f"{one.start:.1f}", f"{100 * one.outside:.1f} %", ", ".join(one.redone) or "none"]
        for name, one in results.items()
    ]
    return "\n\n".join(
        [
            "# Cost of the whole job",
            machine(),
            markdown_table(["call", "wall s", "of it before the first stage", "outside the stages", "redone"], calls),
            markdown_table(head, rows),
        ]
    )


if __name__ == "__main__":
    main()
