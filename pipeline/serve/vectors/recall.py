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
from darklode.pipeline.serve.vectors.filling import opened, stored_files
from darklode.pipeline.serve.vectors.finding import Finder
from darklode.pipeline.serve.vectors.given import scaled
from darklode.pipeline.serve.vectors.library import Floats, Ints, among, numbers_in, one_thread
from darklode.pipeline.serve.vectors.probes import lists_of, parts_of, vectors_of
from darklode.pipeline.serve.vectors.stored import Stored
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

Row = dict[str, Any]

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
class Opening:
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


def open_finder(opening: Opening, tables: Tables, scratch: Path) -> Finder:
    """An index ready to be searched.

    Args:
        opening: the index.
        tables: `indexed_texts` and `index_files`.
        scratch: an existing folder, for what is fetched from S3.
    """
    store, index, made = opening.store, opened(opening.store), INDEXES.load(opening.kind)()
    numbers = tables.read(INDEXED_TEXTS.name, ["number"])["number"].to_numpy()
    there = np.empty(0, np.int64) if made.FORGETS else numbers_in(index)
    gone = there[~among(there, numbers)]
    found = stored_files(tables.read(INDEX_FILES.name).to_pylist())
    places = [(first, _local(store, name, scratch)) for first, name in found]
    stored = Stored(places) if places and opening.rerank > 1 else None
    return Finder(made, index, stored, opening.rerank if stored else 1, gone)


def _local(store: Store, name: str, scratch: Path) -> Path:
    if store.local is not None:
        return store.local / name
    path = scratch / name.replace("/", "-")
    path.write_bytes(store.read(name) or b"")
    return path


def recall(tables: Tables, output: Output, opening: Opening, *, target: float) -> None:
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
        finder = open_finder(opening, tables, Path(scratch))
        asked = _asked(tables, opening.dimensions)
        tried, (effort, rerank) = _chosen(finder, asked, target)
        _told(tables, output, replace(finder, rerank=rerank), asked, tried, effort)


def _chosen(finder: Finder, asked: list[Part], target: float) -> tuple[list[Row], tuple[int, int]]:
    """Rows of `index_recall` of all that was tried, and the effort and the candidates that are to be used.

    With each effort, the least first, candidates become fewer as long as the target is reached: more never find less.
    """
    widths = [most for most in RERANKS if most < finder.rerank] + [finder.rerank]
    tried: list[Row] = []
    reached: list[tuple[float, int, int]] = []
    for effort in finder.kind.efforts(finder.index):
        while widths:
            wide = replace(finder, rerank=widths[-1])
            rows = [row for one in asked for row in one.rows(wide, effort)]
            tried += rows
            if _reached(rows) < target:
                break
            cost = finder.kind.cost(finder.index, effort) + widths[-1] * DEPTH
            reached.append((cost, effort, widths.pop()))
    if reached:
        return tried, min(reached)[1:]
    return tried, (effort, finder.rerank)


def measured_again(tables: Tables, output: Output, opening: Opening, *, effort: int) -> None:
    """Measure an updated index with the effort that was chosen before.

    Args:
        tables: what was written before.
        output: takes `index_recall` and `index_found`.
        opening: the filled index.
        effort: how hard is searched.
    """
    with TemporaryDirectory(prefix="darklode-index-") as scratch:
        finder = open_finder(opening, tables, Path(scratch))
        asked = _asked(tables, opening.dimensions)
        _told(tables, output, finder, asked, [row for one in asked for row in one.rows(finder, effort)], effort)


@dataclass(frozen=True)
class Part:
    """Queries of a part, and what is right.

    Attributes:
        name: base or adapted.
        queries: vectors, cut as the index's are.
        right: numbers of the exact lists, shape (n_queries, 100); -1 where there are fewer texts.
    """

    name: str
    queries: Floats
    right: Ints

    def rows(self, finder: Finder, effort: int) -> list[Row]:
        """Rows of `index_recall`, without `chosen`."""
        with one_thread():
            numbers, _ = finder.find(self.queries, DEPTH, effort)
        found = []
        for half, start in zip(HALVES, (0, 1), strict=True):
            for depth in DEPTHS:
                shares = _shares(numbers[start::2, :depth], self.right[start::2, :depth])
                error = float(shares.std(ddof=1) / len(shares) ** 0.5) if len(shares) > 1 else None
                row = {"part": self.name, "effort": effort, "rerank": finder.rerank, "half": half, "depth": depth}
                mean = float(shares.mean()) if len(shares) else 1.0
                found.append(row | {"recall": mean, "error": error, "queries": len(shares)})
        return found


