"""The stage `search`: each retriever searches each query once, deep enough for pool and audit; measures the effort."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Manifest, Output, Run, Stage, Tables, key_of
from darklode.pipeline.base.chunk_texts import Digest, TenantChunks
from darklode.pipeline.base.sharding import Pieces, Spread, here
from darklode.pipeline.retrieve.encoders.deferred import release
from darklode.pipeline.retrieve.retrievers.bm25_index import Bm25Indexes, index_root, tidy_indexes
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.retrieve.retrievers.member_lists import MemberLists, shared_depths
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.schemas.pooling import PoolSettings
from darklode.schemas.tables import QUERIES, RANKINGS

SEARCH = Stage("search", 2, ("queries", "chunks"), ("rankings",))

QUERY_COLUMNS = ["query_id", "text"]
QUERY_BLOCK = 1024
"""Queries searched together: bounds the memory of hits."""


@dataclass(frozen=True)
class SearchShard:
    """A shard of work: a tenant's rankings by some retrievers.

    Attributes:
        tables: holds `queries` and `chunks`.
        tenant: the tenant.
        retrievers: names and builders.
        depth: number of chunks per query.
        folder: where a worker stores its results.
        lists: where rankings that several retrievers need are kept; None: a folder of the shard's own.
    """

    tables: Tables
    tenant: str
    retrievers: tuple[tuple[str, Factory], ...]
    depth: int
    folder: str
    lists: MemberLists | None = None

    @property
    def name(self) -> str:
        return f"search {self.tenant} {' '.join(name for name, _ in self.retrievers)}"


@dataclass(frozen=True)
class Effort:
    """Effort of a retriever for one tenant.

    Attributes:
        tenant: the tenant.
        retriever: its name.
        chunks: number of chunks searched.
        queries: number of queries.
        ready: seconds until the first query: fitting, indexing or opening.
        searching: seconds of searching.
        recall: recall of an approximate index against exact search, 0 to 1; null for exact search.
    """

    tenant: str
    retriever: str
    chunks: int
    queries: int
    ready: float
    searching: float
    recall: float | None


@dataclass(frozen=True)
class _Unit:
    """A unit of work: the rankings of a tenant by a retriever.

    Attributes:
        tenant: the tenant.
        retriever: name of the retriever.
        content_hash: hash of the tenant's chunks and queries.
        pieces: number of query blocks.
    """

    tenant: str
    retriever: str
    content_hash: str
    pieces: int

    @property
    def name(self) -> str:
        return f"{self.tenant!r} {self.retriever!r}"


def search(
    tables: Tables, output: Output, settings: PoolSettings, *, retrievers: Mapping[str, Factory], spread: Spread = here
) -> None:
    """Write each retriever's ranking for each query, `search_depth` deep.

    One resumable unit per tenant and retriever; a tenant whose queries and chunks did not change is not searched again.

    Args:
        tables: holds `queries` and `chunks`.
        output: receives `rankings`.
        settings: depth of the rankings.
        retrievers: builders by name, in the order of the rankings; with remote workers they must be picklable.
            Builders with the same `shares` share fitted data and run in one shard.
        spread: where the shards run.
    """
    queries = tables.read("queries", ["tenant", "query_id", "text"])
    units: list[_Unit] = []
    orphans = 0
    digests: set[str] = set()
    for tenant in sorted(pc.unique(queries["tenant"]).to_pylist()):
        tenant_queries = queries.filter(pc.equal(queries["tenant"], tenant))
        chunks = TenantChunks(tables, tenant)
        if chunks.n:
            digests.add(chunks.digest)
            content_hash = _content_hash(chunks, tenant_queries)
            pieces = -(-tenant_queries.num_rows // QUERY_BLOCK)
            units += [_Unit(tenant, name, content_hash, pieces) for name in retrievers]
        else:
            orphans += _reject_orphans(tenant_queries, output)
    missing = [unit for unit in units if not output.is_done(unit.name, unit.content_hash)]
    shards = [
        SearchShard(
            tables,
            group[0].tenant,
            tuple((unit.retriever, retrievers[unit.retriever]) for unit in group),
            settings.search_depth,
            f"progress/{SEARCH.name}/{key_of(*(output.unit_key(unit.name, unit.content_hash) for unit in group))}",
        )
        for group in _group_units(missing, retrievers, spread.places)
    ]
    _write_units(units, shards, spread, output)
    tidy_indexes(tables.url, digests)
    ranked = sum(part.rows for part in output.parts["rankings"])
    dropped = {"tenant has no documents": orphans} if orphans else {}
    output.count(FunnelStep("search", "queries", queries.num_rows, "ranked chunks", ranked, dropped))


def _content_hash(chunks: TenantChunks, queries: pa.Table) -> str:
    """Hash of a tenant's chunks and queries; a unit is searched again when it changes."""
    query_digest = Digest(2)
    query_digest.update([queries["query_id"], queries["text"]])
    return chunks.digest + query_digest.hexdigest()


