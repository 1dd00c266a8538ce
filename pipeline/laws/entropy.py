"""Contrastive entropy of labelled pairs (Scaling Laws for Dense Retrieval, Eq. 6): negative log of the positive's share
of the softmax over it and W random texts that are unlabelled for the query.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.laws.points import N_NEGATIVES
from darklode.pipeline.train.data.labels import Labels
from darklode.pipeline.train.data.vectors import FrozenIndex

ROWS_PER_BLOCK = 64
"""Pairs or queries per block: memory against speed; each pair needs W vectors in memory."""


@dataclass(frozen=True)
class SampledNegatives:
    """Pairs of a query and a positive text, with the sampled negatives of each query.

    A *position* is a row of the frozen text vectors.

    Attributes:
        query: index of each pair's query, ascending, shape (n_pairs,).
        position: position of each pair's positive, shape (n_pairs,).
        negatives: positions of each query's negatives, shape (n_queries, W); −1 where fewer texts are unlabelled.
    """

    query: Ints
    position: Ints
    negatives: Ints

    @property
    def counts(self) -> Ints:
        """Number of negatives of each pair, shape (n_pairs,)."""
        return np.asarray((self.negatives[self.query] >= 0).sum(axis=1))

    def entropy(self, frozen: FrozenIndex, vectors: Floats, temperature: float) -> NDArray[np.float64]:
        """Contrastive entropy of each pair in nats, shape (n_pairs,); log(1 + W) if all scores are equal.

        Args:
            frozen: unit vectors of the texts.
            vectors: unit vectors of the queries, shape (n_queries, dimensions).
            temperature: temperature of the softmax; similarities are divided by it.
        """
        entropies = np.empty(len(self.query))
        for start in range(0, len(self.query), ROWS_PER_BLOCK):
            rows = slice(start, start + ROWS_PER_BLOCK)
            query_vectors = vectors[self.query[rows]]
            negatives = self.negatives[self.query[rows]]
            negative_vectors = frozen.take(np.maximum(negatives, 0).reshape(-1)).reshape(*negatives.shape, -1)
            negative_scores = np.einsum("qd,qwd->qw", query_vectors, negative_vectors).astype(np.float64) / temperature
            negative_scores[negatives < 0] = -np.inf
            positive_vectors = frozen.take(self.position[rows])
            positive_scores = np.einsum("qd,qd->q", query_vectors, positive_vectors).astype(np.float64) / temperature
            all_scores = np.column_stack([positive_scores, negative_scores])
            max_score = all_scores.max(axis=1)  # subtracted before exp, which could overflow
            log_sum = np.log(np.exp(all_scores - max_score[:, None]).sum(axis=1)) + max_score
            entropies[rows] = log_sum - positive_scores
        return entropies


def sample_negatives(
    ids: list[str], pairs: tuple[Ints, Ints], labelled: Labels, n_positions: int, seed: int
) -> SampledNegatives:
    """Sample negatives for each query among the texts that are unlabelled for it.

    All texts are permuted once. Each query walks the permutation from a start that its id determines, and takes the
    first W texts without a label. So a query's sample depends only on the seed, its id, its labels and the number of
    texts: adding another query does not change it.

    Args:
        ids: ids of the queries.
        pairs: for each pair, the index of its query and the position of its positive.
        labelled: all labels of the queries, positive or negative.
        n_positions: number of texts.
        seed: seed of the permutation and of the queries' starts in it.
    """
    pair_order = np.lexsort((pairs[1], pairs[0]))
    permutation = np.random.default_rng([seed, n_positions]).permutation(n_positions)
    starts = np.array([_start(seed, query_id) % n_positions for query_id in ids], np.int64)
    # Keys of labels are query · n_positions + position, ascending: the labels of a query are one range of them.
    query_numbers = np.arange(len(ids))
    low = np.searchsorted(labelled.keys, query_numbers * n_positions)
    high = np.searchsorted(labelled.keys, (query_numbers + 1) * n_positions)
    max_labels = int((high - low).max(initial=0))
    n_candidates = min(N_NEGATIVES + max_labels, n_positions)  # enough, even if all labelled texts come first
    negatives = np.full((len(ids), N_NEGATIVES), -1, np.int64)
    for start in range(0, len(ids), ROWS_PER_BLOCK):
        rows = np.arange(start, min(start + ROWS_PER_BLOCK, len(ids)))
        candidates = permutation[(starts[rows, None] + np.arange(n_candidates)) % n_positions]
        is_unlabelled = ~labelled.contains(rows[:, None], candidates)
        slot = np.cumsum(is_unlabelled, axis=1) - 1  # column of `negatives` that an unlabelled candidate goes to
        query, column = np.nonzero(is_unlabelled & (slot < N_NEGATIVES))
        negatives[rows[query], slot[query, column]] = candidates[query, column]
    return SampledNegatives(pairs[0][pair_order], pairs[1][pair_order], negatives)


def _start(seed: int, query_id: str) -> int:
    """A number that depends only on the seed and the query id: 60 bits of a hash, which fit an int64."""
    return int(hashlib.sha256(f"{seed} {query_id}".encode()).hexdigest()[:15], 16)
