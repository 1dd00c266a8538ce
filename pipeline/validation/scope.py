"""What is estimated: the whole run, one tenant of it, or the pairs that one retriever found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.artifacts import Tables
from pipeline.validation.labels import Answered
from pipeline.validation.strata import Strata

STRATA = """
    SELECT position, tenant, retriever, verdict, pairs
    FROM review_strata ORDER BY position, tenant, retriever NULLS FIRST
"""
QUERIES = "SELECT tenant, count(*) AS n FROM queries GROUP BY tenant ORDER BY tenant"

_Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Scope:
    """A part of the run, and what people said of it.

    Attributes:
        tenant: None: all.
        tenants: those of the part.
        retriever: None: all pairs, whoever found them.
        pairs: pairs of the run in each stratum, shape (n_strata,).
        verdict: what the judge said of each stratum, shape (n_strata,).
        answered: pairs of the part that somebody answered.
        queries: queries of its tenants.
    """

    tenant: str | None
    tenants: tuple[str, ...]
    retriever: str | None
    pairs: _Counts
    verdict: NDArray[np.object_]
    answered: Answered
    queries: int

    @property
    def sample(self) -> Answered:
        """Labelled pairs of the sample."""
        return self.answered.take(self.answered.labelled & (self.answered.stratum >= 0))

    def size(self, *verdicts: str) -> int:
        """Pairs of the run with one of these verdicts."""
        return int(self.pairs[np.isin(self.verdict, verdicts)].sum())

    def strata(self, verdicts: tuple[str, ...]) -> Strata:
        """The strata of some verdicts, with the labels of each query."""
        own, sample = np.flatnonzero(np.isin(self.verdict, verdicts) & (self.pairs > 0)), self.sample
        place = np.full(len(self.pairs), -1)
        place[own] = np.arange(len(own))
        column = place[sample.stratum]
        rows = column >= 0
        query = np.unique(sample.query, return_inverse=True)[1]
        shape = (int(query.max(initial=-1)) + 1, len(own))
        labelled, relevant = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        np.add.at(labelled, (query[rows], column[rows]), 1)
        np.add.at(relevant, (query[rows], column[rows]), sample.positive[rows])
        return Strata(self.pairs[own], self.verdict[own] == "relevant", labelled, relevant)


def scopes(tables: Tables) -> Iterator[Scope]:
    """All tenants together, each tenant where there are several, and each retriever.

    Args:
        tables: holds `queries`, `pool`, `verdicts`, `review_sample`, `review_strata` and `reviews`.
    """
    strata, queries = tables.sql(STRATA), tables.sql(QUERIES)
    of_tenant = dict(zip(queries["tenant"].to_pylist(), queries["n"].to_pylist(), strict=True))
    retrievers = sorted(pc.unique(strata["retriever"]).drop_null().to_pylist())
    answered, every = Answered.of(tables, retrievers), sum(of_tenant.values())
    verdict, names = _verdicts(strata), tuple(of_tenant)
    anyone = pc.is_null(strata["retriever"])
    yield Scope(None, names, None, _pairs(strata.filter(anyone), len(verdict)), verdict, answered, every)
    if len(of_tenant) > 1:
        for tenant, n in of_tenant.items():
            own = strata.filter(pc.and_(anyone, pc.equal(strata["tenant"], tenant)))
            of = answered.take(answered.tenant == tenant)
            yield Scope(tenant, (tenant,), None, _pairs(own, len(verdict)), verdict, of, n)
    for column, retriever in enumerate(retrievers):
        own = strata.filter(pc.fill_null(pc.equal(strata["retriever"], retriever), False))
        of = answered.take(answered.found_by[:, column])
        yield Scope(None, names, retriever, _pairs(own, len(verdict)), verdict, of, every)


def _verdicts(strata: pa.Table) -> NDArray[np.object_]:
    position = strata["position"].to_numpy()
    found = np.empty(int(position.max(initial=-1)) + 1, dtype=object)
    found[position] = strata["verdict"].to_numpy(zero_copy_only=False)
    return found


def _pairs(strata: pa.Table, n: int) -> _Counts:
    return np.bincount(strata["position"].to_numpy(), strata["pairs"].to_numpy(), minlength=n).astype(np.int64)
