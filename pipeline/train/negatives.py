"""Mining hard negatives: what a query's present vector finds and nobody calls relevant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.train.task import Task
from darklode.pipeline.train.vectors import Floats, Ints
from darklode.schemas.adaptation import AdaptSettings

DEPTH = 100
"""How far a list is looked through for negatives."""

_PAIRS = 4096  # looked at together: memory is that many times the depth


@dataclass(frozen=True)
class Negatives:
    """The negatives of each pair of query and positive.

    Attributes:
        positions: hardest first, labelled ones before the others, shape (n_pairs, n_negatives); -1 where none is left.
        judged: whether each is labelled as not relevant.
    """

    positions: Ints
    judged: NDArray[np.bool_]

    @property
    def short(self) -> float:
        """Share of the places that are empty."""
        return float((self.positions < 0).mean())

    @property
    def judged_share(self) -> float:
        """Share of the negatives that are labelled as not relevant."""
        found = self.positions >= 0
        return float(self.judged[found].mean()) if found.any() else 0.0

    def replaced(self, before: Negatives) -> float:
        """Share of the negatives that were none of their pair's before."""
        same = (self.positions[:, :, None] == before.positions[:, None, :]).any(axis=2)
        found = self.positions >= 0
        return float((~same)[found].mean()) if found.any() else 0.0


def mine(task: Task, vectors: Floats, settings: AdaptSettings) -> Negatives:
    """The negatives that the train queries have with these vectors, by one exact search.

    Texts labelled as not relevant come first; then others that score below s⁺ − |s⁺|·margin, s⁺ being the positive's
    score. Never a known positive, whether it is learned from or not, nor a sibling of one unless the settings let it.
    A place that nothing fits stays empty.

    Args:
        task: queries, positives and labels.
        vectors: of the train queries, shape (n_queries, dimensions).
        settings: negatives and margin.

    Source: Xiong et al. 2021 (ANCE), whose refresh needs no second job where documents are frozen; Moreira et al. 2024
    (NV-Retriever), TopK-PercPos.
    """
    positions, scores = task.frozen.near(vectors, task.train.index, DEPTH)
    query = np.arange(len(positions))[:, None]
    bad = (positions < 0) | task.known.have(query, positions)
    if task.siblings is not None:
        bad |= task.siblings.have(query, positions)
    judged = task.refused.have(query, positions) & ~bad
    found = []
    for start in range(0, len(task.pair_query), _PAIRS):
        pairs = slice(start, start + _PAIRS)
        mine, right = task.pair_query[pairs], task.frozen.take(task.pair_position[pairs])
        best = np.einsum("ij,ij->i", vectors[mine].astype(np.float64), right.astype(np.float64))
        below = scores[mine] < (best - np.abs(best) * settings.margin)[:, None]
        found.append(_first(positions[mine], judged[mine], ~bad[mine] & (judged[mine] | below), settings.negatives))
    return Negatives(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _first(
    positions: Ints, judged: NDArray[np.bool_], open_: NDArray[np.bool_], wanted: int
) -> tuple[Ints, NDArray[np.bool_]]:
    """The first open places of each row, judged ones before the others."""
    depth = positions.shape[1]
    key = np.where(open_, np.arange(depth) + np.where(judged, 0, depth), 2 * depth)
    order = np.argsort(key, axis=1, kind="stable")[:, :wanted]
    taken = np.take_along_axis(open_, order, axis=1)
    found = np.where(taken, np.take_along_axis(positions, order, axis=1), -1)
    missing = wanted - found.shape[1]
    labelled = np.take_along_axis(judged, order, axis=1) & taken
    return np.pad(found, ((0, 0), (0, max(0, missing))), constant_values=-1), np.pad(
        labelled, ((0, 0), (0, max(0, missing)))
    )
