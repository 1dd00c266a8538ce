"""Model selection for hybrid search: nDCG@10 of the fusion of BM25 with the encoder."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.types import Floats
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.train.data.dataset import DEPTH, MEASURE, QuerySet
from darklode.pipeline.train.data.fusion import fuse
from darklode.pipeline.train.data.system_names import BASE, WHITENED, by_ranks, by_scores
from darklode.pipeline.train.data.vectors import FrozenIndex

FUSED_DEPTH = 100
"""Length of the rankings that are fused, as in the test."""

FUSIONS_SQL = """
    SELECT system, value, setting FROM headroom WHERE measure = 'nDCG@10' AND system IN ($1, $2, $3)
    ORDER BY value DESC, system
"""


@dataclass(frozen=True)
class HybridScorer:
    """Scores query vectors by their fusion with BM25, in the way that is better for the base on validation.

    Attributes:
        lexical: BM25 rankings of all queries that select: query_id, rank, text_id and score.
        base_weight: weight of the base's scores; None: fusion by rank.
        weight: weight of an adapted encoder's scores, that of the whitened base; None: fusion by rank.
    """

    lexical: pa.Table
    base_weight: float | None
    weight: float | None

    @classmethod
    def from_tables(cls, tables: Tables) -> HybridScorer:
        """Load it from `lexical_rankings` and `headroom`."""
        names = (by_scores(BASE), by_ranks(BASE), by_scores(WHITENED))
        rows = {row["system"]: row for row in tables.sql(FUSIONS_SQL, list(names)).to_pylist()}
        best = next(name for name in rows if name in names[:2])
        weights = (None, None) if best == by_ranks(BASE) else (rows[names[0]]["setting"], rows[names[2]]["setting"])
        return cls(tables.read("lexical_rankings"), *weights)

    def ndcg(self, frozen: FrozenIndex, queries: QuerySet, vectors: Floats, *, is_base: bool = False) -> float:
        """Mean nDCG@10 of the fused rankings; NaN without queries.

        Args:
            frozen: the texts.
            queries: queries with labels, all of them in `lexical`.
            vectors: their vectors, shape (n_queries, dimensions).
            is_base: whether they are the base's.
        """
        if not len(queries):
            return float("nan")
        lexical = self.lexical.filter(pc.is_in(self.lexical["query_id"], queries.ids))
        dense = queries.ranking(frozen, vectors, FUSED_DEPTH)
        fused = fuse(lexical, dense, self.base_weight if is_base else self.weight)
        first = fused.filter(pc.less_equal(fused["rank"], DEPTH + queries.max_uncertain))
        return float(compute_measures([first], queries.labels, queries.ids.to_pylist(), [MEASURE]).mean())
