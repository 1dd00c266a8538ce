"""How hard to search, what share of an exact search's texts is then found, and whether that has fallen since."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Store, Tables
from darklode.pipeline.base.types import Floats, Ints, Row
from darklode.pipeline.index.build import open_index, stored_files
from darklode.pipeline.index.faiss_io import is_member, numbers_in, one_thread
from darklode.pipeline.index.probes import lists_of, parts_of, vectors_of
from darklode.pipeline.index.search import IndexSearcher
from darklode.pipeline.index.source import truncate_and_normalize
from darklode.pipeline.index.stored_vectors import StoredBlocks
from darklode.schemas.serving import INDEXES
from darklode.schemas.serving_tables import (
    INDEX_FILES,
    INDEX_FOUND,
    INDEX_PROBES,
    INDEX_QUERIES,
    INDEX_RECALL,
    INDEXED_TEXTS,
)

READS = (INDEXED_TEXTS.name, INDEX_FILES.name, INDEX_QUERIES.name, INDEX_PROBES.name)
RECALL = Stage("index_recall", 2, READS, (INDEX_RECALL.name, INDEX_FOUND.name))


DEPTHS = (10, 100)
DEPTH = 100
ASKED_AGAIN, FIRST = 16, 10
"""Queries that are recorded with what they find, and how many texts of each."""

HALVES = ("chosen on", "held out")

EFFORT, RERANK, SPEED = "effort", "rerank", "queries per second"
"""Facts of the stage: how hard is searched, how many times as many candidates are scored again, and how fast that is,
by processor time of one thread."""

SURE = 2
"""Standard errors by which the target is reached on one half, so that it seldom is missed on the other."""

RERANKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Times as many candidates that are tried."""

FALL = 0.02
"""By so much recall@100 may fall before codes are to be fitted anew: two texts of a list of a hundred."""

DEAD = 0.2
"""Share of the vectors in the files that went: from here on they cost a fifth of memory and of each search."""

GROWTH = 1.5
"""By how much the error of codes may be larger for what came than at training: then it is of another kind of text."""


@dataclass(frozen=True)
class IndexOpening:
    """A filled index, and how it is opened.

    Attributes:
        store: of the folder.
        kind: that was built.
        rerank: times as many candidates are scored again at most, where vectors are stored.
        dimensions: the first numbers of vectors that it has; None: all.
    """

    store: Store
    kind: str
    rerank: int
    dimensions: int | None

    @property
    def identity(self) -> dict[str, Any]:
        """Where it lies changes nothing."""
        return {"kind": self.kind, "rerank": self.rerank, "dimensions": self.dimensions}


def open_searcher(opening: IndexOpening, tables: Tables, scratch: Path) -> IndexSearcher:
    """An index ready to be searched.

    Args:
        opening: the index.
        tables: `indexed_texts` and `index_files`.
        scratch: an existing folder, for what is fetched from S3.
    """
    store, index, made = opening.store, open_index(opening.store), INDEXES.load(opening.kind)()
    numbers = tables.read(INDEXED_TEXTS.name, ["number"])["number"].to_numpy()
    indexed_numbers = np.empty(0, np.int64) if made.FORGETS else numbers_in(index)
    gone = indexed_numbers[~is_member(indexed_numbers, numbers)]
    vector_files = stored_files(tables.read(INDEX_FILES.name).to_pylist())
    places = [(first, _local(store, name, scratch)) for first, name in vector_files]
    stored = StoredBlocks(places) if places and opening.rerank > 1 else None
    return IndexSearcher(made, index, stored, opening.rerank if stored else 1, gone)


def _local(store: Store, name: str, scratch: Path) -> Path:
    if store.local is not None:
        return store.local / name
    path = scratch / name.replace("/", "-")
    path.write_bytes(store.read(name) or b"")
    return path