def _group_units(units: Sequence[_Unit], retrievers: Mapping[str, Factory], places: int) -> list[list[_Unit]]:
    """Group units into shards: by tenant or, if workers would be idle otherwise, by tenant and `shares`."""
    tenants = [list(group) for _, group in groupby(units, lambda unit: unit.tenant)]
    if len(tenants) >= places:
        return tenants
    groups: dict[tuple[str, str], list[_Unit]] = {}
    for unit in units:
        shared_data = retrievers[unit.retriever].shares
        groups.setdefault((unit.tenant, shared_data), []).append(unit)
    return list(groups.values())


def _write_units(units: Sequence[_Unit], shards: Sequence[SearchShard], spread: Spread, output: Output) -> None:
    """Write the units in order, each from its shard's result."""
    owners = {(shard.tenant, name): shard for shard in shards for name, _ in shard.retrievers}
    results = spread(rank, shards)
    pieces: dict[str, Pieces] = {}
    output.progress(0, len(units))
    with ExitStack() as stack:
        for number, unit in enumerate(units, 1):
            with output.unit(unit.name, unit.content_hash) as unit_files:
                if not unit_files.done:
                    shard = owners[unit.tenant, unit.retriever]
                    if shard.folder not in pieces:  # shards are in the order of their first units
                        pieces[shard.folder] = stack.enter_context(closing(next(results)))
                    for rows in islice(pieces[shard.folder], unit.pieces):
                        output.write("rankings", rows)
                    unit_files.facts = next(pieces[shard.folder]).to_pylist()[0]
                    reject_unused(output, unit.tenant, next(pieces[shard.folder]))
                    if unit.retriever == shard.retrievers[-1][0]:
                        pieces[shard.folder].close()
            output.progress(number, len(units))


def rank(shard: SearchShard) -> Pieces:
    """Search a shard.

    Yields for each retriever the rankings of each query block, then a row of `Effort`, then the rows of
    `UNUSED_SCHEMA`.
    """
    release()
    in_tenant = pc.field("tenant") == shard.tenant
    queries = shard.tables.dataset("queries", QUERY_COLUMNS).to_table(QUERY_COLUMNS, in_tenant)
    chunks = TenantChunks(shard.tables, shard.tenant)
    with tempfile.TemporaryDirectory(prefix="darklode-vectors-") as scratch:
        indexes = Bm25Indexes(index_root(shard.tables.url, chunks.digest), chunks.digest, Path(scratch))
        lists = shard.lists or MemberLists(Path(scratch), shared_depths(build for _, build in shard.retrievers))
        corpus = Corpus(chunks.batches, chunks.n, Path(scratch), indexes, chunks, lists)
        for name, build in shard.retrievers:
            yield from _measure_search(build, corpus, name, chunks, queries, shard.depth)


def _measure_search(
    build: Factory, corpus: Corpus, name: str, chunks: TenantChunks, queries: pa.Table, depth: int
) -> Iterator[pa.Table]:
    """Yield the rankings of a retriever, an `Effort` row with the seconds for building and searching, unused rows."""
    start_time = time.perf_counter()
    retriever = corpus.open(build)
    ready_time = time.perf_counter()
    yield from _search_blocks(retriever, name, chunks, queries, depth)
    seconds = ready_time - start_time, time.perf_counter() - ready_time
    effort = Effort(chunks.tenant, name, chunks.n, queries.num_rows, *seconds, _recall(retriever))
    yield pa.Table.from_pylist([asdict(effort)])
    yield retriever.unused


def reject_unused(output: Output, tenant: str, rows: pa.Table) -> None:
    """Record rows of `UNUSED_SCHEMA` as rejects."""
    if rows.num_rows:
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        output.reject("search", RANKINGS.name, columns | {"tenant": pa.repeat(tenant, rows.num_rows)})


def _search_blocks(
    retriever: Retriever, name: str, chunks: TenantChunks, queries: pa.Table, depth: int
) -> Iterator[pa.Table]:
    """Yield rows of `rankings` for each block of queries."""
    for start in range(0, queries.num_rows, QUERY_BLOCK):
        block = queries.slice(start, QUERY_BLOCK)
        yield _ranking_rows(retriever.search(block["text"].to_pylist(), depth), name, chunks, block)


