"""A made-up search log of any size, one Parquet file per day, and the documents that it shows.

Queries are drawn by rank from a fixed set, with probability proportional to 1 / (rank + 2.7): most searches are for a
few queries, and every day brings new ones. A query has thirty documents, of which ten are shown in a noisy order. A
user examines position r with probability r^-0.65, and then clicks one of the query's two best documents with
probability 0.5, any other one with 0.05.
"""

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

FIRST = date(2026, 1, 1)
QUERIES = 4_000_000
VOCABULARY = 80_000
CANDIDATES, SHOWN = 30, 10
Ints = NDArray[np.int64]


def ranks(generator: np.random.Generator, size: int, kinds: int) -> Ints:
    """Numbers below `kinds`; smaller ones are more frequent (Zipf–Mandelbrot)."""
    ends = np.cumsum(1 / (np.arange(kinds) + 2.7))
    drawn: Ints = np.searchsorted(ends / ends[-1], generator.random(size), side="right").clip(max=kinds - 1)
    return drawn


def texts(queries: Ints) -> pa.Array:
    """Two to five words for each query, always the same ones."""
    words = pa.array([f"word{number}" for number in range(VOCABULARY)])
    columns = []
    for place in range(5):
        number = (VOCABULARY ** _scattered(queries * 5 + place) - 1).astype(np.int64)
        word = words.take(pa.array(number))
        last = 2 + queries % 4
        columns.append(pc.if_else(pa.array(place < last), word, pa.scalar(None, pa.string())))
    return pc.binary_join_element_wise(*columns, " ", null_handling="skip")


def _scattered(numbers: Ints) -> NDArray[np.float64]:
    """A pseudo-random number from 0 to 1 for each (the finalizer of SplitMix64)."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scattered: NDArray[np.float64] = (mixed >> np.uint64(11)) / 2.0**53
    return scattered


def day_of_log(number: int, searches: int, documents: int) -> pa.Table:
    """A day's impressions, in the order of the searches."""
    generator = np.random.default_rng(number)
    day = FIRST + timedelta(number)
    query = ranks(generator, searches, QUERIES)
    noise = generator.random((searches, CANDIDATES)) + np.arange(CANDIDATES) / CANDIDATES
    shown = np.argsort(noise, axis=1)[:, :SHOWN]
    document = (query[:, None] * 7919 + shown * 104729) % documents
    looked = generator.random(shown.shape) < np.arange(1, SHOWN + 1) ** -0.65
    clicked = looked & (generator.random(shown.shape) < np.where(shown < 2, 0.5, 0.05))
    second = np.sort(generator.integers(0, 86_400, searches))
    start = np.datetime64(day.isoformat(), "us")
    rows = np.repeat(np.arange(searches), SHOWN)
    return pa.table(
        {
            "search_id": pc.binary_join_element_wise(f"{number}-", pa.array(rows).cast(pa.string()), ""),
            "session_id": pc.binary_join_element_wise("s", pa.array(rows // 3).cast(pa.string()), ""),
            "timestamp": pa.array(start + second[rows].astype("timedelta64[s]"), pa.timestamp("us", tz="UTC")),
            "query": texts(query).take(pa.array(rows)),
            "doc_id": pc.binary_join_element_wise("d", pa.array(document.ravel()).cast(pa.string()), ""),
            "position": pa.array(np.tile(np.arange(1, SHOWN + 1), searches), pa.int32()),
            "clicked": pa.array(clicked.ravel()),
        }
    )


def write_day(folder: Path, number: int, searches: int, documents: int) -> None:
    """Write a day's impressions."""
    table = day_of_log(number, searches, documents)
    place = folder / f"date={FIRST + timedelta(number)}" / "impressions.parquet"
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, place, compression="zstd")


def write_documents(file: Path, documents: int) -> None:
    """Write the documents, forty words each."""
    generator = np.random.default_rng(0)
    words = pa.array([f"word{number}" for number in range(VOCABULARY)])
    columns = [words.take(pa.array(ranks(generator, documents, VOCABULARY))) for _ in range(40)]
    ids = pc.binary_join_element_wise("d", pa.array(np.arange(documents)).cast(pa.string()), "")
    title = pc.binary_join_element_wise(*columns[:4], " ")
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"doc_id": ids, "title": title, "text": pc.binary_join_element_wise(*columns, " ")}), file)
