"""The review page with ten thousand pairs over a million chunks: seconds to start, milliseconds for a page.

    python -m benchmarks.review [--chunks 1000000] [--pairs 10000] [--work DIR]

A real `darklode review` is asked over loopback as a browser would: a page, an answer, the redirect, the next page.
Writes benchmarks/results/review.md and review.json. Needs 2 GB of disk.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np
import psutil
import pyarrow as pa
import yaml
from playwright.sync_api import sync_playwright

from benchmarks.report import machine, markdown_table, write
from darklode.flows.config import load_settings
from darklode.flows.jobs.validate_benchmark import steps
from darklode.pipeline.base.artifacts import Output, Plan, Run, Stage, Tables
from darklode.pipeline.base.artifacts.tables import scratch
from darklode.pipeline.validate.review.journal import AnswerJournal, ReviewAnswer
from darklode.schemas.tables import TABLES

PER_DOCUMENT = 10
PER_QUERY = 40
WORDS = 65
PART_ROWS = 1 << 17
ROUNDS = 500
PAINTS = 50
CLIENTS = 4
TARGET = 100
OPEN = "html[data-open]"
PAINT = "performance.getEntriesByName('first-contentful-paint')"

CHUNKS = """
    'doc' || i // {per} || '#' || i AS chunk_id, 'doc' || i // {per} AS doc_id, CAST(i % {per} AS INTEGER) AS position,
    0 AS start, 500 AS "end", 'Document ' || i // {per} AS title, 'Guide › Part' AS heading,
    array_to_string(list_transform(range({words}), lambda x: 'w' || hash(i * {words} + x) % 20000), ' ') AS text,
    CAST(i AS VARCHAR) AS content_hash
"""
DOCUMENTS = """
    'doc' || i AS doc_id, 'Document ' || i AS title, '…' AS text, 'https://docs.example/' || i AS url,
    'made up' AS source, CAST(i AS VARCHAR) AS content_hash
"""
QUERIES = """
    'q' || i AS query_id, 'w' || hash(i) % 20000 || ' w' || hash(-i) % 20000 AS text, 2 AS n_words, 'en' AS language,
    0.9 AS language_score, 0 AS cluster_id, 1 AS n_represented, 'test' AS split
"""
SAMPLE = """
    'q' || i // {asked} AS query_id, 'doc' || hash(i) % {chunks} // {per} || '#' || hash(i) % {chunks} AS chunk_id,
    i AS position, 'all' AS stratum, {pairs} AS pairs, {pairs} AS sampled, 1.0 AS weight, i % 5 = 0 AS shared
"""


@dataclass(frozen=True)
class Times:
    """Milliseconds of one kind of request."""

    what: str
    requests: int
    median: float
    p95: float
    most: float

    @classmethod
    def of(cls, what: str, seconds: list[float]) -> Times:
        """Sum up measured seconds."""
        taken = np.array(seconds) * 1000
        return cls(what, len(taken), float(np.median(taken)), float(np.quantile(taken, 0.95)), float(taken.max()))


@dataclass(frozen=True)
class Figures:
    """What was measured: milliseconds, seconds to start without and with every pair answered, megabytes."""

    chunks: int
    pairs: int
    times: list[Times]
    start: float
    start_answered: float
    megabytes: float


@dataclass(frozen=True)
class Served:
    """A server under way: its connection's place, its path, and what its start took."""

    place: str
    path: str
    seconds: float
    megabytes: Callable[[], float]
    cpu_seconds: Callable[[], float]


