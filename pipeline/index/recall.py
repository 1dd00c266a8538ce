"""Choose the search effort, measure recall against exact search, and detect when recall has fallen."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
from darklode.pipeline.index.faiss_io import is_member, numbers_in, one_thread, positions_of, selector_of
from darklode.pipeline.index.probes import lists_of, parts_of, tenants_of, vectors_of
from darklode.pipeline.index.search import IndexSearcher, TenantTexts
from darklode.pipeline.index.source import truncate_and_normalize
from darklode.pipeline.index.stored_vectors import StoredBlocks
from darklode.schemas.serving import INDEXES
from darklode.schemas.serving_tables import (
    INDEX_FILES,
    INDEX_PROBES,
    INDEX_QUERIES,
    INDEX_RECALL,
    INDEX_RESULTS,
    INDEXED_TEXTS,
)

RECALL_TABLES = (INDEXED_TEXTS.name, INDEX_FILES.name, INDEX_QUERIES.name, INDEX_PROBES.name)
RECALL_STAGE = Stage("index_recall", 4, RECALL_TABLES, (INDEX_RECALL.name, INDEX_RESULTS.name))


DEPTHS = (10, 100)
"""Depths at which recall is measured."""
DEPTH = 100
"""Depth of the lists, and of the recall that the search effort is chosen by."""
RECORDED_QUERIES, RECORDED_DEPTH = 16, 10
"""Number of queries recorded with their results, and results per query."""

HALVES = ("chosen on", "held out")
"""Values of the column `half`: even queries choose the search effort, odd ones measure it."""

EFFORT_FACT, RERANK_FACT, SPEED_FACT = "effort", "rerank", "queries per second"
"""Facts of the stage: search effort, candidates rescored per result, and speed in processor time of one thread."""

TARGET_MARGIN = 2
"""Margin in standard errors on one half of the queries, so that the target is rarely missed on the other."""

RERANK_FACTORS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of candidates rescored per result that are tried."""

MAX_RECALL_LOSS = 0.02
"""Tolerated loss of recall@100 before training again is advised: two texts of a hundred."""

MAX_REMOVED_SHARE = 0.2
"""Tolerated share of removed vectors that are still in the files: they cost a fifth of memory and search time."""

MAX_ERROR_GROWTH = 1.5
"""Tolerated ratio of the quantization error of added texts to that at training: above it, the texts differ in kind."""


@dataclass(frozen=True)
class IndexOpening:
    """A built index, and how to open it.

    Attributes:
        store: the folder.
        kind: index kind that was built.
        rerank: maximum candidates rescored per result, if vectors are stored.
        dimensions: dimensions that vectors are truncated to; None: all.
    """

    store: Store
    kind: str
    rerank: int
    dimensions: int | None

    @property
    def identity(self) -> dict[str, Any]:
        """What results depend on; the location is not part of it."""
        return {"kind": self.kind, "rerank": self.rerank, "dimensions": self.dimensions}


def open_searcher(opening: IndexOpening, tables: Tables, scratch: Path) -> IndexSearcher:
    """Open an index for searching.

    Args:
        opening: the index.
        tables: `indexed_texts` and `index_files`.
        scratch: an existing folder for files fetched from S3.
    """
    store = opening.store
    index = open_index(store)
    index_kind = INDEXES.load(opening.kind)()
    texts = tables.read(INDEXED_TEXTS.name, ["tenant", "number"])
    numbers = texts["number"].to_numpy()
    indexed_numbers = np.empty(0, np.int64) if index_kind.SUPPORTS_REMOVAL else numbers_in(index)
    current = None if is_member(indexed_numbers, numbers).all() else selector_of(numbers)
    vector_files = stored_files(tables.read(INDEX_FILES.name).to_pylist())
    local_files = [(first, _local(store, name, scratch)) for first, name in vector_files]
    stored = StoredBlocks(local_files) if local_files and opening.rerank > 1 else None
    return IndexSearcher(index_kind, index, stored, opening.rerank if stored else 1, current, _tenants(texts))


def _tenants(texts: pa.Table) -> dict[str, TenantTexts]:
    """Each tenant's texts; empty if there is one tenant only."""
    names = pc.unique(texts["tenant"]).to_pylist()
    if len(names) < 2:
        return {}
    numbers = {name: texts.filter(pc.equal(texts["tenant"], name))["number"].to_numpy() for name in sorted(names)}
    return {name: TenantTexts(np.sort(own), len(own) / texts.num_rows) for name, own in numbers.items()}


def _local(store: Store, name: str, scratch: Path) -> Path:
    """Local path of a file; files on S3 are copied to `scratch`."""
    if store.local is not None:
        return store.local / name
    path = scratch / name.replace("/", "-")
    path.write_bytes(store.read(name) or b"")
    return path


