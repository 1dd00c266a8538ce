"""Partial re-embedding: some texts get new vectors, and both indexes are searched and merged by score.

A mapped query's score of an old vector and the query's score of a new vector are on different scales. A straight line
turns mapped scores into new ones: it is fitted on training queries, on pairs of scores that have the same rank in the
mapped and in the new list. So an old text at rank 3 of its list competes with new texts of the score that rank 3 has.
(A regression of new on mapped scores of the same texts would shrink mapped scores to their mean, and new texts would
crowd them out.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from darklode.pipeline.base.types import Doubles, Floats, Ints
from darklode.pipeline.model_swap.recall import CUTOFFS, share_found
from darklode.pipeline.model_swap.vectors import PairedVectors, search

SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of texts with new vectors."""

CALIBRATION_DEPTH = 10
"""Ranks of a training query whose scores are fitted: those that are to be merged right."""

CALIBRATION_QUERIES = 1000
"""Maximum number of training queries whose scores are fitted."""

QUERIES_PER_BLOCK = 256
"""Queries whose scores of all texts are in memory at once."""


@dataclass(frozen=True)
class ScoreLine:
    """new score ≈ intercept + slope · mapped score."""

    intercept: float
    slope: float

    def predict(self, mapped_scores: Floats) -> Floats:
        """Predicted new scores."""
        return np.asarray(self.intercept + self.slope * mapped_scores, np.float32)


def fit_line(mapped: Floats, new: Floats, documents: PairedVectors) -> ScoreLine:
    """Fit the line by least squares on scores of equal rank.

    Args:
        mapped: mapped vectors of training queries.
        new: their new vectors.
        documents: both vectors of the texts.
    """
    sample = slice(0, CALIBRATION_QUERIES)
    sides = (mapped[sample], documents.old), (new[sample], documents.new)
    x, y = (_first_scores(*side).ravel() for side in sides)
    is_known = ~np.isnan(x) & ~np.isnan(y)
    if not is_known.any():
        return ScoreLine(0.0, 1.0)
    x, y = x[is_known], y[is_known]
    spread = float(np.var(x))
    # A line that falls, or without spread, cannot order the old index: then only the offset is corrected.
    slope = float(np.cov(x, y, bias=True)[0, 1] / spread) if spread > 1e-12 else 1.0
    slope = slope if slope > 0 else 1.0
    return ScoreLine(float(y.mean() - slope * x.mean()), slope)


def _first_scores(queries: Floats, vectors: Floats) -> Doubles:
    """Scores of the first results, best first, shape (n_queries, depth); NaN where there is none."""
    results = search(queries, vectors, CALIBRATION_DEPTH)
    scores = np.einsum("ik,ijk->ij", queries, vectors[results], dtype=np.float64)
    return np.where(results >= 0, scores, np.nan)


def merged_search(
    mapped: Floats,
    new: Floats,
    documents: PairedVectors,
    is_new: np.ndarray[tuple[int], np.dtype[np.bool_]],
    line: ScoreLine,
    depth: int,
) -> Ints:
    """Search two indexes that hold disjoint texts, and merge by new score; rows, shape (n_queries, depth).

    Args:
        mapped: mapped query vectors, for the old index.
        new: new query vectors, for the new one.
        documents: both vectors of the texts.
        is_new: whether a text is in the new index, shape (n_texts,).
        line: predicts new scores.
        depth: length of the lists.
    """
    lists = []
    for start in range(0, len(new), QUERIES_PER_BLOCK):
        block = slice(start, start + QUERIES_PER_BLOCK)
        scores = line.predict(mapped[block] @ documents.old.T)
        scores[:, is_new] = new[block] @ documents.new[is_new].T
        lists.append(np.argsort(-scores, axis=1, kind="stable")[:, :depth])
    return np.concatenate(lists) if lists else np.empty((0, depth), np.int64)


@dataclass(frozen=True)
class PartialRecall:
    """What a partial re-embedding finds.

    Attributes:
        share: share of texts with new vectors.
        texts: their number.
        recall_10, recall_100: share of re-embedding's first 10 and 100, mean over queries.
    """

    share: float
    texts: int
    recall_10: float
    recall_100: float


def partial_recalls(
    mapped: Floats, new: Floats, documents: PairedVectors, heat: Doubles, line: ScoreLine
) -> list[PartialRecall]:
    """Recall by share of texts that are embedded again, hottest first.

    Args:
        mapped: mapped vectors of held-out queries.
        new: their new vectors.
        documents: both vectors of the texts.
        heat: order of re-embedding, highest first, shape (n_texts,).
        line: predicts new scores.
    """
    reference = search(new, documents.new, max(CUTOFFS))
    order = np.argsort(-heat, kind="stable")
    rows = []
    for share in SHARES:
        n = round(share * len(order))
        is_new = np.zeros(len(order), np.bool_)
        is_new[order[:n]] = True
        results = merged_search(mapped, new, documents, is_new, line, max(CUTOFFS))
        recalls = [float(np.nanmean(share_found(results, reference, k))) for k in CUTOFFS]
        rows.append(PartialRecall(share, n, *recalls))
    return rows
