"""Features of a tenant's pool before judging: retrieval ranks and scores, and features of the embedded judge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.judge.embedded import EmbeddedJudge, Features
from darklode.pipeline.judge.pairs import PoolPairs
from darklode.pipeline.retrieve.encoders.lsa import log_counts, unit_sparse_rows

if TYPE_CHECKING:
    from scipy import sparse

K = 60
"""Constant of reciprocal rank fusion (Cormack, Clarke & Büttcher 2009)."""

_POOL = """
    SELECT fused_score, best_rank, len(retrievers) AS found_by FROM pool
    WHERE tenant = $tenant ORDER BY query_id, chunk_id
"""

RETRIEVERS = "SELECT DISTINCT retriever FROM rankings WHERE tenant = $tenant ORDER BY retriever"

_RANKINGS = """
    WITH pairs AS (
        SELECT query_id, chunk_id, row_number() OVER (ORDER BY query_id, chunk_id) - 1 AS pair
        FROM pool WHERE tenant = $tenant
    )
    SELECT pair, r.rank, r.score FROM rankings r JOIN pairs USING (query_id, chunk_id)
    WHERE r.tenant = $tenant AND r.retriever = $retriever ORDER BY pair
"""

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class RankFeatures:
    """Features of the pairs of a tenant, by query_id, then chunk_id.

    Attributes:
        features: per retriever: reciprocal rank, log rank, and min-max scaled score; then fused score, number of
            retrievers, log best rank, log fused rank.
        scores: columns of `features` that hold the retrievers' scores.
        fused_rank: fused rank within the query, from 1, ties by chunk_id, shape (n_pairs,).
    """

    features: _Floats
    scores: _Ints
    fused_rank: _Ints


def rank_features(tables: Tables, tenant: str, starts: _Ints) -> RankFeatures:
    """Compute rank features from `pool` and `rankings`.

    Args:
        tables: `pool` and `rankings`.
        tenant: the tenant.
        starts: the i-th query's pairs are `starts[i]` to `starts[i + 1]`, shape (n_queries + 1,).
    """
    with tables.connect() as connection:
        pool = connection.sql(_POOL, params={"tenant": tenant}).to_arrow_table()
        names = connection.sql(RETRIEVERS, params={"tenant": tenant}).fetchall()
        columns: list[_Floats] = []
        for (name,) in names:
            rankings = connection.sql(_RANKINGS, params={"tenant": tenant, "retriever": name}).to_arrow_table()
            pair = rankings["pair"].to_numpy()
            columns += _of_retriever(pair, rankings["rank"].to_numpy(), rankings["score"].to_numpy(), starts)
    fused = pool["fused_score"].to_numpy()
    fused_rank = _places(fused, starts)
    columns += [fused, pool["found_by"].to_numpy(), np.log(pool["best_rank"].to_numpy()), np.log(fused_rank)]
    scores = np.arange(2, 3 * len(names), 3)
    return RankFeatures(np.stack(columns, axis=1, dtype=np.float32, casting="same_kind"), scores, fused_rank)


def _of_retriever(pair: _Ints, rank: NDArray[np.int32], score: _Floats, starts: _Ints) -> list[_Floats]:
    """Three columns of a retriever; a pair that it did not retrieve gets the worst rank plus one and score 0."""
    n_pairs, missing = int(starts[-1]), int(rank.max(initial=0)) + 1
    ranks = np.full(n_pairs, missing, np.float32)
    ranks[pair] = rank
    inverse = np.zeros(n_pairs, np.float32)
    inverse[pair] = (K + 1) / (K + rank)
    return [inverse, np.log(ranks), _scale_scores(pair, score, starts)]


def _scale_scores(pair: _Ints, score: _Floats, starts: _Ints) -> _Floats:
    """Scores scaled to 0 to 1 within each query."""
    query = np.searchsorted(starts, pair, side="right") - 1
    low, high = np.full(len(starts) - 1, np.inf), np.full(len(starts) - 1, -np.inf)
    np.minimum.at(low, query, score)
    np.maximum.at(high, query, score)
    spread = np.where(high > low, high - low, 1)
    scaled = np.zeros(int(starts[-1]), np.float32)
    scaled[pair] = (score - low[query]) / spread[query]
    return scaled


def _places(fused: _Floats, starts: _Ints) -> _Ints:
    query = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((-fused, query))  # stable: ties stay by chunk_id
    places = np.empty(len(fused), np.int64)
    places[order] = np.arange(len(fused)) - starts[query] + 1
    return places


TOP_CHUNKS = 10
"""Number of top-fused chunks whose terms represent a query when queries are compared."""
NEIGHBORS = 20
MIN_SIMILARITY = 0.2  # minimum cosine of neighboring queries


@dataclass(frozen=True)
class Evidence:
    """One tenant's pairs, by query_id, then chunk_id; queries are numbered in that order.

    Attributes:
        starts: the pairs of query i are `starts[i]` to `starts[i + 1]`, shape (n_queries + 1,).
        fused_rank: fused rank of each pair within its query, from 1, shape (n_pairs,).
        features: standardized over the pool, shape (n_pairs, n_features): see `rank_features`, and the four features of
            the embedded judge.
        kernel_columns: columns of `features` used in the kernels.
        terms: tf-idf of each pair's chunk, unit rows, shape (n_pairs, n_terms).
        similarity: of queries by the terms of their top chunks, 0 on the diagonal, shape (n_queries, n_queries).
    """

    starts: _Ints
    fused_rank: _Ints
    features: _Floats
    kernel_columns: _Ints
    terms: sparse.csr_matrix
    similarity: sparse.csr_matrix

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.fused_rank)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.starts) - 1

    @cached_property
    def query(self) -> _Ints:
        """Query index of each pair, shape (n_pairs,)."""
        return np.repeat(np.arange(self.n_queries), np.diff(self.starts))


def gather_evidence(tables: Tables, chunks: TenantChunks, pairs: PoolPairs) -> Evidence:
    """Compute the evidence of a tenant's pool.

    Args:
        tables: `pool` and `rankings`.
        chunks: the tenant's chunks.
        pairs: the tenant's pairs.
    """
    space = TermSpace(chunks.batches())
    ranked = rank_features(tables, chunks.tenant, pairs.starts)
    embedded = EmbeddedJudge(space)
    embedded_features = np.concatenate([_columns(embedded.features(block)) for block in pairs.blocks()])
    kernel_columns = np.concatenate([ranked.scores, ranked.features.shape[1] + np.arange(embedded_features.shape[1])])
    terms = unit_sparse_rows(log_counts(space.counts, space.idf))[pairs.rows]
    features = _standardize(np.hstack([ranked.features, embedded_features]))
    return Evidence(
        pairs.starts,
        ranked.fused_rank,
        features,
        kernel_columns,
        terms,
        _text_similarity(terms, pairs.starts, ranked.fused_rank),
    )


def _columns(features: Features) -> _Floats:
    return np.stack([features.coverage, features.window, features.bm25, features.meaning], axis=1, dtype=np.float32)


def _standardize(features: _Floats) -> _Floats:
    spread = features.std(axis=0)
    return np.asarray((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1), np.float32)


def _text_similarity(terms: sparse.csr_matrix, starts: _Ints, fused_rank: _Ints) -> sparse.csr_matrix:
    """Cosine of the mean tf-idf of the top chunks, for each query's nearest neighbors."""
    from scipy import sparse

    query = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    first = np.flatnonzero(fused_rank <= TOP_CHUNKS)
    chosen = sparse.csr_matrix((np.ones(len(first)), (query[first], first)), shape=(len(starts) - 1, len(fused_rank)))
    means = unit_sparse_rows(chosen @ terms)
    rows = [_nearest(means[number], means, number) for number in range(means.shape[0])]
    return sparse.vstack(rows, format="csr")


def _nearest(terms: sparse.csr_matrix, means: sparse.csr_matrix, number: int) -> sparse.csr_matrix:
    from scipy import sparse

    cosine = np.asarray((means @ terms.T).todense()).ravel()
    cosine[number] = 0
    nearest = np.argsort(-np.round(cosine, 6), kind="stable")[:NEIGHBORS]
    nearest = np.sort(nearest[cosine[nearest] > MIN_SIMILARITY])
    columns = (cosine[nearest] - MIN_SIMILARITY, (np.zeros(len(nearest), np.int64), nearest))
    return sparse.csr_matrix(columns, shape=(1, means.shape[0]))
