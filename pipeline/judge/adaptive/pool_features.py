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
from darklode.pipeline.retrieve.pool import RRF_K
from darklode.schemas.pooling import RETRIEVERS

if TYPE_CHECKING:
    from scipy import sparse

_POOL_SQL = """
    SELECT fused_score, coalesce(best_rank, 1 + max(best_rank) OVER ()) AS best_rank, len(retrievers) AS n_retrievers
    FROM pool WHERE tenant = $tenant ORDER BY query_id, chunk_id
"""

RETRIEVERS_SQL = "SELECT DISTINCT retriever FROM rankings WHERE tenant = $tenant ORDER BY retriever"

_RANKINGS_OF_RETRIEVER_SQL = """
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
    """Rank features of a tenant's pairs; rows are sorted by query_id, then chunk_id.

    Attributes:
        features: three columns per retriever (reciprocal rank, log rank, min-max scaled score), then fused score,
            number of retrievers that found the pair, log best rank, log fused rank; then two columns per retriever
            that is not embedded, such as an encoder (score, and score standardized within the query); shape
            (n_pairs, n_features).
        scores: indices of the columns of `features` that hold the retrievers' scores, shape (n_retrievers,).
        fused_rank: rank by fused score within the query, from 1, ties by chunk_id, shape (n_pairs,).
    """

    features: _Floats
    scores: _Ints
    fused_rank: _Ints


def rank_features(tables: Tables, tenant: str, starts: _Ints) -> RankFeatures:
    """Compute the rank features of a tenant's pairs.

    Args:
        tables: must contain `pool` and `rankings`.
        tenant: tenant whose pairs are read.
        starts: row offsets of the queries: query i has the pairs `starts[i]` to `starts[i + 1]` (excluded), shape
            (n_queries + 1,).
    """
    with tables.connect() as connection:
        pool = connection.sql(_POOL_SQL, params={"tenant": tenant}).to_arrow_table()
        retrievers = connection.sql(RETRIEVERS_SQL, params={"tenant": tenant}).fetchall()
        columns: list[_Floats] = []
        absolute_columns: list[_Floats] = []
        for (retriever,) in retrievers:
            rankings = connection.sql(
                _RANKINGS_OF_RETRIEVER_SQL, params={"tenant": tenant, "retriever": retriever}
            ).to_arrow_table()
            pair, score = rankings["pair"].to_numpy(), rankings["score"].to_numpy()
            columns += _of_retriever(pair, rankings["rank"].to_numpy(), score, starts)
            if retriever not in RETRIEVERS.own_kinds():
                absolute_columns += _absolute_scores(pair, score, starts)
    fused = pool["fused_score"].to_numpy()
    fused_rank = _ranks_within_queries(fused, starts)
    columns += [fused, pool["n_retrievers"].to_numpy(), np.log(pool["best_rank"].to_numpy()), np.log(fused_rank)]
    columns += absolute_columns
    scores = np.arange(2, 3 * len(retrievers), 3)  # the third of each retriever's three columns
    return RankFeatures(np.stack(columns, axis=1, dtype=np.float32, casting="same_kind"), scores, fused_rank)


def _of_retriever(pair: _Ints, rank: NDArray[np.int32], score: _Floats, starts: _Ints) -> list[_Floats]:
    """Compute a retriever's three columns, each of shape (n_pairs,).

    A pair that it did not retrieve gets the worst rank plus one, and 0 as reciprocal rank and as score.
    """
    n_pairs = int(starts[-1])
    missing_rank = int(rank.max(initial=0)) + 1
    ranks = np.full(n_pairs, missing_rank, np.float32)
    ranks[pair] = rank
    reciprocal_rank = np.zeros(n_pairs, np.float32)
    reciprocal_rank[pair] = (RRF_K + 1) / (RRF_K + rank)
    return [reciprocal_rank, np.log(ranks), _scale_scores(pair, score, starts)]


def _scale_scores(pair: _Ints, score: _Floats, starts: _Ints) -> _Floats:
    """Scale scores to 0 to 1 within each query, shape (n_pairs,); 0 for pairs that were not retrieved."""
    query = np.searchsorted(starts, pair, side="right") - 1
    low = np.full(len(starts) - 1, np.inf)
    high = np.full(len(starts) - 1, -np.inf)
    np.minimum.at(low, query, score)
    np.maximum.at(high, query, score)
    spread = np.where(high > low, high - low, 1)
    scaled = np.zeros(int(starts[-1]), np.float32)
    scaled[pair] = (score - low[query]) / spread[query]
    return scaled


def _absolute_scores(pair: _Ints, score: _Floats, starts: _Ints) -> list[_Floats]:
    """Scores, and the same standardized within each query, each of shape (n_pairs,).

    For an encoder's cosine, which means the same for every query. A pair that was not retrieved gets the lowest score
    of its query.
    """
    query = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    lowest = np.full(len(starts) - 1, np.inf)
    np.minimum.at(lowest, query[pair], score)
    absolute = np.where(np.isfinite(lowest), lowest, 0)[query]
    absolute[pair] = score
    n_pairs = np.maximum(np.diff(starts), 1)
    mean = np.bincount(query, absolute, len(n_pairs)) / n_pairs
    deviation = np.sqrt(np.bincount(query, (absolute - mean[query]) ** 2, len(n_pairs)) / n_pairs)
    standardized = (absolute - mean[query]) / np.where(deviation > 0, deviation, 1)[query]
    return [absolute.astype(np.float32), standardized.astype(np.float32)]


def _ranks_within_queries(fused: _Floats, starts: _Ints) -> _Ints:
    """Rank the pairs of each query by descending score, from 1, shape (n_pairs,)."""
    query = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((-fused, query))  # stable: ties stay by chunk_id
    ranks = np.empty(len(fused), np.int64)
    ranks[order] = np.arange(len(fused)) - starts[query] + 1
    return ranks


TOP_CHUNKS = 10
"""Number of top-fused chunks whose terms represent a query when queries are compared."""
MAX_NEIGHBORS = 20
"""Maximum number of similar queries whose term weights a query uses; bounds the size of the similarity matrix."""
MIN_SIMILARITY = 0.2
"""Minimum cosine of neighboring queries; it is subtracted from their cosines, so that weights fade out to 0 there."""


@dataclass(frozen=True)
class Evidence:
    """Features of one tenant's pairs, sorted by query_id, then chunk_id; queries are numbered in that order.

    Attributes:
        starts: row offsets of the queries: query i has the pairs `starts[i]` to `starts[i + 1]` (excluded), shape
            (n_queries + 1,).
        fused_rank: fused rank of each pair within its query, from 1, shape (n_pairs,).
        features: features standardized over the pool, shape (n_pairs, n_features): those of `RankFeatures`, then the
            four features of the embedded judge.
        kernel_columns: indices of the columns of `features` that the learner's kernels use.
        terms: tf-idf of each pair's chunk, rows of unit length, shape (n_pairs, n_terms).
        similarity: similarity of queries by the terms of their top chunks, 0 on the diagonal, shape
            (n_queries, n_queries).
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
    """Compute all features of a tenant's pool.

    Args:
        tables: must contain `pool` and `rankings`.
        chunks: the tenant's chunks.
        pairs: the tenant's pairs, in the order of `Evidence`.
    """
    term_space = TermSpace(chunks.batches())
    ranks = rank_features(tables, chunks.tenant, pairs.starts)
    embedded_judge = EmbeddedJudge(term_space)
    embedded_features = np.concatenate([_columns(embedded_judge.features(block)) for block in pairs.blocks()])
    kernel_columns = np.concatenate([ranks.scores, ranks.features.shape[1] + np.arange(embedded_features.shape[1])])
    terms = unit_sparse_rows(log_counts(term_space.counts, term_space.idf))[pairs.rows]
    features = _standardize(np.hstack([ranks.features, embedded_features]))
    return Evidence(
        pairs.starts,
        ranks.fused_rank,
        features,
        kernel_columns,
        terms,
        _text_similarity(terms, pairs.starts, ranks.fused_rank),
    )


