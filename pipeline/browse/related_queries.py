"""Similar queries of a benchmark, by TF-IDF cosine."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.base.types import Row
from darklode.pipeline.browse.catalogue import Catalogue

_QUERY_TEXTS_SQL = "SELECT query, tenant, text FROM all_queries ORDER BY query"
_QUERY_ROWS_SQL = """
    SELECT query, tenant, query_id, text AS query_text, split, x.relevant
    FROM all_queries LEFT JOIN counts x USING (query)
"""


@dataclass
class SimilarQueries:
    """Finds similar queries of the same tenant; the vectors are built on first use.

    Similarity is the cosine of IDF-weighted term counts; IDF is computed over the queries of all tenants.
    """

    catalogue: Catalogue
    analyzer: Analyzer
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _vectors: sparse.csr_matrix | None = None
    _tenants: NDArray[np.int32] | None = None

    def similar(self, query: int, max_queries: int) -> list[Row]:
        """Rows of the most similar queries, with `similarity` in (0, 1], most similar first.

        Args:
            query: number of the query.
            max_queries: maximum number of rows; queries without a shared term are omitted.
        """
        with self._lock:
            if self._vectors is None:
                self._build_vectors()
        assert self._vectors is not None
        assert self._tenants is not None
        row = query - 1  # queries are numbered from 1, rows of the matrix from 0 in the same order
        similarities = (self._vectors @ self._vectors[row].T).toarray().ravel()
        similarities[self._tenants != self._tenants[row]] = 0
        similarities[row] = 0
        top = np.argsort(-similarities, kind="stable")[:max_queries]
        similarity_by_query = {int(index) + 1: float(similarities[index]) for index in top if similarities[index] > 0}
        numbers = ", ".join(map(str, similarity_by_query)) or "NULL"
        rows = self.catalogue.rows(f"{_QUERY_ROWS_SQL} WHERE query IN ({numbers})")
        query_rows = [{**query_row, "similarity": similarity_by_query[query_row["query"]]} for query_row in rows]
        return sorted(query_rows, key=lambda query_row: (-query_row["similarity"], query_row["query"]))

    def _build_vectors(self) -> None:
        texts = self.catalogue.table(_QUERY_TEXTS_SQL)
        space = TermSpace([texts["text"].to_pylist()], self.analyzer)
        weighted = space.counts.multiply(space.idf).tocsr()
        norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
        self._tenants = texts["tenant"].combine_chunks().dictionary_encode().indices.to_numpy()
        self._vectors = sparse.diags(1 / np.maximum(norms, 1e-9)) @ weighted