def measure_recall(tables: Tables, output: Output, opening: IndexOpening, *, target: float) -> None:
    """Choose the search effort on one half of the queries, and measure recall on both.

    Chooses the fastest pair of effort and number of candidates whose recall@100 on the first half is at least two
    standard errors above the target, for base and for adapted queries. If there is none, it chooses the highest effort.

    Args:
        tables: the tables of the earlier stages.
        output: receives `index_recall` and `index_results`.
        opening: the built index.
        target: recall@100.
    """
    with TemporaryDirectory(prefix="darklode-index-") as scratch:
        finder = open_searcher(opening, tables, Path(scratch))
        parts = _query_parts(tables, opening.dimensions)
        trial_rows, (effort, rerank) = _choose_effort(finder, _not_exact(parts, finder), target)
        _write_recall(tables, output, replace(finder, rerank=rerank), parts, trial_rows, effort)


def _choose_effort(finder: IndexSearcher, parts: list[QueryPart], target: float) -> tuple[list[Row], tuple[int, int]]:
    """Rows of `index_recall` for all settings tried, and the chosen effort and number of candidates.

    For each effort, from low to high, the number of candidates is reduced while the target is reached.
    """
    factors = [factor for factor in RERANK_FACTORS if factor < finder.rerank] + [finder.rerank]
    trial_rows: list[Row] = []
    candidates: list[tuple[float, int, int]] = []
    for effort in finder.kind.search_efforts(finder.index):
        while factors:
            trial_finder = replace(finder, rerank=factors[-1])
            rows = [row for part in parts for row in part.rows(trial_finder, effort)]
            trial_rows += rows
            if _lowest_recall(rows) < target:
                break
            cost = finder.kind.cost(finder.index, effort) + factors[-1] * DEPTH
            candidates.append((cost, effort, factors.pop()))
    if candidates:
        return trial_rows, min(candidates)[1:]
    return trial_rows, (effort, finder.rerank)


def measure_updated(tables: Tables, output: Output, opening: IndexOpening, *, effort: int) -> None:
    """Measure recall of an updated index with the effort chosen when it was built.

    Args:
        tables: the tables of the earlier stages.
        output: receives `index_recall` and `index_results`.
        opening: the built index.
        effort: search effort.
    """
    with TemporaryDirectory(prefix="darklode-index-") as scratch:
        finder = open_searcher(opening, tables, Path(scratch))
        parts = _query_parts(tables, opening.dimensions)
        _write_recall(
            tables,
            output,
            finder,
            parts,
            [row for part in _not_exact(parts, finder) for row in part.rows(finder, effort)],
            effort,
        )


def _not_exact(parts: list[QueryPart], finder: IndexSearcher) -> list[QueryPart]:
    """The queries of tenants that are not searched exactly; all queries if every tenant is.

    Exact searches would raise mean recall, and the effort would be too low for the other tenants.
    """
    rows_of_parts = [[row for row, tenant in enumerate(part.tenants) if not finder.is_exact(tenant)] for part in parts]
    return [
        replace(
            part,
            queries=part.queries[rows],
            expected=part.expected[rows],
            tenants=[part.tenants[row] for row in rows],
        )
        if rows
        else part
        for part, rows in zip(parts, rows_of_parts, strict=True)
    ]


@dataclass(frozen=True)
class QueryPart:
    """Queries of a part and their exact results.

    Attributes:
        name: `base` or `adapted`.
        queries: vectors, truncated as those of the index.
        expected: numbers of the exact results, shape (n_queries, 100); -1 if there are fewer texts.
        tenants: tenant of each query, whose texts it searches.
    """

    name: str
    queries: Floats
    expected: Ints
    tenants: Sequence[str]

    def rows(self, finder: IndexSearcher, effort: int) -> list[Row]:
        """Rows of `index_recall`, without `chosen`."""
        with one_thread():
            numbers, _ = finder.find_by_tenant(self.queries, self.tenants, DEPTH, effort)
        rows_out = []
        for half, start in zip(HALVES, (0, 1), strict=True):
            for depth in DEPTHS:
                shares = _recall_shares(numbers[start::2, :depth], self.expected[start::2, :depth])
                error = float(shares.std(ddof=1) / len(shares) ** 0.5) if len(shares) > 1 else None
                row = {"part": self.name, "effort": effort, "rerank": finder.rerank, "half": half, "depth": depth}
                mean = float(shares.mean()) if len(shares) else 1.0
                rows_out.append(row | {"recall": mean, "error": error, "queries": len(shares)})
        return rows_out


def _recall_shares(results: Ints, expected: Ints) -> NDArray[np.float64]:
    """Recall of each query."""
    n_found = [np.intersect1d(result, exact[exact >= 0]).size for result, exact in zip(results, expected, strict=True)]
    return np.asarray(np.array(n_found, np.float64) / np.maximum(1, (expected >= 0).sum(axis=1)))


