"""Tenants opened for ranking: their chunks, retrievers fitted on these chunks, and their judge."""

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

MAX_OPEN_CHUNKS = 1 << 21
"""Maximum total chunks of the tenants kept open. Open tenants keep their fitted retrievers for the next day, but also
their memory and temporary files.
"""


@dataclass(frozen=True)
class Ranker:
    """Retrievers that find candidates, and the judge that scores them.

    Attributes:
        judge_for: builds the judge of a tenant from its chunks.
        retrievers: by name, a function that builds the retriever on a tenant's chunks.
        version: identifies judge, retrievers and the state of the documents; a change recomputes all days.
    """

    judge_for: Callable[[TenantChunks], Judge]
    retrievers: Mapping[str, Factory]
    version: str

    @property
    def identity(self) -> Mapping[str, str]:
        """Everything that can change the ranking, for fingerprints."""
        return {"version": self.version}


@dataclass(frozen=True)
class OpenTenant:
    """A tenant ready for retrieval and judging, until `scratch` is closed.

    Chunks and documents are numbered: a chunk by its row in `chunks`, a document by its rank in `doc_ids`.

    Attributes:
        chunks: the tenant's chunks.
        retrievers: search the chunks; they return chunk rows.
        judge: the tenant's judge.
        texts: looks up chunk texts by row.
        scratch: temporary files; closing it deletes them.
    """

    chunks: TenantChunks
    retrievers: list[Retriever]
    judge: Judge
    texts: ChunkTexts
    scratch: ExitStack

    @cached_property
    def doc_ids(self) -> pa.StringArray:
        """The ids of the documents with chunks, sorted; a document's number is its index here."""
        return pc.unique(self._doc_id_of_chunk).sort()

    @cached_property
    def documents(self) -> DocumentIndex:
        """The mapping between chunk rows and document numbers."""
        document_of_chunk = pc.index_in(self._doc_id_of_chunk, self.doc_ids).to_numpy().astype(np.int64)
        chunk_id_ranks = np.empty(len(document_of_chunk), np.int64)
        chunk_id_ranks[pc.array_sort_indices(self.chunks.chunk_ids).to_numpy()] = np.arange(len(document_of_chunk))
        return DocumentIndex(document_of_chunk, chunk_id_ranks, len(self.doc_ids))

    def pairs(self, queries: pa.Table, query: NDArray[np.int64], row: NDArray[np.int64]) -> pa.Table:
        """Make rows of `PAIRS`, the judge's input, in the given order.

        Args:
            queries: query_id, query and query_hash.
            query: row number in `queries` of each pair, shape (n_pairs,).
            row: chunk row of each pair, shape (n_pairs,).
        """
        chunk_rows = pa.array(row)
        ids = {
            "query_id": queries["query_id"].take(pa.array(query)),
            "chunk_id": pa.chunked_array([self.chunks.chunk_ids.take(chunk_rows)]),
            "row": chunk_rows,
        }
        return pair_rows(pa.table(ids), self.chunks.tenant, queries, self.texts)

    @property
    def _doc_id_of_chunk(self) -> pa.StringArray:
        """The document id of each chunk row."""
        return pa.concat_arrays([batch["doc_id"] for batch in self.chunks.scan(["doc_id"])])


class OpenTenants:
    """Opens tenants on demand and keeps the most recently used ones open, up to `MAX_OPEN_CHUNKS` chunks.

    Use it as a context manager; on exit all tenants are closed.

    Args:
        tables: tables that contain `chunks`.
        ranker: builds the judge and the retrievers of a tenant.
    """

    def __init__(self, tables: Tables, ranker: Ranker) -> None:
        self._tables = tables
        self._ranker = ranker
        self._open: dict[str, OpenTenant] = {}
        self._digests: set[str] = set()
        self.judges: list[Judge] = []
        """All judges built so far, for the facts of the stage; a shared judge is listed once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for opened in self._open.values():
            opened.scratch.close()
        # After an error the digests may be incomplete, and tidying would delete indexes that are still needed.
        if self._ranker.retrievers and self._digests and error is None:
            tidy_indexes(self._tables.url, self._digests)
        release()

    def get(self, tenant: str) -> OpenTenant | None:
        """Return a tenant, opened if necessary, or None if it has no chunks.

        May close other tenants: do not use a tenant after requesting another one.
        """
        opened = self._open.pop(tenant, None) or self._open_tenant(tenant)
        if opened is None:
            return None
        self._open[tenant] = opened  # least recently used first
        while len(self._open) > 1 and sum(other.chunks.n for other in self._open.values()) > MAX_OPEN_CHUNKS:
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
            texts = ChunkTexts(chunks, scratch / "chunks.arrow")
            judge = self._ranker.judge_for(chunks)
            self.judges += [judge] if judge not in self.judges else []
            return OpenTenant(chunks, retrievers, judge, texts, stack.pop_all())
