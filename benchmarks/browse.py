"""`darklode browse` with ten thousand queries and a million pairs: seconds to start, milliseconds for a page.

    python -m benchmarks.browse [--queries 10000] [--work DIR]

A real `darklode browse` is asked over loopback as a browser would. Beside it, two ways to search the chunks: DuckDB's
`contains`, which it uses, and an index by bm25s.

Writes benchmarks/results/browse.md and browse.json. Needs 2 GB of disk.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlencode

import bm25s
import numpy as np
import yaml

from benchmarks.report import machine, markdown_table, write
from benchmarks.review import Served, Times, fill, serving, timed
from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.tables import scratch
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.browse.build_tables import FOLD

PER_DOCUMENT, PER_QUERY, DEEP, RETRIEVERS, NEGATIVES = 10, 100, 420, 7, 16
WORDS = 65
TARGET = 150
ROUNDS = 30

QUERY = "printf('q%05d', {query})"
CHUNK = "printf('docs/%05d.md#%06d', {chunk} // 10, {chunk})"
WORD = "'w' || CAST(floor(20000 * power(CAST(hash({seed}) % 1000003 AS DOUBLE) / 1000003, 3)) AS INTEGER)"
"""A word of a vocabulary of 20,000, the first ones oftenest."""

TEXT = f"array_to_string(list_transform(range({WORDS}), lambda x: {WORD.format(seed=f'i * {WORDS} + x')}), ' ')"
FOUND = CHUNK.format(chunk="hash(i // {per} * 1000003 + i % {per}) % {chunks}")
KEY = f"{QUERY.format(query='i // {per}')} AS query_id, {FOUND} AS chunk_id"
NEGATIVE = CHUNK.format(chunk="hash(i * 17 + x) % {chunks}")
TABLES = {
    "documents": f"""
        printf('docs/%05d.md', i) AS doc_id, 'Document ' || i AS title, {TEXT} AS text,
        'https://docs.example/' || i AS url, 'made up' AS source, CAST(i AS VARCHAR) AS content_hash
    """,
    "chunks": f"""
        {CHUNK.format(chunk="i")} AS chunk_id, printf('docs/%05d.md', i // 10) AS doc_id,
        CAST(i % 10 AS INTEGER) AS position, 0 AS start, 500 AS "end", 'Document ' || i // 10 AS title,
        'Guide › Part' AS heading, {TEXT} AS text, CAST(i AS VARCHAR) AS content_hash
    """,
    "queries": f"""
        {QUERY.format(query="i")} AS query_id, {WORD.format(seed="i")} || ' ' || {WORD.format(seed="-i")} AS text,
        2 AS n_words, 'en' AS language, 0.9 AS language_score, 0 AS cluster_id, 1 AS n_represented,
        CASE i % 10 WHEN 0 THEN 'test' WHEN 1 THEN 'validation' ELSE 'train' END AS split
    """,
    "rankings": KEY.replace("{per}", "{deep}")
    + """
        , 'retriever ' || i // {lists} AS retriever, CAST(i % {deep} + 1 AS INTEGER) AS rank,
        CAST(1 / (i % {deep} + 1) AS FLOAT) AS score
    """,
    "pool": KEY
    + """
        , list_transform(range(CAST(1 + hash(i) % 4 AS BIGINT)), lambda x: 'retriever ' || hash(i + x) % 7)
        AS retrievers,
        CAST(i % {per} % 60 + 1 AS INTEGER) AS best_rank, CAST(1 / (i % {per} + 1) AS FLOAT) AS fused_score
    """,
    "verdicts": KEY
    + """
        , 'made up' AS judge_id, hash(i) % 20 = 0 AS relevant, CAST(hash(i) % 1000 / 1000 AS FLOAT) AS probability
    """,
    "qrels": KEY + ", CAST(hash(i) % 20 = 0 AS INTEGER) AS relevance, 'judge' AS source",
    "triplets": KEY.replace("AS chunk_id", "AS positive_id")
    + f"""
        , printf('t%08d', i) AS triplet_id, 'w1 w2' AS query, '…' AS positive, 'pooled' AS source, 'train' AS split,
        list_transform(range({NEGATIVES}), lambda x: {NEGATIVE}) AS negative_ids,
        list_transform(range({NEGATIVES}), lambda x: '…') AS negatives,
        list_transform(range({NEGATIVES}), lambda x: CAST(0.1 AS FLOAT)) AS negative_scores
    """,
    "rejects": """
        'raw_queries' AS "table", 'r' || i AS id, 'clean.noise' AS stage, 'reason ' || i % 30 AS reason,
        'log.csv' AS file, i AS line, 'w' || i || ' and more' AS payload
    """,
}

ASKED: dict[str, tuple[str, dict[str, str]]] = {
    "the overview": ("", {}),
    "queries": ("queries", {}),
    "queries with two words": ("queries", {"q": "w1 w2"}),
    "pairs": ("pairs", {}),
    "pairs by verdict, split and retriever": (
        "pairs",
        {"outcome": "relevant", "split": "test", "retriever": "retriever 3"},
    ),
    "pairs by highest probability, last page": ("pairs", {"order": "highest probability", "page": "100"}),
    "pairs with two words in query or chunk": ("pairs", {"q": "w12 w345"}),
    "pairs with a part of a word that most chunks hold": ("pairs", {"q": "w1", "least": "0.5"}),
    "triplets": ("triplets", {}),
    "triplets with two words": ("triplets", {"q": "w12 w345"}),
    "rejects by reason": ("rejects", {"reason": "reason 7", "q": "more"}),
    "a query, its candidates and near queries": ("query", {"tenant": "acme", "id": "q0{number}"}),
    "a document": ("document", {"tenant": "acme", "id": "docs/0{number}.md", "chunk": "docs/0{number}.md#0{number}1"}),
}


@dataclass(frozen=True)
class Search:
    """A way to search the chunks: seconds to make ready, milliseconds of a search of two words (median)."""

    way: str
    ready: float
    search: float


@dataclass(frozen=True)
class Figures:
    """What was measured."""

    queries: int
    pairs: int
    rankings: int
    chunks: int
    start: float
    megabytes: float
    times: list[Times]
    cpu: list[float]
    searches: list[Search]


def make(out: Path, queries: int) -> Run:
    """A run with what browsing reads of a benchmark."""
    run = Run(str(out))
    chunks, lists = 10 * queries, queries * DEEP
    given = {"per": PER_QUERY, "deep": DEEP, "chunks": chunks, "lists": lists}
    rows = {
        "documents": queries,
        "chunks": chunks,
        "queries": queries,
        "rankings": RETRIEVERS * lists,
        "triplets": 3 * queries,
        "rejects": 10 * queries,
    }
    for table, columns in TABLES.items():
        per = {"per": 3} if table == "triplets" else {}
        sql = columns
        for name, value in (given | per).items():
            sql = sql.replace(f"{{{name}}}", str(value))
        if table == "rankings":
            sql = sql.replace(f"i // {DEEP}", f"i % {lists} // {DEEP}")
        fill(run, table, sql, rows.get(table, PER_QUERY * queries))
    run.store.write("settings.yaml", yaml.safe_dump(load_settings().model_dump(mode="json")).encode())
    run.store.write("inputs.json", b'{"docs": "docs", "queries": "queries"}')
    return run


def asked(served: Served) -> tuple[list[Times], list[float]]:
    """Every kind of page, as a browser asks for it; and the processor's milliseconds of each, on all cores."""
    connection = http.client.HTTPConnection(served.place)

    def page(path: str, given: dict[str, str], number: int) -> str:
        said = {name: value.replace("{number}", f"{100 + 7 * number:04}") for name, value in given.items()}
        connection.request("GET", f"{served.path}{path}?{urlencode(said)}" if said else served.path + path)
        reply = connection.getresponse()
        body = reply.read().decode()
        assert reply.status == 200, (path, said, reply.status)
        return body

    found, cpu = [], []
    for what, (path, given) in ASKED.items():
        page(path, given, ROUNDS)
        before = served.cpu_seconds()
        taken = [timed(lambda: page(path, given, number))[0] for number in range(ROUNDS)]  # noqa: B023 (called at once)
        cpu.append(1000 * (served.cpu_seconds() - before) / ROUNDS)
        found.append(Times.of(what, taken))
    connection.close()
    return found, cpu


def searches(run: Run) -> list[Search]:
    """The chunks' texts searched for two words, by `contains` and by an index."""
    texts = run.tables("chunks").read("chunks", ["text"])
    with scratch() as connection:
        connection.register("given", texts)
        began = time.perf_counter()
        connection.execute(f"CREATE TABLE all_texts AS SELECT {FOLD.format('text')} AS folded FROM given")
        ready = time.perf_counter() - began
        question = "SELECT count(*) FROM all_texts WHERE contains(folded, 'w12') AND contains(folded, 'w345')"
        plain = Search("DuckDB `contains`", ready, _median(lambda: str(connection.sql(question).fetchall())))
    began = time.perf_counter()
    analyzer = Analyzer()
    index = bm25s.BM25()
    index.index([analyzer.tokenize(text) for text in texts["text"].to_pylist()], show_progress=False)
    ready = time.perf_counter() - began
    ask = lambda: str(index.retrieve([["w12", "w345"]], k=25, show_progress=False))  # noqa: E731
    return [plain, Search("bm25s", ready, _median(ask))]


def _median(ask: Callable[[], str]) -> float:
    return float(np.median([timed(ask)[0] for _ in range(ROUNDS)]) * 1000)


def measure(run: Run) -> Figures:
    """Serve the run and ask."""
    tables = run.tables("queries", "pool", "rankings", "chunks")
    sizes = tables.rows("queries"), tables.rows("pool"), tables.rows("rankings"), tables.rows("chunks")
    with serving(run, "browse") as served:
        times, cpu = asked(served)
        start, megabytes = served.seconds, served.megabytes()
    return Figures(*sizes, start, megabytes, times, cpu, searches(run))


def main() -> None:
    """Make, measure, write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--work", type=Path, default=None)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="darklode-browse-"))
    try:
        there = Run(str(work / "run"))
        figures = measure(there if there.manifests() else make(work / "run", arguments.queries))
    finally:
        if not arguments.work:
            shutil.rmtree(work)
    write("browse", _markdown(figures), asdict(figures))


def _markdown(found: Figures) -> str:
    head = ["milliseconds", "requests", "median", "95th percentile", "most", "of processor time"]
    rows = [
        [one.what, one.requests, f"{one.median:.0f}", f"{one.p95:.0f}", f"{one.most:.0f}", f"{cpu:.0f}"]
        for one, cpu in zip(found.times, found.cpu, strict=True)
    ]
    ways = [[one.way, f"{one.ready:.1f}", f"{one.search:.1f}"] for one in found.searches]
    return "\n\n".join(
        [
            "# Browsing",
            f"{machine()}; load average {os.getloadavg()[0]:.1f}. {found.queries:,} queries, {found.pairs:,} pairs, "
            f"{found.rankings:,} ranked chunks, {found.chunks:,} chunks; target: {TARGET} ms a page.",
            markdown_table(head, rows),
            f"From the command to the address: {found.start:.1f} s. Memory: {found.megabytes:,.0f} MB.",
            f"Two words in {found.chunks:,} chunks:",
            markdown_table(["way", "seconds to make ready", "milliseconds"], ways),
        ]
    )


if __name__ == "__main__":
    main()
