"""Contrastive entropy of labelled pairs (Scaling Laws for Dense Retrieval, Eq. 6): negative log of the positive's share
of the softmax over it and W random texts that are unlabelled for the query.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.train.data.labels import Labels
from darklode.pipeline.train.data.vectors import FrozenIndex

NEGATIVES = 256
"""W, the number of negatives."""

BLOCK = 64
"""Pairs per block; each needs W vectors in memory."""


@dataclass(frozen=True)
class SampledNegatives:
    """Pairs with the sampled negatives of their queries.

    Attributes:
        query: index of each pair's query, ascending, shape (n_pairs,).
        position: of the positive.
        negatives: positions, shape (n_queries, W); −1 if there are fewer.
    """

    query: Ints
    position: Ints
    negatives: Ints

    @property
    def counts(self) -> Ints:
        """Number of negatives of each pair."""
        return np.asarray((self.negatives[self.query] >= 0).sum(axis=1))

    def entropy(self, frozen: FrozenIndex, vectors: Floats, temperature: float) -> NDArray[np.float64]:
        """Entropy of each pair in nats; log(1 + W) if all scores are equal.

        Args:
            frozen: text vectors.
            vectors: unit vectors of the queries, shape (n_queries, dimensions).
            temperature: of the softmax.
        """
        out = np.empty(len(self.query))
        for start in range(0, len(self.query), BLOCK):
            rows = slice(start, start + BLOCK)
            query, negatives = vectors[self.query[rows]], self.negatives[self.query[rows]]
            negative_vectors = frozen.take(np.maximum(negatives, 0).reshape(-1)).reshape(*negatives.shape, -1)
            scores = np.einsum("qd,qwd->qw", query, negative_vectors).astype(np.float64) / temperature
            scores[negatives < 0] = -np.inf
            own = np.einsum("qd,qd->q", query, frozen.take(self.position[rows])).astype(np.float64) / temperature
            all_scores = np.column_stack([own, scores])
            max_score = all_scores.max(axis=1)
            out[rows] = np.log(np.exp(all_scores - max_score[:, None]).sum(axis=1)) + max_score - own
        return out


def sample_negatives(
    ids: list[str], pairs: tuple[Ints, Ints], labelled: Labels, n_positions: int, seed: int
) -> SampledNegatives:
    """Sample negatives for each query among the texts that are unlabelled for it.

    A query's sample depends only on the seed, its id and the texts: adding another query does not change it.

    Args:
        ids: of the queries.
        pairs: query index and position of the positive, of each pair.
        labelled: all labels of the queries, positive or negative.
        n_positions: number of texts.
        seed: of the sampling.
    """
    order = np.lexsort((pairs[1], pairs[0]))
    turned = np.random.default_rng([seed, n_positions]).permutation(n_positions)
    starts = np.array([_start(seed, query_id) % n_positions for query_id in ids], np.int64)
    low, high = (np.searchsorted(labelled.keys, (np.arange(len(ids)) + more) * n_positions) for more in (0, 1))
    width = min(NEGATIVES + int((high - low).max(initial=0)), n_positions)
    negatives = np.full((len(ids), NEGATIVES), -1, np.int64)
    for start in range(0, len(ids), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(ids)))
        candidates = turned[(starts[rows, None] + np.arange(width)) % n_positions]
        free = ~labelled.contains(rows[:, None], candidates)
        slot = np.cumsum(free, axis=1) - 1
        query, column = np.nonzero(free & (slot < NEGATIVES))
        negatives[rows[query], slot[query, column]] = candidates[query, column]
    return SampledNegatives(pairs[0][order], pairs[1][order], negatives)


def _start(seed: int, query_id: str) -> int:
    return int(hashlib.sha256(f"{seed} {query_id}".encode()).hexdigest()[:15], 16)
