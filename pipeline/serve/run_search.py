"""A run's texts of one tenant as they are searched, by the indexes and vectors that the run already has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts.tables import BATCH_ROWS
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.retrieve.retrievers.bm25_index import Bm25Indexes, index_root
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.pipeline.train.data.sources import TrainingSource

FOUND = pa.schema(
    [
        ("system", pa.string()),
        ("query", pa.int64()),
        ("rank", pa.int32()),
        ("text_id", pa.string()),
        ("score", pa.float32()),
    ]
)

Row = dict[str, Any]


class TenantDocuments(TenantChunks):
    """A mined run's documents in the place of chunks.

    Args:
        source: the mined run.
        tenant: whose documents.
    """

    def __init__(self, source: TrainingSource, tenant: str) -> None:
        super().__init__(source.tables, tenant)
        self._source = source

    def scan(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        for rows in self._source.texts(self.tenant):
            yield from rows.select(columns).to_batches(BATCH_ROWS)


class TenantIndex:
    """What is searched for one tenant.

    Args:
        source: a build, or a mined run, whose documents are searched whole.
        tenant: whose texts.
        scratch: an existing folder for what retrievers map into memory.

    Raises:
        ArtifactError: the run is not finished, or the tenant has no texts in it.
    """

    def __init__(self, source: TrainingSource, tenant: str, scratch: Path) -> None:
        self.source, self.tenant = source, tenant
        self.texts = TenantDocuments(source, tenant) if source.mined else TenantChunks(source.tables, tenant)
        if not self.texts.n:
            raise ArtifactError(f"{source.run.store.url} holds no text of the tenant {tenant}")
        indexes = Bm25Indexes(index_root(source.run.store.url, self.texts.digest), self.texts.digest, scratch)
        self._corpus = Corpus(self.texts.batches, self.texts.n, scratch, indexes, self.texts)
        self._opened: dict[str, Retriever] = {}

    def top(self, systems: Mapping[str, Factory], queries: Sequence[str], depth: int) -> pa.Table:
        """What each system finds: rows of `FOUND`, system by system, query by query, best first.

        Args:
            systems: builds each, by name; opened at its first use and kept.
            queries: their places are the column `query`.
            depth: of the lists.
        """
        results = [self._top(name, factory, queries, depth) for name, factory in systems.items()]
        return pa.concat_tables([FOUND.empty_table(), *results])

    def _top(self, name: str, factory: Factory, queries: Sequence[str], depth: int) -> pa.Table:
        if name not in self._opened:
            self._opened[name] = factory(self._corpus)
        hits = self._opened[name].search(queries, depth)
        query, rank = np.nonzero(hits.rows >= 0)
        columns = [
            pa.repeat(name, len(query)),
            pa.array(query.astype(np.int64)),
            pa.array((rank + 1).astype(np.int32)),
            self.texts.chunk_ids.take(pa.array(hits.rows[query, rank])),
            pa.array(hits.scores[query, rank].astype(np.float32)),
        ]
        return pa.Table.from_arrays(columns, schema=FOUND)

    def texts_by_id(self, text_ids: Sequence[str]) -> dict[str, Row]:
        """Doc_id, title, heading and text of some texts, by id."""
        rows = self.source.passage_rows(self.tenant, text_ids)
        return {row["chunk_id"]: row for row in rows.to_pylist()}
