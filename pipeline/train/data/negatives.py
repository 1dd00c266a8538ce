"""Hard-negative mining with the current query vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.train.data.dataset import Task
from darklode.schemas.adaptation import AdaptSettings

DEPTH = 100
"""Depth of the lists that negatives are taken from."""

_PAIRS = 4096  # looked at together: memory is that many times the depth


@dataclass(frozen=True)
class Negatives:
    """Hard negatives of each (query, positive) pair.

    Attributes:
        positions: hardest first, labelled ones before unlabelled ones, shape (n_pairs, n_negatives); −1 if there
            are fewer.
        judged: whether each is labelled as not relevant.
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
        """Share of the negatives that the pair did not have before."""
        same = (self.positions[:, :, None] == before.positions[:, None, :]).any(axis=2)
        is_filled = self.positions >= 0
        return float((~same)[is_filled].mean()) if is_filled.any() else 0.0


def mine_negatives(task: Task, vectors: Floats, settings: AdaptSettings) -> Negatives:
    """Mine negatives for the train queries by one exact search.

    Texts labelled as not relevant come first, then texts with a score below s⁺ − |s⁺|·margin, where s⁺ is the
    positive's score. A known positive is never a negative, even if it is not trained on, nor is another chunk of its
    document unless configured. Slots without a candidate stay empty.

    Args:
        task: queries, positives and labels.
        vectors: of the train queries, shape (n_queries, dimensions).
        settings: number of negatives and margin.

    Source: Xiong et al. 2021 (ANCE); with frozen documents its refresh needs no second job. Moreira et al. 2024
    (NV-Retriever), TopK-PercPos.
    """
    positions, scores = task.frozen.nearest(vectors, task.train.index, DEPTH)
    query = np.arange(len(positions))[:, None]
    bad = (positions < 0) | task.labels.contains(query, positions)
    if task.siblings is not None:
        bad |= task.siblings.contains(query, positions)
    judged = task.non_relevant.contains(query, positions) & ~bad
    blocks = []
    for start in range(0, len(task.pair_query), _PAIRS):
        pairs = slice(start, start + _PAIRS)
        query_rows, right = task.pair_query[pairs], task.frozen.take(task.pair_position[pairs])
        positive_scores = np.einsum("ij,ij->i", vectors[query_rows].astype(np.float64), right.astype(np.float64))
        below = scores[query_rows] < (positive_scores - np.abs(positive_scores) * settings.relative_margin)[:, None]
        blocks.append(
            _take_first(
                positions[query_rows],
                judged[query_rows],
                ~bad[query_rows] & (judged[query_rows] | below),
                settings.num_negatives,
            )
        )
    return Negatives(*(np.concatenate(column) for column in zip(*blocks, strict=True)))


def _take_first(
    positions: Ints, judged: NDArray[np.bool_], open_: NDArray[np.bool_], n_wanted: int
) -> tuple[Ints, NDArray[np.bool_]]:
    """The first allowed slots of each row, judged ones before the others."""
    depth = positions.shape[1]
    key = np.where(open_, np.arange(depth) + np.where(judged, 0, depth), 2 * depth)
    order = np.argsort(key, axis=1, kind="stable")[:, :n_wanted]
    is_open = np.take_along_axis(open_, order, axis=1)
    first_positions = np.where(is_open, np.take_along_axis(positions, order, axis=1), -1)
    missing = n_wanted - first_positions.shape[1]
    labelled = np.take_along_axis(judged, order, axis=1) & is_open
    return np.pad(first_positions, ((0, 0), (0, max(0, missing))), constant_values=-1), np.pad(
        labelled, ((0, 0), (0, max(0, missing)))
    )
