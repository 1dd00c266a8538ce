"""The planner that was learned from the documents and the log."""

from collections import defaultdict

import pyarrow as pa

from pipeline.planners.planned import planned
from pipeline.planners.tokens import Tokens

UNSEEN = 1.0


class LogPlanner:
    """Term importance by learned weights: a term's weight over that of its query's best term.

    So the best term of a query has importance 1, whatever it is about, and a threshold of 0.5 asks for terms at least
    half as telling as the best. A term that was never seen is as telling as can be: no other query may stand for it.

    Args:
        learned: rows of `planner_terms`.
        version: of these rows.
    """

    def __init__(self, learned: pa.Table, version: str) -> None:
        self.version = f"log planner 1 {version}"
        self._tokens = Tokens()
        self._weights: dict[str, dict[str, float]] = defaultdict(dict)
        columns = (learned[name].to_pylist() for name in ("tenant", "term", "weight"))
        for tenant, term, weight in zip(*columns, strict=True):
            self._weights[tenant][term] = weight

    def terms(self, queries: pa.Table) -> pa.Table:
        """Rows of `query_terms` for rows of tenant, query_id and text, a query's in the order of its text."""
        return planned(queries, self.plan)

    def plan(self, tenant: str, text: str) -> dict[str, float]:
        """Term → importance; phrases are found from left to right, and their words are no terms of their own there."""
        weights = self._weights.get(tenant, {})
        found = {term: weights.get(term, UNSEEN) for term in self._segmented(text, weights)}
        best = max(found.values(), default=0.0)
        return {term: weight / best for term, weight in found.items()} if best else {}

    def _segmented(self, text: str, weights: dict[str, float]) -> list[str]:
        words = self._tokens.of(text)
        found: list[str] = []
        at = 0
        while at < len(words):
            pair = " ".join(words[at : at + 2])
            size = 2 if at + 1 < len(words) and pair in weights else 1
            found.append(pair if size == 2 else words[at])
            at += size
        return found
