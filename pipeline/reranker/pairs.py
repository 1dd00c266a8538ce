"""Training pairs of a reranker: query, text, the probability of relevance to learn, and the weight of the pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Floats, Ints


@dataclass(frozen=True)
class SoftPairs:
    """Rows to train a cross-encoder on, whoever gave their targets: labels, or a judge's probabilities.

    Attributes:
        queries: distinct queries.
        texts: distinct texts, as retrievers see them.
        query: number of each pair's query, shape (n_pairs,).
        text: number of each pair's text, same shape.
        target: probability of relevance, 0 to 1, same shape.
        weight: weight of each pair's loss, above 0, same shape.

    Raises:
        ArtifactError: there are no pairs, or a target or weight is out of bounds.
    """

    queries: Sequence[str]
    texts: pa.Array
    query: Ints
    text: Ints
    target: Floats
    weight: Floats

    def __post_init__(self) -> None:
        if not len(self.query):
            raise ArtifactError("there are no pairs to train a reranker on")
        if not ((self.target >= 0) & (self.target <= 1)).all():  # NaN, too
            raise ArtifactError("a training pair's target is not a probability between 0 and 1")
        if not (self.weight > 0).all():
            raise ArtifactError("a training pair's weight is not above 0")

    def __len__(self) -> int:
        return len(self.query)

    def queries_at(self, rows: Ints) -> list[str]:
        """Queries of some pairs."""
        return [self.queries[number] for number in self.query[rows].tolist()]

    def texts_at(self, rows: Ints) -> list[str]:
        """Texts of some pairs."""
        texts: list[str] = self.texts.take(pa.array(self.text[rows])).to_pylist()
        return texts
