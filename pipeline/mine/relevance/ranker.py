"""Tenants opened for ranking: chunks, retrievers and judge."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.judge.pairs import ChunkTexts, pair_rows
from darklode.pipeline.judge.port import Judge
from darklode.pipeline.mine.relevance.ranking import DocumentIndex
from darklode.pipeline.retrieve.encoders.deferred import release
from darklode.pipeline.retrieve.retrievers.bm25_index import Bm25Indexes, index_root, tidy_indexes
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.retrieve.retrievers.port import Retriever

OPEN_CHUNKS = 1 << 21
"""Maximum total chunks of the tenants kept open, so that what is fitted for one day is reused for the next."""


@dataclass(frozen=True)
class Ranker:
    """Retrievers that find candidates, and the judge that scores them.

    Attributes:
        judge_for: builds the judge of a tenant from its chunks.
        retrievers: builds each retriever on a tenant's chunks, by name.
        version: identifies judge, retrievers and the state of the documents.
    """

    judge_for: Callable[[TenantChunks], Judge]
    retrievers: Mapping[str, Factory]
    version: str

    @property
    def identity(self) -> Mapping[str, str]:
        """Everything that can change the ranking."""
        return {"version": self.version}


@dataclass(frozen=True)
class OpenTenant:
    """One tenant, usable until `scratch` is closed.

    Attributes:
        chunks: the tenant's chunks.
        retrievers: over the chunks.
        judge: of the tenant.
        texts: chunk texts by row.
        scratch: temporary files.
    """

    chunks: TenantChunks
    retrievers: list[Retriever]
    judge: Judge
    texts: ChunkTexts
    scratch: ExitStack

    @cached_property
    def doc_ids(self) -> pa.StringArray:
        """The documents' ids, sorted."""
        return pc.unique(self._docs).sort()

    @cached_property
    def documents(self) -> DocumentIndex:
        """Chunks by document; documents are numbered in the order of their ids."""
        document_index = pc.index_in(self._docs, self.doc_ids).to_numpy().astype(np.int64)
        places = np.empty(len(document_index), np.int64)
        places[pc.array_sort_indices(self.chunks.chunk_ids).to_numpy()] = np.arange(len(document_index))
        return DocumentIndex(document_index, places, len(self.doc_ids))

    def pairs(self, queries: pa.Table, query: NDArray[np.int64], row: NDArray[np.int64]) -> pa.Table:
        """Rows of `PAIRS` for row numbers of `queries` (query_id, query, query_hash) and of chunks, in order."""
        rows = pa.array(row)
        ids = {
            "query_id": queries["query_id"].take(pa.array(query)),
            "chunk_id": pa.chunked_array([self.chunks.chunk_ids.take(rows)]),
            "row": rows,
        }
        return pair_rows(pa.table(ids), self.chunks.tenant, queries, self.texts)

    @property
    def _docs(self) -> pa.StringArray:
        return pa.concat_arrays([batch["doc_id"] for batch in self.chunks.scan(["doc_id"])])


class OpenTenants:
    """Opens tenants on demand and keeps the most recently used ones.

    Args:
        tables: holds `chunks`.
        ranker: judge and retrievers.
    """

    def __init__(self, tables: Tables, ranker: Ranker) -> None:
        self._tables, self._ranker = tables, ranker
        self._open: dict[str, OpenTenant] = {}
        self._digests: set[str] = set()
        self.judges: list[Judge] = []
        """Every judge that was built."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for opened in self._open.values():
            opened.scratch.close()
        if self._ranker.retrievers and self._digests and error is None:
            tidy_indexes(self._tables.url, self._digests)
        release()

    def get(self, tenant: str) -> OpenTenant | None:
        """A tenant, or None where it has no chunks."""
        opened = self._open.pop(tenant, None) or self._open_tenant(tenant)
        if opened is None:
            return None
        self._open[tenant] = opened  # least recently used first
        while len(self._open) > 1 and sum(open_tenant.chunks.n for open_tenant in self._open.values()) > OPEN_CHUNKS:
            self._open.pop(next(iter(self._open))).scratch.close()
        return opened

    def _open_tenant(self, tenant: str) -> OpenTenant | None:
        chunks = TenantChunks(self._tables, tenant)
        if not chunks.n:
            return None
        self._digests.add(chunks.digest)
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="darklode-relevance-")))
            indexes = Bm25Indexes(index_root(self._tables.url, chunks.digest), chunks.digest, scratch)
            corpus = Corpus(chunks.batches, chunks.n, scratch, indexes, chunks)
            retrievers = [build(corpus) for build in self._ranker.retrievers.values()]
            texts, judge = ChunkTexts(chunks, scratch / "chunks.arrow"), self._ranker.judge_for(chunks)
            self.judges += [judge] if judge not in self.judges else []
            return OpenTenant(chunks, retrievers, judge, texts, stack.pop_all())