def measure_recall(tables: Tables, output: Output, opening: IndexOpening, *, target: float) -> None:
    """Choose how hard to search on one half of the queries, and measure that on both.

    Of the pairs of an effort and a number of candidates whose recall@100 on that half is the target or more for base
    and adapted queries each, by two standard errors, the quickest is chosen; where none is, the greatest.

    Args:
        tables: what was written before.
        output: takes `index_recall` and `index_found`.
        opening: the filled index.
        target: recall@100 to reach.
    """
    with TemporaryDirectory(prefix="darklode-index-") as scratch:
        finder = open_searcher(opening, tables, Path(scratch))
        parts = _query_parts(tables, opening.dimensions)
        tried, (effort, rerank) = _choose_effort(finder, parts, target)
        _write_recall(tables, output, replace(finder, rerank=rerank), parts, tried, effort)


def _choose_effort(finder: IndexSearcher, parts: list[QueryPart], target: float) -> tuple[list[Row], tuple[int, int]]:
    """Rows of `index_recall` of all that was tried, and the effort and the candidates that are to be used.

    With each effort, the least first, candidates become fewer as long as the target is reached: more never find less.
    """
    widths = [rerank_depth for rerank_depth in RERANKS if rerank_depth < finder.rerank] + [finder.rerank]
    tried: list[Row] = []
    candidates: list[tuple[float, int, int]] = []
    for effort in finder.kind.search_efforts(finder.index):
        while widths:
            wide = replace(finder, rerank=widths[-1])
            rows = [row for part in parts for row in part.rows(wide, effort)]
            tried += rows
            if _lowest_recall(rows) < target:
                break
            cost = finder.kind.cost(finder.index, effort) + widths[-1] * DEPTH
            candidates.append((cost, effort, widths.pop()))
    if candidates:
        return tried, min(candidates)[1:]
    return tried, (effort, finder.rerank)


def measure_updated(tables: Tables, output: Output, opening: IndexOpening, *, effort: int) -> None:
    """Measure an updated index with the effort that was chosen before.

    Args:
        tables: what was written before.
        output: takes `index_recall` and `index_found`.
        opening: the filled index.
        effort: how hard is searched.
    """
    with TemporaryDirectory(prefix="darklode-index-") as scratch:
        finder = open_searcher(opening, tables, Path(scratch))
        parts = _query_parts(tables, opening.dimensions)
        _write_recall(
            tables, output, finder, parts, [row for part in parts for row in part.rows(finder, effort)], effort
        )


@dataclass(frozen=True)
class QueryPart:
    """Queries of a part, and what is right.

    Attributes:
        name: base or adapted.
        queries: vectors, cut as the index's are.
        right: numbers of the exact lists, shape (n_queries, 100); -1 where there are fewer texts.
    """

    name: str
    queries: Floats
    right: Ints

    def rows(self, finder: IndexSearcher, effort: int) -> list[Row]:
        """Rows of `index_recall`, without `chosen`."""
        with one_thread():
            numbers, _ = finder.find(self.queries, DEPTH, effort)
        rows_out = []
        for half, start in zip(HALVES, (0, 1), strict=True):
            for depth in DEPTHS:
                shares = _recall_shares(numbers[start::2, :depth], self.right[start::2, :depth])
                error = float(shares.std(ddof=1) / len(shares) ** 0.5) if len(shares) > 1 else None
                row = {"part": self.name, "effort": effort, "rerank": finder.rerank, "half": half, "depth": depth}
                mean = float(shares.mean()) if len(shares) else 1.0
                rows_out.append(row | {"recall": mean, "error": error, "queries": len(shares)})
        return rows_out


def _recall_shares(results: Ints, right: Ints) -> NDArray[np.float64]:
    """What share of the right ones was found, by query."""
    both = [np.intersect1d(result, true[true >= 0]).size for result, true in zip(results, right, strict=True)]
    return np.asarray(np.array(both, np.float64) / np.maximum(1, (right >= 0).sum(axis=1)))


def _query_parts(tables: Tables, dimensions: int | None) -> list[QueryPart]:
    texts = tables.rows(INDEXED_TEXTS.name)
    queries, lists = tables.read(INDEX_QUERIES.name), tables.read(INDEX_PROBES.name)
    parts = []
    for name in parts_of(queries):
        vectors = vectors_of(queries, name)
        exact = lists_of(lists, name, len(vectors))
        right = np.where(exact.scores > -np.inf, exact.numbers, -1)[:, : min(DEPTH, max(1, texts))]
        parts.append(QueryPart(name, truncate_and_normalize(vectors, dimensions), right))
    return parts


