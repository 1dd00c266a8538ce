"""BM25 against raw bm25s and rank-bm25, side by side: index time, queries per second, peak memory.

Usage: python -m benchmarks.bm25 [--collections DIR]
Needs opensearch-docs and stackfaq in DIR, ../shared/collections by default. Writes benchmarks/results/bm25.*.

Every system gets the same chunks, queries and terms, and answers with the best chunks of each query, from its text on.
Every system works on one thread, and its seconds are those of the processor, which depend less on what else the machine
does; the index on disk is timed by the clock. Rates are medians of repeats that take turns. Each system is indexed in a
process of its own as well, for its peak memory. numba compiles in the first query of the smaller size, once a process.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import bm25s
from rank_bm25 import BM25Okapi

from benchmarks.collections_io import COLLECTIONS, read_jsonl
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.prepare.chunk import splitter_of
from darklode.pipeline.retrieve.retrievers.bm25 import Bm25, build_index
from darklode.pipeline.retrieve.retrievers.bm25_index import Bm25Indexes
from darklode.schemas.pooling import Bm25Settings
from darklode.schemas.settings import ChunkSettings

Search = Callable[[Sequence[str], int], object]

SYSTEMS = ("ours", "bm25s", "bm25s, numba", "rank-bm25")
FEW, MANY = 27_000, 500_000
CHANGED_WORDS = 0.05
DEPTHS = (60, 420)
REPEATS = 5
QUERIES = 200
RANK_QUERIES = 4
"""So few, because rank-bm25 takes seconds for each; its rate is the few queries' own."""


def documentation(root: Path) -> list[str]:
    """Chunks of at most 500 characters from the documentation, each under its document's title."""
    splitter = splitter_of(ChunkSettings().size)
    documents = read_jsonl(root / "opensearch-docs" / "corpus.jsonl")
    pieces = (f"{doc.get('title', '')}\n{piece}" for doc in documents for piece in splitter.split_text(doc["text"]))
    return list(islice(pieces, FEW))


def repeated(chunks: list[str], n: int) -> Iterator[str]:
    """The chunks again and again, in each copy but the first with some words exchanged for others of the same chunk."""
    shuffler = random.Random(7)
    for number in range(n):
        words = chunks[number % len(chunks)].split(" ")
        for _ in range(int(len(words) * CHANGED_WORDS) + 1 if number >= len(chunks) else 0):
            words[shuffler.randrange(len(words))] = words[shuffler.randrange(len(words))]
        yield " ".join(words)


def batches(texts: Iterator[str], size: int = 8192) -> Iterator[list[str]]:
    """Texts in lists of `size`."""
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    yield batch


def build(system: str, texts: Iterator[str]) -> tuple[Search, dict[str, float]]:
    """A system's search from query texts on, and the seconds that reading its terms and indexing them took."""
    began = time.process_time()
    if system == "ours":
        terms = TermSpace(batches(texts))
        read = time.process_time() - began
        index = Bm25(terms)
        return index.search, {"terms": read, "index": time.process_time() - began - read}
    analyzer = Analyzer()
    tokens = [analyzer.tokenize(text) for text in texts]
    read = time.process_time() - began
    search = _rank(tokens, analyzer) if system == "rank-bm25" else _raw(tokens, analyzer, system.endswith("numba"))
    return search, {"terms": read, "index": time.process_time() - began - read}


def _raw(tokens: list[list[str]], analyzer: Analyzer, numba: bool) -> Search:
    engine = bm25s.BM25(method="lucene", k1=1.5, b=0.75, backend="numba" if numba else "numpy")
    engine.index(tokens, show_progress=False)

    def search(queries: Sequence[str], depth: int) -> object:
        known = [[term for term in analyzer.tokenize(query) if term in engine.vocab_dict] for query in queries]
        return engine.retrieve([terms for terms in known if terms], k=depth, show_progress=False)

    return search


def _rank(tokens: list[list[str]], analyzer: Analyzer) -> Search:
    engine = BM25Okapi(tokens, k1=1.5, b=0.75)
    rows = list(range(len(tokens)))
    return lambda queries, depth: [engine.get_top_n(analyzer.tokenize(query), rows, depth) for query in queries]


def seconds(act: Callable[[], object]) -> float:
    """Processor time of one call."""
    began = time.process_time()
    act()
    return time.process_time() - began