def _recall(retriever: Retriever) -> float | None:
    return retriever.recall.share if retriever.recall else None


def _ranking_rows(hits: Hits, name: str, chunks: TenantChunks, block: pa.Table) -> pa.Table:
    """Rows of `rankings`, query by query in rank order, without padding."""
    is_hit = hits.rows >= 0
    query, column = np.nonzero(is_hit)
    ids = block["query_id"].combine_chunks().take(pa.array(query))
    length = len(query)
    return RANKINGS.rows(
        {
            "tenant": pa.repeat(chunks.tenant, length),
            "query_id": ids,
            "retriever": pa.repeat(name, length),
            "rank": pa.array(column + 1, pa.int32()),
            "chunk_id": chunks.chunk_ids.take(pa.array(hits.rows[is_hit])),
            "score": pa.array(hits.scores[is_hit], pa.float32()),
        }
    )


def _reject_orphans(queries: pa.Table, output: Output) -> int:
    reason = pa.repeat("tenant has no documents", queries.num_rows)
    columns = {"tenant": queries["tenant"], "id": queries["query_id"], "payload": queries["text"]}
    output.reject("search", QUERIES.name, columns | {"reason": reason})
    return int(queries.num_rows)


def column_field(name: str, type_: pa.DataType, description: str) -> pa.Field:
    """An Arrow field with its description in the metadata."""
    return pa.field(name, type_, metadata={"description": description})


RETRIEVAL_SCHEMA = pa.schema(
    [
        column_field("retriever", pa.string(), "its name"),
        column_field("chunks", pa.int64(), "chunks searched"),
        column_field(
            "chunks_per_second", pa.float64(), "encoded, or indexed where there is no encoder; null: none were"
        ),
        column_field("queries_per_second", pa.float64(), "asked, over all tenants"),
        column_field("encoded", pa.int64(), "texts given to the encoder; null: there is none"),
        column_field("cache_hits", pa.float64(), "share of the texts whose vectors were at hand, 0 to 1"),
        column_field("bytes_cached", pa.int64(), "of the new vectors"),
        column_field("cost", pa.float64(), "money spent on them, by the encoder's price"),
        column_field("gpu", pa.float64(), "share of the encoding in which the GPUs computed; null: none, or not known"),
        column_field("recall", pa.float64(), "of an approximate index against exact search; null: the search is exact"),
    ]
)


def retrieval(run: Run) -> pa.Table:
    """One row per retriever, in the order of the rankings; empty before the first search.

    A skipped tenant counts with the effort recorded when it was searched, an encoder only with the latest search.
    """
    return retrieval_of(run.manifest(SEARCH))


def retrieval_of(manifest: Manifest | None) -> pa.Table:
    """The same as `retrieval`, from the manifest of the stage; empty for None."""
    efforts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for unit in manifest.units.values() if manifest else ():
        efforts[unit["facts"]["retriever"]].append(unit["facts"])
    embedding = manifest.facts.get("embedding", {}) if manifest else {}
    rows = [_effort_row(name, effort, embedding.get(name)) for name, effort in efforts.items()]
    return pa.Table.from_pylist(rows, RETRIEVAL_SCHEMA)


def _effort_row(name: str, efforts: list[dict[str, Any]], work: dict[str, Any] | None) -> dict[str, Any]:
    sums = {key: sum(effort[key] for effort in efforts) for key in ("chunks", "queries", "ready", "searching")}
    recalls = [effort["recall"] for effort in efforts if effort["recall"] is not None]
    row = {
        "retriever": name,
        "chunks": sums["chunks"],
        "chunks_per_second": _rate(sums["chunks"], sums["ready"]),
        "queries_per_second": _rate(sums["queries"], sums["searching"]),
        "recall": min(recalls, default=None),
    }
    return row if work is None else row | _encoder_columns(work)


def _encoder_columns(work: dict[str, Any]) -> dict[str, Any]:
    return {
        "chunks_per_second": _rate(work["encoded"], work["seconds"]),
        "encoded": work["encoded"],
        "cache_hits": _rate(work["texts"] - work["encoded"], work["texts"]),
        "bytes_cached": work["bytes"],
        "cost": work["cost"],
        "gpu": work["gpu"],
    }


def _rate(count: float, seconds: float) -> float | None:
    return count / seconds if seconds else None
