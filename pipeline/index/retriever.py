"""An index as a retriever of its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.index.searcher import VectorSearcher
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.pipeline.train.release.adapter import Adapter


class IndexRetriever(Retriever):
    """Searches an index; texts that the run no longer has are left out.

    Args:
        searcher: the opened index.
        chunk_ids: chunk_id of each row of the tenant's run.
        adapter: encodes the queries instead of the base encoder.
        tenant: tenant whose texts are searched; required if the index has several.
    """

    def __init__(
        self,
        searcher: VectorSearcher,
        chunk_ids: pa.StringArray,
        adapter: Adapter | None = None,
        tenant: str | None = None,
    ) -> None:
        self.name = searcher.url
        self._searcher, self._adapter, self._tenant = searcher, adapter, searcher.resolve_tenant(tenant)
        rows = pc.fill_null(pc.index_in(searcher.texts["text_id"], value_set=chunk_ids), -1)
        is_own = pc.equal(searcher.texts["tenant"], self._tenant)
        self._row_of = np.asarray(pc.if_else(is_own, rows, -1), np.int64)

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        results = self._searcher.search(list(queries), depth, self._adapter, self._tenant)
        rows = np.where(results.rows >= 0, self._row_of[results.rows], -1)
        last = np.argsort(rows < 0, axis=1, kind="stable")
        rows, scores = np.take_along_axis(rows, last, 1), np.take_along_axis(results.scores, last, 1)
        return Hits(rows, np.where(rows >= 0, scores, np.nan).astype(np.float32))


@dataclass(frozen=True)
class IndexRetrieverFactory:
    """Builds the retriever of an index.

    Attributes:
        url: URL of the index.
        tenant: tenant whose texts are searched.
        chunk_ids: chunk_id of each row of the run.
        adapter: encodes the queries instead of the base encoder.
    """

    url: str
    tenant: str
    chunk_ids: pa.StringArray
    adapter: Adapter | None = None

    def __call__(self, corpus: Corpus) -> Retriever:  # noqa: ARG002 (the index has its own vectors)
        """Open the index.

        Raises:
            ArtifactError: the index is missing or unfinished.
            DoesNotFit: it has no texts of the tenant, or its encoder is not the adapter's base.
        """
        searcher = VectorSearcher(self.url)
        if self.adapter:
            searcher.require_same_encoder(self.adapter)
        return IndexRetriever(searcher, self.chunk_ids, self.adapter, self.tenant)

    @property
    def shares(self) -> str:
        """Nothing is shared between indexes."""
        return self.url
