"""Hard-negative mining with the current query vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.train.data.dataset import Task
from darklode.schemas.adaptation import AdaptSettings

DEPTH = 100
"""Number of nearest texts per query that negatives are taken from: more leave fewer slots empty, and take more memory.
"""

_BLOCK_PAIRS = 4096
"""Pairs processed at once; bounds memory to a few arrays of `_BLOCK_PAIRS` × `DEPTH`."""


@dataclass(frozen=True)
class Negatives:
    """Hard negatives of each (query, positive) pair.

    Attributes:
        positions: hardest first, labelled ones before unlabelled ones, shape (n_pairs, n_negatives); −1 if there
            are fewer.
        judged: whether each is labelled as not relevant, same shape.
    """

    positions: Ints
    judged: NDArray[np.bool_]

    @property
    def share_empty(self) -> float:
        """Share of empty slots."""
        return float((self.positions < 0).mean())

    @property
    def judged_share(self) -> float:
        """Share of the negatives that are labelled as not relevant."""
        is_filled = self.positions >= 0
        return float(self.judged[is_filled].mean()) if is_filled.any() else 0.0

    def share_replaced(self, before: Negatives) -> float:
        """Share of the negatives that their pair did not have in `before`, an earlier mining of the same pairs."""
        was_present = (self.positions[:, :, None] == before.positions[:, None, :]).any(axis=2)
        is_filled = self.positions >= 0
        return float((~was_present)[is_filled].mean()) if is_filled.any() else 0.0


def mine_negatives(task: Task, vectors: Floats, settings: AdaptSettings) -> Negatives:
    """Mine negatives for the train queries by one exact search.

    Texts labelled as not relevant come first, then texts with a score below s⁺ − |s⁺|·margin, where s⁺ is the
    positive's score. A known positive is never a negative, even if it is not trained on, nor is another chunk of its
    document unless configured. Slots without a candidate stay empty.

    Args:
        task: queries, positives and labels.
        vectors: current vectors of the train queries, shape (n_queries, dimensions).
        settings: `num_negatives` per pair and `relative_margin`.

    Source: Xiong et al. 2021 (ANCE); with frozen documents its refresh needs no second job. Moreira et al. 2024
    (NV-Retriever), TopK-PercPos.
    """
    positions, scores = task.frozen.nearest(vectors, task.train.index, DEPTH)
    query = np.arange(len(positions))[:, None]
    is_excluded = (positions < 0) | task.labels.contains(query, positions)
    if task.siblings is not None:
        is_excluded |= task.siblings.contains(query, positions)
    judged = task.non_relevant.contains(query, positions) & ~is_excluded
    blocks = []
    for start in range(0, len(task.pair_query), _BLOCK_PAIRS):
        pairs = slice(start, start + _BLOCK_PAIRS)
        query_rows = task.pair_query[pairs]
        query_vectors = vectors[query_rows].astype(np.float64)
        positive_vectors = task.frozen.take(task.pair_position[pairs]).astype(np.float64)
        positive_scores = np.einsum("ij,ij->i", query_vectors, positive_vectors)
        max_scores = positive_scores - np.abs(positive_scores) * settings.relative_margin
        is_below_margin = scores[query_rows] < max_scores[:, None]
        blocks.append(
            _take_first(
                positions[query_rows],
                judged[query_rows],
                ~is_excluded[query_rows] & (judged[query_rows] | is_below_margin),
                settings.num_negatives,
            )
        )
    return Negatives(*(np.concatenate(column) for column in zip(*blocks, strict=True)))


def _take_first(
    positions: Ints, judged: NDArray[np.bool_], is_allowed: NDArray[np.bool_], n_negatives: int
) -> tuple[Ints, NDArray[np.bool_]]:
    """Take the first allowed texts of each row, judged ones before the others.

    Args:
        positions: nearest texts of each pair's query, best first, shape (n_pairs, depth).
        judged: whether each is labelled as not relevant.
        is_allowed: whether each may be a negative.
        n_negatives: number of texts to take.

    Returns:
        Positions (−1: empty) and whether each is judged, both of shape (n_pairs, n_negatives).
    """
    depth = positions.shape[1]
    sort_key = np.where(is_allowed, np.arange(depth) + np.where(judged, 0, depth), 2 * depth)
    order = np.argsort(sort_key, axis=1, kind="stable")[:, :n_negatives]
    is_filled = np.take_along_axis(is_allowed, order, axis=1)
    first_positions = np.where(is_filled, np.take_along_axis(positions, order, axis=1), -1)
    first_judged = np.take_along_axis(judged, order, axis=1) & is_filled
    padding = ((0, 0), (0, max(0, n_negatives - first_positions.shape[1])))  # if lists are shorter than n_negatives
    return np.pad(first_positions, padding, constant_values=-1), np.pad(first_judged, padding)