def _shares(found: Ints, right: Ints) -> NDArray[np.float64]:
    """What share of the right ones was found, by query."""
    both = [np.intersect1d(mine, true[true >= 0]).size for mine, true in zip(found, right, strict=True)]
    return np.asarray(np.array(both, np.float64) / np.maximum(1, (right >= 0).sum(axis=1)))


def _asked(tables: Tables, dimensions: int | None) -> list[Part]:
    texts = tables.rows(INDEXED_TEXTS.name)
    queries, lists = tables.read(INDEX_QUERIES.name), tables.read(INDEX_PROBES.name)
    found = []
    for name in parts_of(queries):
        vectors = vectors_of(queries, name)
        exact = lists_of(lists, name, len(vectors))
        right = np.where(exact.scores > -np.inf, exact.numbers, -1)[:, : min(DEPTH, max(1, texts))]
        found.append(Part(name, scaled(vectors, dimensions), right))
    return found


def _reached(rows: list[Row]) -> float:
    mine = [row for row in rows if row["half"] == HALVES[0] and row["depth"] == DEPTH]
    return min(float(row["recall"]) - SURE * float(row["error"] or 0) for row in mine)


def _told(tables: Tables, output: Output, finder: Finder, asked: list[Part], tried: list[Row], effort: int) -> None:
    """Write what was tried, and what the finder finds with the effort in use."""
    output.write(INDEX_FOUND.name, _found(tables, finder, asked[0].queries[:ASKED_AGAIN], effort))
    mine = {"effort": effort, "rerank": finder.rerank}
    rows = [row | {"chosen": mine.items() <= row.items()} for row in tried]
    output.write(INDEX_RECALL.name, pa.Table.from_pylist(rows, INDEX_RECALL.schema))
    output.facts |= {EFFORT: effort, RERANK: finder.rerank, SPEED: _speed(finder, asked[0].queries[1::2], effort)}
    output.count(FunnelStep("index_recall", "queries", sum(len(one.queries) for one in asked), "figures", len(rows)))


def _found(tables: Tables, finder: Finder, queries: Floats, effort: int) -> pa.Table:
    """Rows of `index_found`."""
    numbers, scores = finder.find(queries, FIRST, effort)
    texts = tables.read(INDEXED_TEXTS.name, ["text_id", "number"])
    query, place = np.nonzero(numbers >= 0)
    named = pc.index_in(pa.array(numbers[query, place]), value_set=texts["number"].combine_chunks())
    columns = {"query": pa.array(query), "rank": pa.array(place + 1), "text_id": texts["text_id"].take(named)}
    return INDEX_FOUND.rows(columns | {"score": pa.array(scores[query, place])})


def _speed(finder: Finder, queries: Floats, effort: int) -> float | None:
    if not len(queries):
        return None
    with one_thread():
        began = time.process_time()
        finder.find(queries, DEPTH, effort)
        took = time.process_time() - began
    return round(len(queries) / took, 1) if took else None


def held_out(rows: pa.Table) -> dict[str, dict[int, dict[str, Any]]]:
    """Of the effort in use, on queries that had no say: by part and depth."""
    mine = rows.filter(pc.and_(rows["chosen"], pc.equal(rows["half"], HALVES[1])))
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for row in mine.to_pylist():
        found.setdefault(row["part"], {})[row["depth"]] = row
    return found


def advice(before: dict[str, Any], now: dict[str, Any], dead: float, growth: float | None) -> list[str]:
    """Why codes should be fitted anew; nothing where they need not.

    Recall counts as fallen where it is lower by more than `FALL` and by more than two standard errors of the
    difference, as if the two measurements shared no query: they share all, so that is on the safe side.

    Args:
        before: recall by part and depth when the codes were fitted, as `held_out` has it.
        now: the same of today.
        dead: share of the vectors in the files that went.
        growth: the error of semantic ids of what came, by that at training; None: nothing came.
    """
    found = []
    for part, depths in now.items():
        then, today = before[part][DEPTH], depths[DEPTH]
        noise = 2 * float(np.hypot(then["error"] or 0, today["error"] or 0))
        if then["recall"] - today["recall"] > max(FALL, noise):
            found.append(
                f"recall@{DEPTH} of {part} queries fell from {then['recall']:.3f} to {today['recall']:.3f}: fit anew"
            )
    if dead > DEAD:
        found.append(f"{dead:.0%} of the vectors in its files went: build anew to be rid of them")
    if growth is not None and growth > GROWTH:
        found.append(f"codes miss what came by {growth:.1f} times as much as what they were fitted to: fit anew")
    return found
