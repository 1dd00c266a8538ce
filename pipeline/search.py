"""Every retriever searches every query once, deep enough for the pool and for the audit."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from pipeline.corpora import Digest, TenantChunks
from pipeline.retrievers.corpus import Corpus
from pipeline.retrievers.port import Hits, Retriever
from schemas.settings import PoolSettings
from schemas.tables import QUERIES, RANKINGS

SEARCH = Stage("search", 1, ("queries", "chunks"), ("rankings",))

QUERY_BLOCK = 1024

Factory = Callable[[Corpus], Retriever]


def search(tables: Tables, output: Output, settings: PoolSettings, *, retrievers: Mapping[str, Factory]) -> None:
    """Write each retriever's list for each query, `search_depth` deep, tenant by tenant.

    One unit per tenant and retriever: a killed search goes on with the next retriever, and a tenant whose queries and
    chunks did not change is not searched again.

    Args:
        tables: holds `queries` and `chunks`.
        output: takes `rankings`.
        settings: the depth of the lists.
        retrievers: builds each retriever on a tenant's chunks, by name, in the order of the lists.
    """
    queries = tables.read("queries", ["tenant", "query_id", "text"])
    tenants = sorted(pc.unique(queries["tenant"]).to_pylist())
    orphans = 0
    for number, tenant in enumerate(tenants):
        mine = queries.filter(pc.equal(queries["tenant"], tenant))
        chunks = TenantChunks(tables, tenant)
        if chunks.n:
            report = _Report(output, number * len(retrievers), len(tenants) * len(retrievers))
            _search_tenant(chunks, mine, output, settings.search_depth, retrievers, report)
        else:
            orphans += _reject_orphans(mine, output)
    ranked = sum(part.rows for part in output.parts["rankings"])
    dropped = {"tenant has no documents": orphans} if orphans else {}
    output.count(FunnelStep("search", "queries", queries.num_rows, "ranked chunks", ranked, dropped))


class _Report:
    """Progress in searches done, over all tenants."""

    def __init__(self, output: Output, before: int, total: int) -> None:
        self._output, self._done, self._total = output, before, total
        output.progress(before, total)

    def step(self) -> None:
        self._done += 1
        self._output.progress(self._done, self._total)


def _search_tenant(
    chunks: TenantChunks,
    queries: pa.Table,
    output: Output,
    depth: int,
    retrievers: Mapping[str, Factory],
    report: _Report,
) -> None:
    basis = Digest(2)
    basis.update([queries["query_id"], queries["text"]])
    mark = chunks.digest + basis.hexdigest()
    with tempfile.TemporaryDirectory(prefix="darklode-vectors-") as scratch:
        corpus = Corpus(chunks.batches, chunks.n, Path(scratch))
        for name, build in retrievers.items():
            with output.unit(f"{chunks.tenant!r} {name!r}", mark) as unit:
                if not unit.done:
                    for rows in _lists(build(corpus), name, chunks, queries, depth):
                        output.write("rankings", rows)
            report.step()


def _lists(retriever: Retriever, name: str, chunks: TenantChunks, queries: pa.Table, depth: int) -> Iterator[pa.Table]:
    for start in range(0, queries.num_rows, QUERY_BLOCK):
        block = queries.slice(start, QUERY_BLOCK)
        yield _rows(retriever.search(block["text"].to_pylist(), depth), name, chunks, block)


def _rows(hits: Hits, name: str, chunks: TenantChunks, block: pa.Table) -> pa.Table:
    """Rows of `rankings` from hits, query by query in rank order; padding is left out."""
    found = hits.rows >= 0
    query, place = np.nonzero(found)
    ids = block["query_id"].combine_chunks().take(pa.array(query))
    length = len(query)
    return RANKINGS.rows(
        {
            "tenant": pa.repeat(chunks.tenant, length),
            "query_id": ids,
            "retriever": pa.repeat(name, length),
            "rank": pa.array(place + 1, pa.int32()),
            "chunk_id": chunks.chunk_ids.take(pa.array(hits.rows[found])),
            "score": pa.array(hits.scores[found], pa.float32()),
        }
    )


def _reject_orphans(queries: pa.Table, output: Output) -> int:
    reason = pa.repeat("tenant has no documents", queries.num_rows)
    columns = {"tenant": queries["tenant"], "id": queries["query_id"], "payload": queries["text"]}
    output.reject("search", QUERIES.name, columns | {"reason": reason})
    return int(queries.num_rows)