def _lowest_recall(rows: list[Row]) -> float:
    chosen_rows = [row for row in rows if row["half"] == HALVES[0] and row["depth"] == DEPTH]
    return min(float(row["recall"]) - SURE * float(row["error"] or 0) for row in chosen_rows)


def _write_recall(
    tables: Tables, output: Output, finder: IndexSearcher, parts: list[QueryPart], tried: list[Row], effort: int
) -> None:
    """Write what was tried, and what the finder finds with the effort in use."""
    output.write(INDEX_FOUND.name, _result_rows(tables, finder, parts[0].queries[:ASKED_AGAIN], effort))
    chosen_effort = {"effort": effort, "rerank": finder.rerank}
    rows = [row | {"chosen": chosen_effort.items() <= row.items()} for row in tried]
    output.write(INDEX_RECALL.name, pa.Table.from_pylist(rows, INDEX_RECALL.schema))
    output.facts |= {
        EFFORT: effort,
        RERANK: finder.rerank,
        SPEED: _queries_per_second(finder, parts[0].queries[1::2], effort),
    }
    output.count(FunnelStep("index_recall", "queries", sum(len(part.queries) for part in parts), "figures", len(rows)))


def _result_rows(tables: Tables, finder: IndexSearcher, queries: Floats, effort: int) -> pa.Table:
    """Rows of `index_found`."""
    numbers, scores = finder.find(queries, FIRST, effort)
    texts = tables.read(INDEXED_TEXTS.name, ["text_id", "number"])
    query, rank = np.nonzero(numbers >= 0)
    text_index = pc.index_in(pa.array(numbers[query, rank]), value_set=texts["number"].combine_chunks())
    columns = {"query": pa.array(query), "rank": pa.array(rank + 1), "text_id": texts["text_id"].take(text_index)}
    return INDEX_FOUND.rows(columns | {"score": pa.array(scores[query, rank])})


def _queries_per_second(finder: IndexSearcher, queries: Floats, effort: int) -> float | None:
    if not len(queries):
        return None
    with one_thread():
        began = time.process_time()
        finder.find(queries, DEPTH, effort)
        took = time.process_time() - began
    return round(len(queries) / took, 1) if took else None


def held_out_recall(rows: pa.Table) -> dict[str, dict[int, dict[str, Any]]]:
    """Of the effort in use, on queries that had no say: by part and depth."""
    held_out_rows = rows.filter(pc.and_(rows["chosen"], pc.equal(rows["half"], HALVES[1])))
    recall_by_part: dict[str, dict[int, dict[str, Any]]] = {}
    for row in held_out_rows.to_pylist():
        recall_by_part.setdefault(row["part"], {})[row["depth"]] = row
    return recall_by_part


def advice(before: dict[str, Any], now: dict[str, Any], dead: float, growth: float | None) -> list[str]:
    """Why codes should be fitted anew; nothing where they need not.

    Recall counts as fallen where it is lower by more than `FALL` and by more than two standard errors of the
    difference, as if the two measurements shared no query: they share all, so that is on the safe side.

    Args:
        before: recall by part and depth when the codes were fitted, as `held_out_recall` has it.
        now: the same of today.
        dead: share of the vectors in the files that went.
        growth: the error of semantic ids of what came, by that at training; None: nothing came.
    """
    sentences = []
    for part, depths in now.items():
        then, today = before[part][DEPTH], depths[DEPTH]
        noise = 2 * float(np.hypot(then["error"] or 0, today["error"] or 0))
        if then["recall"] - today["recall"] > max(FALL, noise):
            sentences.append(
                f"recall@{DEPTH} of {part} queries fell from {then['recall']:.3f} to {today['recall']:.3f}: fit anew"
            )
    if dead > DEAD:
        sentences.append(f"{dead:.0%} of the vectors in its files went: build anew to be rid of them")
    if growth is not None and growth > GROWTH:
        sentences.append(f"codes miss what came by {growth:.1f} times as much as what they were fitted to: fit anew")
    return sentences
