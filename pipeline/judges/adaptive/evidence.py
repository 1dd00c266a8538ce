"""What is known of a tenant's pool before anyone judges it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.artifacts import Tables
from pipeline.corpora import TenantChunks
from pipeline.encoders.linear import log_counts, unit_sparse_rows
from pipeline.judges.adaptive.ranks import rank_features
from pipeline.judges.embedded import EmbeddedJudge, Features
from pipeline.judges.pairs import PoolPairs
from pipeline.terms import TermSpace
from schemas.settings import JudgeSettings

FIRST_FINDS = 10
"""Chunks, best fused rank first, whose terms stand for a query when it is compared with another."""
NEIGHBOURS = 20
LEAST_ALIKE = 0.2

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Evidence:
    """One tenant's pairs, by query_id, then chunk_id; queries are numbered in that order.

    Attributes:
        starts: the pairs of query i are `starts[i]` to `starts[i + 1]`, shape (n_queries + 1,).
        place: fused rank of each pair within its query, from 1, shape (n_pairs,).
        features: standardized over the pool, shape (n_pairs, n_features): see `rank_features`, and the four features
            of the embedded judge.
        near: columns of `features` in which a query's own pairs are compared.
        terms: tf-idf of each pair's chunk, rows of length 1, shape (n_pairs, n_terms).
        alike: how far two queries find the same terms, 0 on the diagonal, shape (n_queries, n_queries).
    """

    starts: _Ints
    place: _Ints
    features: _Floats
    near: _Ints
    terms: sparse.csr_matrix
    alike: sparse.csr_matrix

    @property
    def n_pairs(self) -> int:
        """Pairs of the pool."""
        return len(self.place)


def gather(tables: Tables, chunks: TenantChunks, pairs: PoolPairs) -> Evidence:
    """The evidence of a tenant's pool.

    Args:
        tables: holds `pool` and `rankings`.
        chunks: the tenant's chunks.
        pairs: its pairs.
    """
    space = TermSpace(chunks.batches())
    ranked = rank_features(tables, chunks.tenant, pairs.starts)
    embedded = EmbeddedJudge(space, JudgeSettings())
    said = np.concatenate([_columns(embedded.features(block)) for block in pairs.blocks()])
    near = np.concatenate([ranked.scores, ranked.features.shape[1] + np.arange(said.shape[1])])
    terms = unit_sparse_rows(log_counts(space.counts, space.idf))[pairs.rows]
    features = _standardized(np.hstack([ranked.features, said]))
    return Evidence(pairs.starts, ranked.place, features, near, terms, _alike(terms, pairs.starts, ranked.place))


def _columns(features: Features) -> _Floats:
    return np.stack([features.coverage, features.window, features.bm25, features.meaning], axis=1, dtype=np.float32)


def _standardized(features: _Floats) -> _Floats:
    spread = features.std(axis=0)
    return np.asarray((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1), np.float32)


def _alike(terms: sparse.csr_matrix, starts: _Ints, place: _Ints) -> sparse.csr_matrix:
    """Cosine of the mean of the first finds, for each query's nearest neighbours."""
    query = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    first = np.flatnonzero(place <= FIRST_FINDS)
    chosen = sparse.csr_matrix((np.ones(len(first)), (query[first], first)), shape=(len(starts) - 1, len(place)))
    means = unit_sparse_rows(chosen @ terms)
    rows = [_nearest(means[number], means, number) for number in range(means.shape[0])]
    return sparse.vstack(rows, format="csr")


def _nearest(one: sparse.csr_matrix, means: sparse.csr_matrix, number: int) -> sparse.csr_matrix:
    cosine = np.asarray((means @ one.T).todense()).ravel()
    cosine[number] = 0
    nearest = np.argsort(-np.round(cosine, 6), kind="stable")[:NEIGHBOURS]
    nearest = np.sort(nearest[cosine[nearest] > LEAST_ALIKE])
    columns = (cosine[nearest] - LEAST_ALIKE, (np.zeros(len(nearest), np.int64), nearest))
    return sparse.csr_matrix(columns, shape=(1, means.shape[0]))
