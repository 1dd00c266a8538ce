"""Queries of a benchmark that are near to one another: by their terms, the rarer a term the more it counts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.browse.catalogue import Catalogue, Row

_TEXTS = "SELECT query, tenant, text FROM all_queries ORDER BY query"
_ROWS = """
    SELECT query, tenant, query_id, text AS query_text, split, x.relevant
    FROM all_queries LEFT JOIN counts x USING (query)
"""


@dataclass
class Neighbours:
    """Looks up near queries; the terms are counted when first asked for.

    Nearness is the cosine of the queries' terms, weighted by inverse document frequency over the queries of all
    tenants; a query is near to those of its own tenant alone.
    """

    catalogue: Catalogue
    analyzer: Analyzer
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _vectors: sparse.csr_matrix | None = None
    _tenants: NDArray[np.int32] | None = None

    def near(self, query: int, most: int) -> list[Row]:
        """The nearest queries, each with `nearness` from 0 to 1, the nearest first; those that share nothing are none.

        Args:
            query: its number.
            most: how many at most.
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
        best = np.argsort(-nearness, kind="stable")[:most]
        chosen = {int(one) + 1: float(nearness[one]) for one in best if nearness[one] > 0}
        numbers = ", ".join(map(str, chosen)) or "NULL"
        rows = self.catalogue.rows(f"{_ROWS} WHERE query IN ({numbers})")
        found = [{**one, "nearness": chosen[one["query"]]} for one in rows]
        return sorted(found, key=lambda one: (-one["nearness"], one["query"]))

    def _count(self) -> None:
        texts = self.catalogue.table(_TEXTS)
        space = TermSpace([texts["text"].to_pylist()], self.analyzer)
        weighed = space.counts.multiply(space.idf).tocsr()
        norms = np.sqrt(np.asarray(weighed.multiply(weighed).sum(axis=1)).ravel())
        self._tenants = texts["tenant"].combine_chunks().dictionary_encode().indices.to_numpy()
        self._vectors = sparse.diags(1 / np.maximum(norms, 1e-9)) @ weighed
