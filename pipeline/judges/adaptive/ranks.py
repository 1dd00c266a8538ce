"""What the retrievers say of each pair, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.artifacts import Tables

K = 60
"""Of reciprocal-rank fusion (Cormack, Clarke & Büttcher 2009)."""

_POOL = """
    SELECT fused_score, best_rank, len(retrievers) AS found_by FROM pool
    WHERE tenant = $tenant ORDER BY query_id, chunk_id
"""

_NAMES = "SELECT DISTINCT retriever FROM rankings WHERE tenant = $tenant ORDER BY retriever"

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
class Ranked:
    """Features of the pairs of a tenant, by query_id, then chunk_id.

    Attributes:
        features: for each retriever reciprocal rank, logarithm of the rank, and score between the query's lowest and
            highest (0 to 1); then fused score, retrievers that found the pair, logarithms of best and of fused rank.
        scores: columns of `features` that hold the retrievers' scores.
        place: fused rank within the query, from 1, ties by chunk_id, shape (n_pairs,).
    """

    features: _Floats
    scores: _Ints
    place: _Ints


def rank_features(tables: Tables, tenant: str, starts: _Ints) -> Ranked:
    """Read them off `pool` and `rankings`.

    Args:
        starts: where each query's pairs begin, and the end, shape (n_queries + 1,).
    """
    with tables.connect() as connection:
        pool = connection.sql(_POOL, params={"tenant": tenant}).to_arrow_table()
        names = connection.sql(_NAMES, params={"tenant": tenant}).fetchall()
        columns: list[_Floats] = []
        for (name,) in names:
            found = connection.sql(_RANKINGS, params={"tenant": tenant, "retriever": name}).to_arrow_table()
            pair = found["pair"].to_numpy()
            columns += _of_retriever(pair, found["rank"].to_numpy(), found["score"].to_numpy(), starts)
    fused = pool["fused_score"].to_numpy()
    place = _places(fused, starts)
    columns += [fused, pool["found_by"].to_numpy(), np.log(pool["best_rank"].to_numpy()), np.log(place)]
    scores = np.arange(2, 3 * len(names), 3)
    return Ranked(np.stack(columns, axis=1, dtype=np.float32, casting="same_kind"), scores, place)


def _of_retriever(pair: _Ints, rank: NDArray[np.int32], score: _Floats, starts: _Ints) -> list[_Floats]:
    """Its three columns; a pair that is not in its list ranks one below the longest list and scores lowest."""
    n_pairs, missing = int(starts[-1]), int(rank.max(initial=0)) + 1
    ranks = np.full(n_pairs, missing, np.float32)
    ranks[pair] = rank
    inverse = np.zeros(n_pairs, np.float32)
    inverse[pair] = (K + 1) / (K + rank)
    return [inverse, np.log(ranks), _scaled(pair, score, starts)]


def _scaled(pair: _Ints, score: _Floats, starts: _Ints) -> _Floats:
    """Scores between the lowest and the highest that a query's pairs have, 0 to 1."""
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
