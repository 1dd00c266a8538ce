"""Fusion of rankings: reciprocal rank fusion, or the weighted sum of normalized scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.types import Doubles
from darklode.pipeline.retrieve.pool import RRF_K
from darklode.pipeline.retrieve.retrievers.port import Hits, Recall, Retriever
from darklode.pipeline.retrieve.retrievers.topk import best_hits, rank_keys

FusionMethod = Literal["rrf", "weighted"]

_DECIMALS = 12  # as in the stage `pool`: sums of the same terms in another order are equal


def reciprocal_rank(rank: NDArray[np.integer]) -> Doubles:
    """1 / (k + rank) of each rank, with k = 60 (Cormack, Clarke and Büttcher 2009)."""
    return 1 / (RRF_K + rank.astype(np.float64))


def min_max(scores: Doubles, low: Doubles, high: Doubles) -> Doubles:
    """Scores scaled linearly: `high` becomes 1, `low` 0; 1 if they are equal."""
    is_spread = high > low
    return np.where(is_spread, (scores - low) / np.where(is_spread, high - low, 1), 1.0)


def weighted_scores(
    query: NDArray[np.int64], candidates: Doubles, scores: NDArray[np.floating], weight: float
) -> Doubles:
    """(1 − weight) · candidates + weight · scores, each scaled to 0 … 1 within its query.

    Args:
        query: number of each candidate's query, ascending, shape (n,).
        candidates: scores that found the candidates, same shape.
        scores: scores of a reranker, same shape.
        weight: 0 to 1.
    """
    return (1 - weight) * _scaled(query, candidates) + weight * _scaled(query, scores.astype(np.float64))


def _scaled(query: NDArray[np.int64], scores: Doubles) -> Doubles:
    """Scores by `min_max` within each query."""
    if not len(query):
        return scores
    starts = np.flatnonzero(np.diff(query, prepend=query[0] - 1))
    sizes = np.diff([*starts, len(query)])
    low, high = (np.repeat(reduce.reduceat(scores, starts), sizes) for reduce in (np.minimum, np.maximum))
    return min_max(scores, low, high)


def reciprocal_ranks(hits: Hits) -> Doubles:
    """`reciprocal_rank` of each hit, shape as `hits.rows`; 0 where there is none."""
    return np.where(hits.rows >= 0, reciprocal_rank(np.arange(1, hits.rows.shape[1] + 1)), 0.0)


def min_max_scores(hits: Hits) -> Doubles:
    """Scores of each query's hits by `min_max`: its best is 1, its worst 0; all 1 if they are equal.

    Returns:
        Shape as `hits.rows`; 0 where there is no hit.
    """
    is_hit, scores = hits.rows >= 0, hits.scores.astype(np.float64)
    low = np.where(is_hit, scores, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    high = np.where(is_hit, scores, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):  # queries without a hit
        return np.where(is_hit, min_max(scores, low, high), 0.0)


def fuse(lists: Sequence[Hits], weights: Sequence[float], method: FusionMethod, depth: int, n_chunks: int) -> Hits:
    """Fuse rankings of the same queries.

    A chunk's score is the weighted sum of its reciprocal ranks, or of its normalized scores, in the lists. A list that
    does not have the chunk adds 0 for it; with normalized scores that is as much as for the last hit of the list.

    Args:
        lists: hits of each retriever, equal numbers of queries.
        weights: one per list.
        method: rrf, or weighted: min-max normalization per query and list.
        depth: number of hits per query; equal scores rank by ascending row.
        n_chunks: number of chunks.
    """
    n_queries, k = len(lists[0].rows), min(depth, n_chunks)
    points = reciprocal_ranks if method == "rrf" else min_max_scores
    rows = np.hstack([hits.rows for hits in lists])
    values = np.hstack([weight * points(hits) for weight, hits in zip(weights, lists, strict=True)])
    query, column = np.nonzero(rows >= 0)
    candidates, inverse = np.unique(query * n_chunks + rows[query, column], return_inverse=True)
    sums = np.bincount(inverse, values[query, column], len(candidates)).round(_DECIMALS)
    query, row = np.divmod(candidates, n_chunks)
    return best_hits(query, rank_keys(sums.astype(np.float32), row), n_queries, k)


class Hybrid(Retriever):
    """Fused rankings of several retrievers.

    Args:
        name: the retriever's name in rankings.
        members: retrievers on the same chunks.
        weights: one per member.
        method: see `fuse`.
        depth: length of the members' lists.
        n_chunks: number of chunks.
    """

    def __init__(
        self,
        name: str,
        members: Sequence[Retriever],
        weights: Sequence[float],
        method: FusionMethod,
        depth: int,
        n_chunks: int,
    ) -> None:
        self.name = name
        self._members, self._weights, self._method = members, weights, method
        self._depth, self._n_chunks = depth, n_chunks

    @property
    def recall(self) -> Recall | None:
        """See `Retriever`: the lowest one of the members whose search is approximate."""
        recalls = [recall for member in self._members if (recall := member.recall)]
        return min(recalls, key=lambda recall: recall.share, default=None)

    @property
    def unused(self) -> pa.Table:
        """See `Retriever`: what the members could not use."""
        return pa.concat_tables([member.unused for member in self._members])

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. A query without hits of any member has none."""
        lists = [member.search(queries, self._depth) for member in self._members]
        return fuse(lists, self._weights, self._method, depth, self._n_chunks)
