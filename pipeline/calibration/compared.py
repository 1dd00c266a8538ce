"""Labelled pairs beside what the judge said of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.raters import enough


@dataclass(frozen=True)
class Compared:
    """A tenant's labelled pairs with the judge's replies, by query; all of shape (n_pairs,).

    Attributes:
        query: number of the pair's query, from 0.
        positive: relevant to people.
        read: the judge's reply could be read; only then `relevant` says what it was.
        relevant: the judge's label.
        probability: the judge's, NaN where it gave none.
    """

    query: NDArray[np.int64]
    positive: NDArray[np.bool_]
    read: NDArray[np.bool_]
    relevant: NDArray[np.bool_]
    probability: NDArray[np.float32]

    @classmethod
    def of(cls, labels: pa.Table, replies: pa.Table) -> Compared:
        """From rows of `human_labels` and replies to the same pairs in the same order."""
        read = pc.is_valid(replies["relevant"]).to_numpy()
        probability = pc.if_else(replies["relevant"].is_valid(), replies["probability"], None)
        return cls(
            query=labels["query_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64),
            positive=pc.greater(labels["relevance"], 0).to_numpy(),
            read=read,
            relevant=pc.fill_null(replies["relevant"], False).to_numpy(),
            probability=pc.fill_null(probability, math.nan).to_numpy(),
        )

    def rated(self) -> Compared:
        """The pairs with a probability."""
        rows = np.isfinite(self.probability)
        return Compared(*(getattr(self, field.name)[rows] for field in fields(self)))

    def relevant_from(self, threshold: float) -> NDArray[np.bool_]:
        """Labels by another threshold; a pair without a probability keeps its own."""
        return np.where(np.isfinite(self.probability), self.probability >= np.float32(threshold), self.relevant)

    @property
    def enough(self) -> bool:
        """Whether so many pairs can carry a curve and a threshold."""
        return enough(self.positive)
