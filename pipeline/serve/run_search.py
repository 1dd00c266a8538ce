"""Search a run's texts of one tenant with the indexes and vectors of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts.tables import BATCH_ROWS
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Row
from darklode.pipeline.retrieve.retrievers.bm25_index import Bm25Indexes, index_root
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.pipeline.train.data.sources import TrainingSource

RESULT_SCHEMA = pa.schema(
    [
        ("system", pa.string()),
        ("query", pa.int64()),
        ("rank", pa.int32()),
        ("text_id", pa.string()),
        ("score", pa.float32()),
    ]
)


class TenantDocuments(TenantChunks):
    """Documents of a mined run, used as chunks.

    Args:
        source: the mined run.
        tenant: tenant of the documents.
    """

    def __init__(self, source: TrainingSource, tenant: str) -> None:
        super().__init__(source.tables, tenant)
        self._source = source

    def scan(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        for rows in self._source.texts(self.tenant):
            yield from rows.select(columns).to_batches(BATCH_ROWS)


class TenantIndex:
    """The searched texts of a tenant.

    Args:
        source: a benchmark build, or a mined run, whose documents are searched as a whole.
        tenant: tenant of the texts.
        scratch: an existing folder for memory-mapped files of retrievers.

    Raises:
        ArtifactError: the run is unfinished, or has no texts of the tenant.
    """

    def __init__(self, source: TrainingSource, tenant: str, scratch: Path) -> None:
        self.source, self.tenant = source, tenant
        self.texts = TenantDocuments(source, tenant) if source.mined else TenantChunks(source.tables, tenant)
        if not self.texts.n:
            raise ArtifactError(f"{source.run.store.url} has no text of tenant {tenant}")
        indexes = Bm25Indexes(index_root(source.run.store.url, self.texts.digest), self.texts.digest, scratch)
        self._corpus = Corpus(self.texts.batches, self.texts.n, scratch, indexes, self.texts)
        self._opened: dict[str, Retriever] = {}

    def top(self, systems: Mapping[str, Factory], queries: Sequence[str], depth: int) -> pa.Table:
        """Search with each system; returns rows of `RESULT_SCHEMA`, by system and query, best first.

        Args:
            systems: factories by name; each retriever is built at its first use.
            queries: the column `query` has their indices.
            depth: length of the lists.
        """
        results = [self._top(name, factory, queries, depth) for name, factory in systems.items()]
        return pa.concat_tables([RESULT_SCHEMA.empty_table(), *results])

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
        return pa.Table.from_arrays(columns, schema=RESULT_SCHEMA)

    def texts_by_id(self, text_ids: Sequence[str]) -> dict[str, Row]:
        """Doc_id, title, heading and text of some texts, by id."""
        rows = self.source.passage_rows(self.tenant, text_ids)
        return {row["chunk_id"]: row for row in rows.to_pylist()}