def _query_parts(tables: Tables, dimensions: int | None) -> list[QueryPart]:
    texts = tables.rows(INDEXED_TEXTS.name)
    queries, lists = tables.read(INDEX_QUERIES.name), tables.read(INDEX_PROBES.name)
    parts = []
    for name in parts_of(queries):
        vectors = vectors_of(queries, name)
        exact = lists_of(lists, name, len(vectors))
        expected = np.where(exact.scores > -np.inf, exact.numbers, -1)[:, : min(DEPTH, max(1, texts))]
        own_tenants = tenants_of(queries, name)
        parts.append(QueryPart(name, truncate_and_normalize(vectors, dimensions), expected, own_tenants))
    return parts


def _lowest_recall(rows: list[Row]) -> float:
    chosen_rows = [row for row in rows if row["half"] == HALVES[0] and row["depth"] == DEPTH]
    return min(float(row["recall"]) - TARGET_MARGIN * float(row["error"] or 0) for row in chosen_rows)


def _write_recall(
    tables: Tables, output: Output, finder: IndexSearcher, parts: list[QueryPart], trial_rows: list[Row], effort: int
) -> None:
    """Write the recall of all settings tried, and the results of the recorded queries with the chosen effort."""
    output.write(INDEX_RESULTS.name, _result_rows(tables, finder, parts[0], effort))
    chosen_effort = {"effort": effort, "rerank": finder.rerank}
    rows = [row | {"chosen": chosen_effort.items() <= row.items()} for row in trial_rows]
    output.write(INDEX_RECALL.name, pa.Table.from_pylist(rows, INDEX_RECALL.schema))
    output.facts |= {
        EFFORT_FACT: effort,
        RERANK_FACT: finder.rerank,
        SPEED_FACT: _queries_per_second(finder, parts[0], effort),
    }
    output.count(FunnelStep("index_recall", "queries", sum(len(part.queries) for part in parts), "figures", len(rows)))


def _result_rows(tables: Tables, finder: IndexSearcher, part: QueryPart, effort: int) -> pa.Table:
    """Rows of `index_results`, for the first queries."""
    queries, tenants = part.queries[:RECORDED_QUERIES], part.tenants[:RECORDED_QUERIES]
    numbers, scores = finder.find_by_tenant(queries, tenants, RECORDED_DEPTH, effort)
    texts = tables.read(INDEXED_TEXTS.name, ["text_id", "number"])
    query, rank = np.nonzero(numbers >= 0)
    text_index = positions_of(numbers[query, rank], texts["number"].to_numpy())
    text_ids = texts["text_id"].take(pa.array(text_index))
    columns = {"query": pa.array(query), "rank": pa.array(rank + 1), "text_id": text_ids}
    return INDEX_RESULTS.rows(columns | {"score": pa.array(scores[query, rank])})


def _queries_per_second(finder: IndexSearcher, part: QueryPart, effort: int) -> float | None:
    queries, tenants = part.queries[1::2], part.tenants[1::2]
    if not len(queries):
        return None
    with one_thread():
        start_time = time.process_time()
        finder.find_by_tenant(queries, tenants, DEPTH, effort)
        seconds = time.process_time() - start_time
    return round(len(queries) / seconds, 1) if seconds else None


def held_out_recall(rows: pa.Table) -> dict[str, dict[int, dict[str, Any]]]:
    """Recall with the chosen effort on held-out queries: rows by part and depth."""
    held_out_rows = rows.filter(pc.and_(rows["chosen"], pc.equal(rows["half"], HALVES[1])))
    recall_by_part: dict[str, dict[int, dict[str, Any]]] = {}
    for row in held_out_rows.to_pylist():
        recall_by_part.setdefault(row["part"], {})[row["depth"]] = row
    return recall_by_part


def advice(before: dict[str, Any], now: dict[str, Any], removed_share: float, error_growth: float | None) -> list[str]:
    """Reasons to train the index again; empty if there are none.

    Recall has fallen if it is lower by more than `MAX_RECALL_LOSS` and by more than two standard errors of the
    difference. The error is that of independent samples; both measurements use the same queries, so it is an upper
    bound.

    Args:
        before: recall at training, as from `held_out_recall`.
        now: current recall.
        removed_share: share of removed vectors among those in the files.
        error_growth: quantization error of added texts divided by that at training; None: nothing was added.
    """
    sentences = []
    for part, depths in now.items():
        then, today = before[part][DEPTH], depths[DEPTH]
        noise = 2 * float(np.hypot(then["error"] or 0, today["error"] or 0))
        if then["recall"] - today["recall"] > max(MAX_RECALL_LOSS, noise):
            sentences.append(
                f"recall@{DEPTH} of {part} queries fell from {then['recall']:.3f} to {today['recall']:.3f}: train again"
            )
    if removed_share > MAX_REMOVED_SHARE:
        sentences.append(
            f"{removed_share:.0%} of the vectors in the files are removed texts: build again to free their memory"
        )
    if error_growth is not None and error_growth > MAX_ERROR_GROWTH:
        sentences.append(f"quantization error of added texts is {error_growth:.1f} times that at training: train again")
    return sentences
