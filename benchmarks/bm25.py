"""BM25 search.

Index time, queries per second and peak memory against bm25s (with NumPy and with numba) and rank-bm25. All systems
get the same 27,000 and 500,000 chunks of documentation (the larger set by repetition with exchanged words), the same
200 queries (rank-bm25: 4) and the same terms, and return the best chunks of each query from its text on. One thread;
processor seconds; medians of five alternating rounds. numba, which `pip install -e '.[bench]'` adds, compiles in its
first query (6 s); that is not counted. Takes 10 minutes; `--quick` measures 5,000 chunks (30 s).

    python -m benchmarks.bm25 [--quick] [--chunks N ...] [--collections FOLDER]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from statistics import median

import bm25s
from rank_bm25 import BM25Okapi

from benchmarks.collections_io import options, read_jsonl
from benchmarks.measure import in_new_process, peak_megabytes, processor_seconds
from benchmarks.report import ResultTable, publish
from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.prepare.chunk import splitter_of
from darklode.pipeline.retrieve.retrievers.bm25 import Bm25
from darklode.schemas.settings import ChunkSettings

Search = Callable[[Sequence[str], int], object]

DARKLODE, RANK_BM25 = "Darklode", "rank-bm25"
HAS_NUMBA = find_spec("numba") is not None
SYSTEMS = (DARKLODE, "bm25s", *(["bm25s, numba"] if HAS_NUMBA else []), RANK_BM25)
SIZES, QUICK = (27_000, 500_000), (5_000,)
DISTINCT = 27_000
CHANGED_WORDS = 0.05
DEPTHS = (60, 420)
ROUNDS, QUERIES = 5, 200
RANK_QUERIES = 4  # rank-bm25 takes seconds for each
BATCH = 8192


def documentation(root: Path, n: int) -> Iterator[str]:
    """`n` chunks of at most 500 characters; from the second copy on some words are exchanged within a chunk."""
    splitter, shuffler = splitter_of(ChunkSettings().size), random.Random(7)
    documents = read_jsonl(root / "opensearch-docs" / "corpus.jsonl")
    pieces = (f"{doc.get('title', '')}\n{piece}" for doc in documents for piece in splitter.split_text(doc["text"]))
    chunks = list(islice(pieces, DISTINCT))
    for number in range(n):
        words = chunks[number % len(chunks)].split(" ")
        for _ in range(int(len(words) * CHANGED_WORDS) + 1 if number >= len(chunks) else 0):
            words[shuffler.randrange(len(words))] = words[shuffler.randrange(len(words))]
        yield " ".join(words)


def batches(texts: Iterator[str]) -> Iterator[list[str]]:
    """Texts in lists of `BATCH`."""
    while batch := list(islice(texts, BATCH)):
        yield batch


def build(system: str, texts: Iterator[str]) -> tuple[Search, float, float]:
    """A system's search, and the processor seconds of tokenizing and of indexing."""
    if system == DARKLODE:
        spaces: list[TermSpace] = []
        tokenizing = processor_seconds(lambda: spaces.append(TermSpace(batches(texts))))
        indexes: list[Bm25] = []
        indexing = processor_seconds(lambda: indexes.append(Bm25(spaces[0])))
        return indexes[0].search, tokenizing, indexing
    analyzer, tokens = Analyzer(), list[list[str]]()
    tokenizing = processor_seconds(lambda: tokens.extend(analyzer.tokenize(text) for text in texts))
    searches: list[Search] = []
    make = _rank_bm25 if system == RANK_BM25 else partial(_bm25s, backend="numba" if "numba" in system else "numpy")
    indexing = processor_seconds(lambda: searches.append(make(tokens, analyzer)))
    return searches[0], tokenizing, indexing


def _bm25s(tokens: list[list[str]], analyzer: Analyzer, backend: str) -> Search:
    engine = bm25s.BM25(method="lucene", k1=1.5, b=0.75, backend=backend)
    engine.index(tokens, show_progress=False)

    def search(queries: Sequence[str], depth: int) -> object:
        terms_of = [[term for term in analyzer.tokenize(query) if term in engine.vocab_dict] for query in queries]
        return engine.retrieve([terms for terms in terms_of if terms], k=depth, show_progress=False)

    return search


def _rank_bm25(tokens: list[list[str]], analyzer: Analyzer) -> Search:
    engine = BM25Okapi(tokens, k1=1.5, b=0.75)
    rows = list(range(len(tokens)))
    return lambda queries, depth: [engine.get_top_n(analyzer.tokenize(query), rows, depth) for query in queries]


def build_alone(system: str, root: Path, n: int) -> tuple[float, float, float]:
    """Seconds of tokenizing and indexing, and peak megabytes; runs in its own process."""
    search, tokenizing, indexing = build(system, documentation(root, n))
    search(["how to configure the index"], DEPTHS[-1])
    return tokenizing, indexing, peak_megabytes()


def queries_per_second(searches: dict[str, Search], queries: list[str]) -> dict[str, list[float]]:
    """Of each system, by depth; the systems take turns."""
    rates: dict[str, list[float]] = {system: [] for system in searches}
    for search in searches.values():
        search(queries[:1], DEPTHS[0])
    for depth in DEPTHS:
        seconds: dict[str, list[float]] = {system: [] for system in searches}
        for number in range(ROUNDS):
            for system, search in searches.items():
                sample = queries[:RANK_QUERIES] if system == RANK_BM25 else queries
                if sample is queries or number == 0:
                    seconds[system].append(processor_seconds(partial(search, sample, depth)) / len(sample))
        for system, spent in seconds.items():
            rates[system].append(1 / median(spent))
    return rates


def measure(root: Path, n: int) -> list[list[object]]:
    """A row for each system."""
    queries = [row["text"] for row in read_jsonl(root / "stackfaq" / "queries.jsonl")][:QUERIES]
    alone = {system: in_new_process(build_alone, system, root, n) for system in SYSTEMS}
    rates = queries_per_second({system: build(system, documentation(root, n))[0] for system in SYSTEMS}, queries)
    return [result_row(n, system, alone[system], rates[system], rates[DARKLODE]) for system in SYSTEMS]


def result_row(
    n: int, system: str, alone: tuple[float, float, float], rates: Sequence[float], ours: Sequence[float]
) -> list[object]:
    """Figures of a system, and Darklode's rate as a multiple of the system's."""
    return [n, system, *alone, *rates, *(our / rate for our, rate in zip(ours, rates, strict=True))]


def table(rows: Sequence[Sequence[object]]) -> ResultTable:
    """Figures by size and system."""
    columns = {"chunks": ",d", "system": "", "tokenizing s": ".2f", "indexing s": ".2f", "peak MB": ".0f"}
    columns |= {f"top {depth}: queries/s": ",.1f" for depth in DEPTHS}
    columns |= {f"top {depth}: Darklode ÷ system": ",.2f" for depth in DEPTHS}
    packages = ("bm25s", "numpy", "rank-bm25", *(["numba"] if HAS_NUMBA else []))
    return ResultTable("Side by side", columns, rows, packages=packages)


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__)
    parser.add_argument("--chunks", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    sizes, root = QUICK if arguments.quick else arguments.chunks, arguments.collections
    rows = [row for n in sizes for row in measure(root, n)]
    publish("bm25", [table(rows)], quick=arguments.quick)


if __name__ == "__main__":
    main()
