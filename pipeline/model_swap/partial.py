"""Partial re-embedding: some texts get new vectors, and both indexes are searched and merged by score.

A mapped query's score of an old vector and the query's score of a new vector are on different scales. A straight line,
fitted by least squares on the training queries' first results, predicts the new score from the mapped one; lists are
merged by new score, predicted or true.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from darklode.pipeline.base.types import Doubles, Floats, Ints
from darklode.pipeline.model_swap.recall import CUTOFFS, share_found
from darklode.pipeline.model_swap.vectors import PairedVectors, search

SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of texts with new vectors."""

CALIBRATION_DEPTH = 100
"""First results of a training query whose scores are fitted."""

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
    """Fit the line on the first results of queries.

    Args:
        mapped: mapped vectors of training queries.
        new: their new vectors.
        documents: both vectors of the texts.
    """
    results = search(mapped, documents.old, CALIBRATION_DEPTH)
    query, column = np.nonzero(results >= 0)
    if not len(query):
        return ScoreLine(0.0, 1.0)
    rows = results[query, column]
    x = np.einsum("ij,ij->i", mapped[query], documents.old[rows], dtype=np.float64)
    y = np.einsum("ij,ij->i", new[query], documents.new[rows], dtype=np.float64)
    spread = float(np.var(x))
    # A line that falls, or without spread, cannot order the old index: then only the offset is corrected.
    slope = float(np.cov(x, y, bias=True)[0, 1] / spread) if spread > 1e-12 else 1.0
    slope = slope if slope > 0 else 1.0
    return ScoreLine(float(y.mean() - slope * x.mean()), slope)


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
