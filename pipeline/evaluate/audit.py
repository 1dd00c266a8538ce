"""The stage `audit`: recall of each retriever on the judged positives, and recall of the pool without it."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.bootstrap import interval
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import AUDIT_OVERLAP, AUDIT_RETRIEVERS

AUDIT = Stage("audit", 1, ("rankings", "qrels"), ("audit_retrievers", "audit_overlap"))

CAVEAT = "A retriever's own positives count toward it: what no retriever found was never judged."

FOUND = """
    WITH positives AS (SELECT tenant, query_id, chunk_id FROM qrels WHERE relevance > 0)
    SELECT p.tenant, p.query_id, p.chunk_id, r.retriever, r.rank
    FROM positives p LEFT JOIN rankings r USING (tenant, query_id, chunk_id)
    ORDER BY p.tenant, p.query_id, p.chunk_id, r.retriever
"""

NOT_FOUND = np.iinfo(np.int32).max


class PositiveRanks:
    """Rank of each judged positive in each retriever's list.

    Attributes:
        tenants: tenant of each query, shape (n_queries,).
        query: query row of each positive, shape (n_positives,).
        retrievers: names, sorted.
        ranks: shape (n_positives, n_retrievers); NOT_FOUND where a list does not contain the positive.
    """

    def __init__(self, rows: pa.Table, retrievers: list[str]) -> None:
        self.retrievers = retrievers
        query = _codes(rows, ["tenant", "query_id"])
        positive = _codes(rows, ["tenant", "query_id", "chunk_id"])
        n = int(positive.max(initial=-1)) + 1
        self.ranks = np.full((n, len(retrievers)), NOT_FOUND, np.int32)
        self.query = np.zeros(n, np.int64)
        self.query[positive] = query
        tenant = np.empty(int(query.max(initial=-1)) + 1, dtype=object)
        tenant[query] = rows["tenant"].to_numpy()
        self.tenants = tenant
        hit = pc.is_valid(rows["rank"]).to_numpy()
        column = pc.index_in(rows["retriever"], pa.array(retrievers, pa.string())).to_numpy()[hit].astype(np.int64)
        self.ranks[positive[hit], column] = rows["rank"].to_numpy()[hit]

    def recall(self, hit: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Share of each query's positives that are hit, shape (n_queries,) or (n_queries, columns of hit)."""
        shape = (len(self.tenants), *hit.shape[1:])
        sums = np.zeros(shape)
        np.add.at(sums, self.query, hit)
        counts = np.bincount(self.query, minlength=len(self.tenants))
        return np.asarray(sums / counts.reshape(-1, *[1] * (hit.ndim - 1)))


def audit(tables: Tables, output: Output, settings: EvaluateSettings, *, depth: int, seed: int) -> None:
    """Measure each retriever's recall at search depth, leave-one-out recall at pool depth, and pairwise overlap.

    Means are over queries with at least one positive; 95 % intervals from resampling queries. With several tenants, the
    first rows of `audit_retrievers` are over all of them (tenant null). Source: DevRev-Search, 3.3.1 and A.2.
    """
    names = tables.sql("SELECT DISTINCT retriever FROM rankings ORDER BY retriever")["retriever"].to_pylist()
    positives = PositiveRanks(tables.sql(FOUND), names)
    output.facts["caveat"] = CAVEAT
    if not positives.ranks.size:
        return
    everyone = np.ones(len(positives.tenants), bool)
    scopes: list[tuple[str | None, NDArray[np.bool_]]] = [(None, everyone)]
    tenants = sorted(set(positives.tenants))
    if len(tenants) > 1:
        scopes += [(tenant, positives.tenants == tenant) for tenant in tenants]
    rows = [
        row for tenant, scope in scopes for row in _rows(positives, tenant, scope, depth, settings.n_resamples, seed)
    ]
    output.write("audit_retrievers", pa.Table.from_pylist(rows, schema=AUDIT_RETRIEVERS.schema))
    output.write("audit_overlap", pa.Table.from_pylist(_overlap(positives, depth), schema=AUDIT_OVERLAP.schema))


def _rows(
    positives: PositiveRanks, tenant: str | None, scope: NDArray[np.bool_], depth: int, resamples: int, seed: int
) -> list[dict[str, object]]:
    in_pool = positives.ranks <= depth
    found_by_others = in_pool.sum(axis=1, keepdims=True) > in_pool
    alone = positives.recall(positives.ranks < NOT_FOUND)[scope]
    shallow = positives.recall(in_pool)[scope].mean(axis=0)
    without = positives.recall(found_by_others)[scope]
    positive_in_scope = scope[positives.query]
    unique = (in_pool & (in_pool.sum(axis=1, keepdims=True) == 1))[positive_in_scope].sum(axis=0)
    alone_low, alone_high = _of_means(alone, resamples, seed)
    without_low, without_high = _of_means(without, resamples, seed)
    return [
        {
            "tenant": tenant,
            "retriever": name,
            "recall": alone[:, i].mean(),
            "recall_low": alone_low[i],
            "recall_high": alone_high[i],
            "recall_at_depth": shallow[i],
            "leave_one_out": without[:, i].mean(),
            "leave_one_out_low": without_low[i],
            "leave_one_out_high": without_high[i],
            "unique_positives": unique[i],
            "positives": positive_in_scope.sum(),
            "queries": scope.sum(),
        }
        for i, name in enumerate(positives.retrievers)
    ]


def _of_means(
    values: NDArray[np.float64], resamples: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return interval(values, lambda sums: sums / len(values), resamples, seed)


def _overlap(positives: PositiveRanks, depth: int) -> list[dict[str, object]]:
    in_pool = (positives.ranks <= depth).astype(np.int64)
    shared = in_pool.T @ in_pool
    sizes = np.diag(shared)
    rows = []
    for i, first in enumerate(positives.retrievers):
        for j, other in enumerate(positives.retrievers):
            either = int(sizes[i] + sizes[j] - shared[i, j])
            jaccard = float(shared[i, j]) / either if either else None
            rows.append(
                {"retriever": first, "other": other, "shared": shared[i, j], "found": sizes[i], "jaccard": jaccard}
            )
    return rows


def _codes(table: pa.Table, columns: list[str]) -> NDArray[np.int64]:
    """Integer codes of the distinct column combinations in order of first appearance, shape (n_rows,)."""
    joined = pc.binary_join_element_wise(*[table[name].cast(pa.string()) for name in columns], "\x00")
    encoded = pa.chunked_array([joined]) if isinstance(joined, pa.Array) else joined
    return np.asarray(encoded.combine_chunks().dictionary_encode().indices.to_numpy(), np.int64)