def make(out: Path, chunks: int, pairs: int) -> Run:
    """A run with nothing but what a review reads."""
    run = Run(str(out))
    given = {"per": PER_DOCUMENT, "words": WORDS, "asked": PER_QUERY, "chunks": chunks, "pairs": pairs}
    fill(run, "chunks", CHUNKS.format_map(given), chunks)
    fill(run, "documents", DOCUMENTS.format_map(given), chunks // PER_DOCUMENT)
    fill(run, "queries", QUERIES.format_map(given), pairs // PER_QUERY)
    fill(run, "pool", "", 0)
    fill(run, "verdicts", "", 0)
    fill(run, "review_sample", SAMPLE.format_map(given), pairs, steps(run, load_settings())[0].plan(run))
    run.store.write("settings.yaml", yaml.safe_dump(load_settings().model_dump(mode="json")).encode())
    run.store.write("inputs.json", b'{"kind": "benchmark", "docs": "docs", "queries": "queries"}')
    return run


def fill(run: Run, table: str, columns: str, rows: int, plan: Plan | None = None) -> None:
    """Write a table by its columns' SQL, as functions of the row's number `i`; by a plan, it stands as its result."""

    def work(_tables: Tables, output: Output) -> None:
        for begin in range(0, rows, PART_ROWS):
            with scratch() as connection:
                numbers = f"range({begin}, {min(rows, begin + PART_ROWS)}) t(i) ORDER BY i"
                found = connection.sql(f"SELECT 'acme' AS tenant, {columns} FROM {numbers}").to_arrow_table()
            output.write(table, TABLES[table].rows({name: found[name] for name in found.column_names}))

    run.execute(plan or run.plan(Stage(f"made_{table}", 1, (), (table,)), {}), work)


@contextmanager
def serving(run: Run, what: str = "review") -> Iterator[Served]:
    """`darklode review`, or another command with pages, as a user starts it."""
    command = [str(Path(sys.executable).with_name("darklode")), what, run.store.url, "--port", "0"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    try:
        address = next(line.strip() for line in process.stdout if line.startswith("http://"))
        url = urlsplit(address)
        own = psutil.Process(process.pid)
        seconds = time.perf_counter() - began
        cpu = lambda: sum(own.cpu_times()[:2])  # noqa: E731
        yield Served(url.netloc, url.path, seconds, lambda: own.memory_info().rss / 1e6, cpu)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


class Client:
    """A reviewer's browser: one connection, kept open."""

    def __init__(self, served: Served, reviewer: str) -> None:
        self._connection = http.client.HTTPConnection(served.place)
        self._path, self._query = served.path, urlencode({"reviewer": reviewer})

    def page(self, more: str = "") -> str:
        """The next pair."""
        return self._ask("GET", f"pair?{self._query}{more}")

    def answer(self, page: str) -> str:
        """Label the pair of a page, and follow to the next one."""
        self._ask("POST", f"pair?{self._query}", urlencode({"pair": name_on(page), "answer": "1"}))
        return self.page()

    def _ask(self, method: str, path: str, body: str | None = None) -> str:
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        self._connection.request(method, self._path + path, body, headers)
        reply = self._connection.getresponse()
        assert reply.status in (200, 303), reply.status
        return reply.read().decode()


def name_on(page: str) -> str:
    """The pair that a page shows."""
    found = re.search(r'data-pair="(\w+)"', page)
    assert found
    return found[1]


def review(served: Served, reviewer: str, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of pages, of answers with the page that follows, and of pages with neighbours."""
    client = Client(served, reviewer)
    pages, answers, around = [], [], []
    shown = client.page()
    for number in range(rounds):
        pages.append(timed(client.page)[0])
        if number % 10 == 0:
            around.append(timed(lambda: client.page(f"&around={name_on(shown)}"))[0])  # noqa: B023 (called at once)
        taken, shown = timed(lambda: client.answer(shown))  # noqa: B023
        answers.append(taken)
    return pages, answers, around


def timed(what: Callable[[], str]) -> tuple[float, str]:
    """Seconds, and what came."""
    began = time.perf_counter()
    came = what()
    return time.perf_counter() - began, came


def at_once(served: Served, clients: int, rounds: int) -> list[Times]:
    """So many reviewers at the same time."""
    with ThreadPoolExecutor(clients) as pool:
        names = [f"reviewer {clients}-{number}" for number in range(clients)]
        parts = list(pool.map(lambda name: review(served, name, rounds), names))
    whose = "one reviewer" if clients == 1 else f"{clients} reviewers at once"
    kinds = ("a page", "an answer and the next page", "a page with neighbours")
    return [
        Times.of(f"{whose}: {kind}", [one for part in parts for one in part[number]])
        for number, kind in enumerate(kinds)
    ]


def painted(served: Served, rounds: int) -> list[float]:
    """Seconds from a key to the first paint of the next page, in headless Chromium, which draws without a GPU."""
    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.goto(f"http://{served.place}{served.path}pair?reviewer=Eve")
        tab.wait_for_selector(OPEN)
        for _ in range(rounds):
            with tab.expect_navigation():
                tab.keyboard.press("1")
            tab.wait_for_selector(OPEN)
            taken.append(tab.evaluate(f"{PAINT}[0].startTime") / 1000)
        browser.close()
    return taken


def answer_all(run: Run, pairs: pa.Table) -> None:
    """Put an answer to every pair into the journal."""
    journal = AnswerJournal(run.store)
    blank = ReviewAnswer("acme", "", "", "Ann", 1, datetime.now(UTC))
    for query_id, chunk_id in zip(pairs["query_id"].to_pylist(), pairs["chunk_id"].to_pylist(), strict=True):
        journal.append(replace(blank, query_id=query_id, chunk_id=chunk_id))


def main() -> None:
    """Make, measure, write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--work", type=Path, default=None)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="darklode-review-"))
    try:
        figures = measure(make(work / "run", arguments.chunks, arguments.pairs))
    finally:
        if not arguments.work:
            shutil.rmtree(work)
    write("review", _markdown(figures), asdict(figures))


def measure(run: Run) -> Figures:
    """Serve the run, ask, and serve it again when every pair is answered."""
    tables = run.tables("chunks", "review_sample")
    with serving(run) as served:
        start, times = served.seconds, [*at_once(served, 1, ROUNDS), *at_once(served, CLIENTS, ROUNDS)]
        times.append(Times.of("in headless Chromium: from a key to the next page, painted", painted(served, PAINTS)))
        megabytes = served.megabytes()
    answer_all(run, tables.read("review_sample"))
    with serving(run) as served:
        return Figures(tables.rows("chunks"), tables.rows("review_sample"), times, start, served.seconds, megabytes)


def _markdown(found: Figures) -> str:
    head = ["milliseconds", "requests", "median", "95th percentile", "most"]
    rows = [[one.what, one.requests, f"{one.median:.1f}", f"{one.p95:.1f}", f"{one.most:.1f}"] for one in found.times]
    return "\n\n".join(
        [
            "# The review page",
            f"{machine()}; load average {os.getloadavg()[0]:.1f}. {found.pairs:,} pairs to review over "
            f"{found.chunks:,} chunks; target: {TARGET} ms a page.",
            markdown_table(head, rows),
            f"From the command to the address: {found.start:.1f} s, with every pair answered "
            f"{found.start_answered:.1f} s. Memory: {found.megabytes:.0f} MB.",
        ]
    )


if __name__ == "__main__":
    main()