def wall(act: Callable[[], object]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def rates(searches: dict[str, Search], queries: list[str]) -> dict[str, dict[str, float]]:
    """Queries per second by system and depth, all systems taking turns."""
    found: dict[str, dict[str, float]] = {system: {} for system in searches}
    for system, search in searches.items():
        found[system]["first query s"] = seconds(partial(search, queries[:1], DEPTHS[0]))
    for depth in DEPTHS:
        taken: dict[str, list[float]] = {system: [] for system in searches}
        for repeat in range(REPEATS):
            for system, search in searches.items():
                few = RANK_QUERIES if system == "rank-bm25" else len(queries)
                if few == len(queries) or repeat == 0:
                    taken[system].append(seconds(partial(search, queries[:few], depth)) / few)
        for system, spent in taken.items():
            found[system][f"top {depth}"] = 1 / median(spent)
    return found


def measure_one(system: str, root: Path, n: int) -> dict[str, float]:
    """In this process: build one system and search a little, for its seconds and peak memory."""
    chunks = documentation(root)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    search, spent = build(system, repeated(chunks, n))
    search(["how to configure the index"], DEPTHS[-1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return spent | {"peak MB": peak / 1024, "of it before the index": before / 1024}


def alone(system: str, root: Path, n: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bm25", "--collections", str(root), "--system", system, "--chunks"]
    said = subprocess.run([*command, str(n)], check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(said.splitlines()[-1])
    return figures


def kept(terms: TermSpace) -> dict[str, float]:
    """Seconds to build, keep and open an index, and to open it again."""
    with tempfile.TemporaryDirectory() as folder:
        indexes = Bm25Indexes(folder, "benchmark", Path(folder))

        def get() -> object:
            return indexes.get(Bm25Settings(), lambda: build_index(terms, Bm25Settings()))

        return {"build and keep s": wall(get), "open again s": median(wall(get) for _ in range(5))}


def measure(root: Path, n: int) -> dict[str, Any]:
    """All systems on `n` chunks of the documentation."""
    chunks = documentation(root)
    queries = [row["text"] for row in read_jsonl(root / "stackfaq" / "queries.jsonl")][:QUERIES]
    indexed = {system: alone(system, root, n) for system in SYSTEMS}
    searches = {system: build(system, repeated(chunks, n))[0] for system in SYSTEMS}
    found = rates(searches, queries)
    searches.clear()
    disk = kept(TermSpace(batches(repeated(chunks, n))))
    return {"chunks": n, "kept": disk, "systems": {system: indexed[system] | found[system] for system in SYSTEMS}}


def _cells(own: dict[str, float]) -> list[str]:
    spent = [f"{own['terms']:.2f}", f"{own['index']:.2f}", f"{own['peak MB']:.0f}", f"{own['first query s']:.2f}"]
    return spent + [f"{own[f'top {depth}']:,.1f}" for depth in DEPTHS]


def _markdown(results: list[dict[str, Any]]) -> str:
    head = ["system", "terms s", "index s", "peak MB", "first query s", *[f"top {d}: queries/s" for d in DEPTHS]]
    parts = ["# BM25", machine(), __doc__.split("\n\n", 2)[2].strip()]
    for result in results:
        systems, disk = result["systems"], result["kept"]
        rows = [[name, *_cells(own)] for name, own in systems.items()]
        parts += [f"## {result['chunks']:,} chunks", markdown_table(head, rows)]
        kept_s, opened_s = disk["build and keep s"], disk["open again s"]
        parts.append(f"Ours built from its terms and kept on disk in {kept_s:.2f} s, opened again in {opened_s:.2f} s.")
        for depth in DEPTHS:
            ours = systems["ours"][f"top {depth}"]
            ratios = [f"{ours / systems[name][f'top {depth}']:,.2f} × {name}" for name in SYSTEMS[1:]]
            parts.append(f"Ours, top {depth}: {', '.join(ratios)}.")
    return "\n\n".join(
        [*parts, f"rank-bm25: the rate of {RANK_QUERIES} queries; the others: of {QUERIES}, {REPEATS} times."]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--system", choices=SYSTEMS, help="measure one alone, and print its figures")
    parser.add_argument("--chunks", type=int, default=FEW)
    arguments = parser.parse_args()
    if arguments.system:
        print(json.dumps(measure_one(arguments.system, arguments.collections, arguments.chunks)))
        return
    results = [measure(arguments.collections, n) for n in (FEW, MANY)]
    write("bm25", _markdown(results), results)


if __name__ == "__main__":
    main()