def _columns(features: Features) -> _Floats:
    """Stack the embedded judge's features, shape (n_pairs, 4)."""
    return np.stack([features.coverage, features.window, features.bm25, features.meaning], axis=1, dtype=np.float32)


def _standardize(features: _Floats) -> _Floats:
    """Scale each column to mean 0 and standard deviation 1; a constant column becomes 0."""
    spread = features.std(axis=0)
    return np.asarray((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1), np.float32)


def _text_similarity(terms: sparse.csr_matrix, starts: _Ints, fused_rank: _Ints) -> sparse.csr_matrix:
    """Compute the similarity of each query to its nearest neighbors, shape (n_queries, n_queries).

    It is the cosine of the mean tf-idf vectors of the queries' top chunks, minus `MIN_SIMILARITY`.
    """
    from scipy import sparse

    query = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    top_pairs = np.flatnonzero(fused_rank <= TOP_CHUNKS)
    selection = sparse.csr_matrix(
        (np.ones(len(top_pairs)), (query[top_pairs], top_pairs)), shape=(len(starts) - 1, len(fused_rank))
    )
    means = unit_sparse_rows(selection @ terms)
    rows = [_nearest(means[position], means, position) for position in range(means.shape[0])]
    return sparse.vstack(rows, format="csr")


def _nearest(terms: sparse.csr_matrix, means: sparse.csr_matrix, number: int) -> sparse.csr_matrix:
    from scipy import sparse

    cosine = np.asarray((means @ terms.T).todense()).ravel()
    cosine[number] = 0
    nearest = np.argsort(-np.round(cosine, 6), kind="stable")[:MAX_NEIGHBORS]
    nearest = np.sort(nearest[cosine[nearest] > MIN_SIMILARITY])
    columns = (cosine[nearest] - MIN_SIMILARITY, (np.zeros(len(nearest), np.int64), nearest))
    return sparse.csr_matrix(columns, shape=(1, means.shape[0]))
