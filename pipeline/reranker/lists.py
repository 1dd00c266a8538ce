"""Candidate lists, and their order by a weighted sum of the candidates' and a reranker's scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.types import Doubles, Ints
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.retrieve.retrievers.fusion import weighted_scores
from darklode.pipeline.train.data.dataset import MEASURE

WEIGHTS = (0.25, 0.5, 0.75, 1.0)
"""Weights of a reranker's scores to select from; 1 orders by these alone."""


@dataclass(frozen=True)
class CandidateLists:
    """Candidates of some queries, each list contiguous and best first.

    Attributes:
        ids: query ids.
        queries: texts of the queries.
        texts: distinct texts of the candidates, as retrievers see them.
        rows: candidates: query_id, text_id and score.
        query: number of each candidate's query, ascending, shape (n_candidates,).
        text: number of each candidate's text, same shape.
        labels: labels of the queries: query_id, text_id and relevance.
    """

    ids: pa.Array
    queries: Sequence[str]
    texts: pa.Array
    rows: pa.Table
    query: Ints
    text: Ints
    labels: pa.Table

    def pairs(self) -> tuple[list[str], list[str]]:
        """Query and text of each candidate."""
        return [self.queries[number] for number in self.query.tolist()], self.texts.take(
            pa.array(self.text)
        ).to_pylist()

    def rerank(self, scores: Doubles, weight: float) -> pa.Table:
        """Order each list by `weighted_scores`: query_id, rank, text_id and score; ties keep the candidates' order.

        Args:
            scores: the reranker's score of each candidate, shape (n_candidates,).
            weight: weight of these scores, 0 to 1.
        """
        combined = weighted_scores(self.query, self.rows["score"].to_numpy().astype(np.float64), scores, weight)
        order = np.lexsort((-combined, self.query))
        starts = np.searchsorted(self.query, self.query)
        ranked = self.rows.select(["query_id", "text_id"]).take(pa.array(order))
        rank = (np.arange(len(order)) - starts + 1).astype(np.int32)
        return pa.table(
            {
                "query_id": ranked["query_id"],
                "rank": rank,
                "text_id": ranked["text_id"],
                "score": combined[order].astype(np.float32),
            }
        )

    def own_order(self) -> pa.Table:
        """The candidates in their own order, as `rerank` returns it."""
        return self.rerank(np.zeros(len(self.query)), 0.0)

    def best_order(self) -> pa.Table:
        """The candidates with relevant ones first: what a reranker could reach at most."""
        labels = self.labels.select(["query_id", "text_id", "relevance"])
        places = self.rows.select(["query_id", "text_id"]).append_column("place", pa.array(np.arange(len(self.query))))
        joined = places.join(labels, ["query_id", "text_id"]).sort_by("place")
        relevance = pc.fill_null(joined["relevance"], 0).to_numpy().astype(np.float64)
        return self.rerank(relevance, 1.0)

    def ndcg(self, rankings: pa.Table) -> float:
        """Mean nDCG@10 of rankings of all queries."""
        return float(compute_measures([rankings], self.labels, self.ids.to_pylist(), [MEASURE]).mean())

    def best_weight(self, scores: Doubles) -> tuple[float, float]:
        """The weight above 0 with the best mean nDCG@10, the smallest of several, and this value."""
        values = {weight: self.ndcg(self.rerank(scores, weight)) for weight in WEIGHTS}
        weight = max(values, key=lambda weight: values[weight])
        return weight, values[weight]
