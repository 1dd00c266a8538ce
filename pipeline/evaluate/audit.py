"""The stage `audit`: recall of each retriever, and leave-one-out recall of the pool (DevRev-Search, 3.3.1 and A.2)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.bootstrap import interval
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.evaluation_tables import AUDIT_OVERLAP, AUDIT_RETRIEVERS

AUDIT_STAGE = Stage("audit", 1, ("rankings", "qrels"), ("audit_retrievers", "audit_overlap"))

RECALL_CAVEAT = "Recall is relative to judged positives: a relevant chunk that no retriever found was never judged."

POSITIVE_RANKS_SQL = """
    WITH positives AS (SELECT tenant, query_id, chunk_id FROM qrels WHERE relevance > 0)
    SELECT p.tenant, p.query_id, p.chunk_id, r.retriever, r.rank
    FROM positives p LEFT JOIN rankings r USING (tenant, query_id, chunk_id)
    ORDER BY p.tenant, p.query_id, p.chunk_id, r.retriever
"""

NOT_RETRIEVED = np.iinfo(np.int32).max
"""Rank of a positive that a retriever's list does not contain."""


class PositiveRanks:
    """Rank of each judged positive in each retriever's list.

    Args:
        rows: result of the query `POSITIVE_RANKS_SQL`.
        retrievers: names of the retrievers, sorted.

    Attributes:
        tenants: tenant of each query, shape (n_queries,).
        query: index of each positive's query, shape (n_positives,).
        ranks: rank of each positive in each list, shape (n_positives, n_retrievers); `NOT_RETRIEVED` if the list does
            not contain the positive.
    """

    def __init__(self, rows: pa.Table, retrievers: list[str]) -> None:
        self.retrievers = retrievers
        query = _integer_codes(rows, ["tenant", "query_id"])
        positive = _integer_codes(rows, ["tenant", "query_id", "chunk_id"])
        n_positives = int(positive.max(initial=-1)) + 1
        n_queries = int(query.max(initial=-1)) + 1
        self.query = np.zeros(n_positives, np.int64)
        self.query[positive] = query
        self.tenants = np.empty(n_queries, dtype=object)
        self.tenants[query] = rows["tenant"].to_numpy()
        self.ranks = np.full((n_positives, len(retrievers)), NOT_RETRIEVED, np.int32)
        retrieved = pc.is_valid(rows["rank"]).to_numpy()
        column = pc.index_in(rows["retriever"], pa.array(retrievers, pa.string())).to_numpy()[retrieved]
        self.ranks[positive[retrieved], column.astype(np.int64)] = rows["rank"].to_numpy()[retrieved]

    def recall(self, hit: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Compute recall per query, shape (n_queries, ...).

        Args:
            hit: whether each positive is retrieved, shape (n_positives, ...).
        """
        n_hits = np.zeros((len(self.tenants), *hit.shape[1:]))
        np.add.at(n_hits, self.query, hit)
        n_positives = np.bincount(self.query, minlength=len(self.tenants))
        return np.asarray(n_hits / n_positives.reshape(-1, *[1] * (hit.ndim - 1)))


def audit(tables: Tables, output: Output, settings: EvaluateSettings, *, depth: int, seed: int) -> None:
    """Write each retriever's recall at search depth, the pool's recall without it, and the overlap of every two
    retrievers.

    Means are over queries with a positive, with 95 % bootstrap intervals over queries. If there are several tenants,
    rows with tenant null cover all of them.

    Args:
        tables: must contain `rankings` and `qrels`.
        output: receives `audit_retrievers` and `audit_overlap`; nothing is written without a positive.
        settings: number of resamples.
        depth: pool depth K: the pool has the top K of each retriever.
        seed: random seed of the resampling.
    """
    retrievers = tables.sql("SELECT DISTINCT retriever FROM rankings ORDER BY retriever")["retriever"].to_pylist()
    positives = PositiveRanks(tables.sql(POSITIVE_RANKS_SQL), retrievers)
    output.facts["caveat"] = RECALL_CAVEAT
    if not positives.ranks.size:
        return
    all_queries = np.ones(len(positives.tenants), bool)
    scopes: list[tuple[str | None, NDArray[np.bool_]]] = [(None, all_queries)]
    tenants = sorted(set(positives.tenants))
    if len(tenants) > 1:
        scopes += [(tenant, positives.tenants == tenant) for tenant in tenants]
    rows = [
        row
        for tenant, in_scope in scopes
        for row in _retriever_rows(positives, tenant, in_scope, depth, settings.n_resamples, seed)
    ]
    output.write("audit_retrievers", pa.Table.from_pylist(rows, schema=AUDIT_RETRIEVERS.schema))
    output.write("audit_overlap", pa.Table.from_pylist(_overlap(positives, depth), schema=AUDIT_OVERLAP.schema))


def _retriever_rows(
    positives: PositiveRanks, tenant: str | None, in_scope: NDArray[np.bool_], depth: int, resamples: int, seed: int
) -> list[dict[str, object]]:
    """Compute a row of `audit_retrievers` per retriever, over the queries `in_scope`, shape (n_queries,)."""
    in_top_k = positives.ranks <= depth
    n_retrievers = in_top_k.sum(axis=1, keepdims=True)
    retrieved_by_others = n_retrievers > in_top_k
    recall = positives.recall(positives.ranks < NOT_RETRIEVED)[in_scope]
    recall_at_depth = positives.recall(in_top_k)[in_scope].mean(axis=0)
    leave_one_out = positives.recall(retrieved_by_others)[in_scope]
    positive_in_scope = in_scope[positives.query]
    unique = (in_top_k & (n_retrievers == 1))[positive_in_scope].sum(axis=0)
    recall_low, recall_high = _interval_of_mean(recall, resamples, seed)
    leave_one_out_low, leave_one_out_high = _interval_of_mean(leave_one_out, resamples, seed)
    return [
        {
            "tenant": tenant,
            "retriever": retriever,
            "recall": recall[:, column].mean(),
            "recall_low": recall_low[column],
            "recall_high": recall_high[column],
            "recall_at_depth": recall_at_depth[column],
            "leave_one_out": leave_one_out[:, column].mean(),
            "leave_one_out_low": leave_one_out_low[column],
            "leave_one_out_high": leave_one_out_high[column],
            "unique_positives": unique[column],
            "positives": positive_in_scope.sum(),
            "queries": in_scope.sum(),
        }
        for column, retriever in enumerate(positives.retrievers)
    ]


def _interval_of_mean(
    values: NDArray[np.float64], resamples: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the bootstrap interval of the mean over rows; each end of shape (n_columns,)."""
    return interval(values, lambda sums: sums / len(values), resamples, seed)


def _overlap(positives: PositiveRanks, depth: int) -> list[dict[str, object]]:
    """Compute rows of `audit_overlap`: positives that both retrievers have in their top K, for every ordered pair."""
    in_top_k = (positives.ranks <= depth).astype(np.int64)
    shared = in_top_k.T @ in_top_k
    sizes = np.diag(shared)
    rows = []
    for i, retriever in enumerate(positives.retrievers):
        for j, other in enumerate(positives.retrievers):
            union = int(sizes[i] + sizes[j] - shared[i, j])
            jaccard = float(shared[i, j]) / union if union else None
            rows.append(
                {"retriever": retriever, "other": other, "shared": shared[i, j], "found": sizes[i], "jaccard": jaccard}
            )
    return rows


def _integer_codes(table: pa.Table, columns: list[str]) -> NDArray[np.int64]:
    """Number the distinct combinations of columns by first occurrence, shape (n_rows,)."""
    joined = pc.binary_join_element_wise(*[table[name].cast(pa.string()) for name in columns], "\x00")
    encoded = pa.chunked_array([joined]) if isinstance(joined, pa.Array) else joined
    return np.asarray(encoded.combine_chunks().dictionary_encode().indices.to_numpy(), np.int64)
