"""Made-up logs of any size: queries of two to seven terms, whose vocabulary grows as a real log's does.

A query is an intent, which is a pair of terms, and up to five terms more. Intents and terms are drawn by rank with
probability proportional to 1 / (rank + 2.7) (Zipf and Mandelbrot), from `HEAPS[0]` × occurrences ^ `HEAPS[1]` terms
(Heaps) and half as many intents. Importance is inverse query frequency over that of the query's rarest term.
"""

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output
from darklode.schemas.tables import TABLES

HEAPS = (20.0, 0.6)
LENGTHS = np.array([2, 3, 4, 5, 6, 7])
SHARES = np.array([0.22, 0.26, 0.22, 0.15, 0.1, 0.05])
DAYS = 30
FIRST = date(2026, 1, 1)


def ranks(generator: np.random.Generator, size: int, kinds: int) -> NDArray[np.int64]:
    """Numbers below `kinds`, the smaller the oftener: Zipf and Mandelbrot."""
    ends = np.cumsum(1 / (np.arange(kinds) + 2.7))
    return np.searchsorted(ends / ends[-1], generator.random(size), side="right").clip(max=kinds - 1)


def log(queries: int, seed: int = 13) -> tuple[pa.Table, pa.Table]:
    """Rows of `log_queries` and of `query_terms`."""
    generator = np.random.default_rng(seed)
    lengths = generator.choice(LENGTHS, queries, p=SHARES)
    kinds = int(HEAPS[0] * int(lengths.sum()) ** HEAPS[1])
    intents = np.sort(np.stack([ranks(generator, kinds // 2, kinds), ranks(generator, kinds // 2, kinds)]), axis=0)
    intent = intents[:, ranks(generator, queries, kinds // 2)]
    extra = lengths - 2
    query = np.concatenate([np.arange(queries), np.arange(queries), np.repeat(np.arange(queries), extra)])
    term = np.concatenate([intent[0], intent[1], ranks(generator, int(extra.sum()), kinds)])
    codes = np.unique(query * kinds + term)
    return _queries(queries, generator), _terms(codes // kinds, codes % kinds)


def _queries(queries: int, generator: np.random.Generator) -> pa.Table:
    days = np.sort(generator.integers(0, DAYS, queries))
    dates = pa.array([FIRST + timedelta(days=day) for day in range(DAYS)], pa.date32())
    ids = _ids(np.arange(queries))
    columns = {
        "tenant": pa.repeat("default", queries),
        "query_id": ids,
        "text": ids,
        "normal_form": ids,
        "date": dates.take(pa.array(days)),
    }
    return TABLES["log_queries"].rows(columns)


def _terms(query: NDArray[np.int64], term: NDArray[np.int64]) -> pa.Table:
    frequency = np.bincount(term)
    rarity = np.log((query[-1] + 2) / (frequency[term] + 0.5))
    starts = np.flatnonzero(np.r_[True, query[1:] != query[:-1]])
    best = np.maximum.reduceat(rarity, starts)
    importance = rarity / np.repeat(best, np.diff(np.r_[starts, len(query)]))
    names = pa.array([f"term{number}" for number in range(len(frequency))])
    columns = {"tenant": pa.repeat("default", len(query)), "query_id": _ids(query), "term": names.take(pa.array(term))}
    return TABLES["query_terms"].rows(columns | {"importance": importance.astype(np.float32)})


def _ids(numbers: NDArray[np.int64]) -> pa.Array:
    """Sixteen digits, scattered as hashes are."""
    scattered = (numbers * 2654435761) % 2**32
    return pc.utf8_lpad(pa.array(scattered).cast(pa.string()), 16, "0")


def parts(folder: Path, name: str, output: Output) -> None:
    """Write a saved table as a stage does: the queries in a part for each date."""
    file = pq.ParquetFile(folder / f"{name}.parquet")
    for batch in file.iter_batches(1 << 20):
        rows = pa.Table.from_batches([batch], schema=TABLES[name].schema)
        days = pc.unique(rows["date"]) if name == "log_queries" else [None]
        for day in days:
            output.write(name, rows if day is None else rows.filter(pc.equal(rows["date"], day)))


def save(queries: int, folder: Path) -> None:
    """Write both tables' Parquet files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(("log_queries", "query_terms"), log(queries), strict=True):
        pq.write_table(rows, folder / f"{name}.parquet", compression="zstd")
