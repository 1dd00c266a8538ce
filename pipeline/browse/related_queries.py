"""Queries of a benchmark that are near to one another: by their terms, the rarer a term the more it counts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.base.types import Row
from darklode.pipeline.browse.catalogue import Catalogue

_TEXTS = "SELECT query, tenant, text FROM all_queries ORDER BY query"
_ROWS = """
    SELECT query, tenant, query_id, text AS query_text, split, x.relevant
    FROM all_queries LEFT JOIN counts x USING (query)
"""


@dataclass
class SimilarQueries:
    """Looks up near queries; the terms are counted when first asked for.

    Nearness is the cosine of the queries' terms, weighted by inverse document frequency over the queries of all
    tenants; a query is near to those of its own tenant alone.
    """

    catalogue: Catalogue
    analyzer: Analyzer
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _vectors: sparse.csr_matrix | None = None
    _tenants: NDArray[np.int32] | None = None

    def similar(self, query: int, max_queries: int) -> list[Row]:
        """The nearest queries, each with `nearness` from 0 to 1, the nearest first; those that share nothing are none.

        Args:
            query: its number.
            max_queries: how many at most.
        """
        with self._counting:
            if self._vectors is None:
                self._count()
        assert self._vectors is not None
        assert self._tenants is not None
        row = query - 1
        nearness = (self._vectors @ self._vectors[row].T).toarray().ravel()
        nearness[self._tenants != self._tenants[row]] = 0
        nearness[row] = 0
        nearest_rows = np.argsort(-nearness, kind="stable")[:max_queries]
        chosen = {
            int(row_number) + 1: float(nearness[row_number]) for row_number in nearest_rows if nearness[row_number] > 0
        }
        numbers = ", ".join(map(str, chosen)) or "NULL"
        rows = self.catalogue.rows(f"{_ROWS} WHERE query IN ({numbers})")
        query_rows = [{**row_number, "nearness": chosen[row_number["query"]]} for row_number in rows]
        return sorted(query_rows, key=lambda row_number: (-row_number["nearness"], row_number["query"]))

    def _count(self) -> None:
        texts = self.catalogue.table(_TEXTS)
        space = TermSpace([texts["text"].to_pylist()], self.analyzer)
        weighed = space.counts.multiply(space.idf).tocsr()
        norms = np.sqrt(np.asarray(weighed.multiply(weighed).sum(axis=1)).ravel())
        self._tenants = texts["tenant"].combine_chunks().dictionary_encode().indices.to_numpy()
        self._vectors = sparse.diags(1 / np.maximum(norms, 1e-9)) @ weighed
