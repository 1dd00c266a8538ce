"""Systems that need no labels, the yardstick of an adapted encoder: BM25, whitening, term vectors, feedback, and fusion
with BM25.

Each has at most one parameter, whitening two, selected on the queries that also select the adapted encoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.types import Floats
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.train.data.dataset import DEPTH as NDCG_DEPTH
from darklode.pipeline.train.data.dataset import MEASURE, QuerySet, Task
from darklode.pipeline.train.data.fusion import fuse_by_rank, fuse_by_score, normalize
from darklode.pipeline.train.data.system_names import (
    BASE,
    BM25,
    CENTERING,
    FEEDBACK,
    TERMS,
    WHITENED,
    by_ranks,
    by_scores,
)
from darklode.pipeline.train.fit.term_start import TermStart, term_starts
from darklode.pipeline.train.fit.whitening import Whitening, whitenings

if TYPE_CHECKING:
    from darklode.pipeline.train.data.vectors import FrozenIndex
    from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings

DEPTH = 100
"""Length of the rankings, also of those that are fused: the deepest cutoff of the measures, R@100."""

FEEDBACK_TEXTS = 3
"""First texts whose mean vector is added to the query."""
FEEDBACK_WEIGHTS = (0.2, 0.4, 0.8)
"""Weights of that mean, with the query's being 1."""
DENSE_WEIGHTS = tuple(tenths / 10 for tenths in range(1, 10))
"""Weights of the encoder's scores, with BM25's being 1 minus it."""


@dataclass(frozen=True)
class LabelFree:
    """Label-free systems for the queries and texts of a task.

    Attributes:
        task: text vectors and train queries; no label is used.
        bm25: rankings by BM25.
        settings: the selected parameter of each system that has one: power of the covariance and share of the mean
            query (`CENTERING`), share of the term vectors (missing if the whitening alone is as good), weight of the
            feedback, weight of the encoder's scores.
    """

    task: Task
    bm25: Bm25Rankings
    settings: Mapping[str, float]

    @classmethod
    def select(cls, task: Task, bm25: Bm25Rankings, queries: QuerySet) -> LabelFree:
        """Select the parameters by nDCG@10 on queries; ties go to the smallest."""
        settings: dict[str, float] = {}
        label_free, ids = cls(task, bm25, settings), queries.ids.to_pylist()

        def ndcg(rankings: pa.Table) -> float:
            first = rankings.filter(pc.less_equal(rankings["rank"], NDCG_DEPTH + queries.max_uncertain))
            return float(compute_measures([first], queries.labels, ids, [MEASURE]).mean())

        def ranked(vectors: Floats) -> pa.Table:
            return queries.ranking(task.frozen, vectors, DEPTH)

        maps = {key: ndcg(ranked(each.apply(queries.vectors))) for key, each in label_free._maps.items()}
        settings[WHITENED], settings[CENTERING] = max(maps, key=lambda key: maps[key])
        mixes = {each.share: ndcg(ranked(each.apply(queries))) for each in label_free._mixes().values()}
        if mixes and max(mixes.values()) > maps[settings[WHITENED], settings[CENTERING]]:
            settings[TERMS] = _best(mixes)
        feedback = {weight: ndcg(ranked(add_feedback(task.frozen, queries, weight))) for weight in FEEDBACK_WEIGHTS}
        settings[FEEDBACK] = _best(feedback)
        lexical = normalize(bm25.rankings(queries, DEPTH))
        for encoder, vectors in ((BASE, queries.vectors), (WHITENED, label_free.whiten(queries.vectors))):
            dense = normalize(ranked(vectors))
            fused = {weight: ndcg(fuse_by_score(lexical, dense, weight)) for weight in DENSE_WEIGHTS}
            settings[by_scores(encoder)] = _best(fused)
        return label_free

    @cached_property
    def _maps(self) -> dict[tuple[float, float], Whitening]:
        """The whitening of each power and centering; it reads all text vectors."""
        return {(each.power, each.centering): each for each in whitenings(self.task)}

    def whiten(self, vectors: Floats) -> Floats:
        """Query vectors under the selected whitening."""
        return self._maps[self.settings[WHITENED], self.settings[CENTERING]].apply(vectors)

    def _mixes(self) -> dict[float, TermStart]:
        """The selected whitening mixed with term vectors, by their share."""
        whitening = self._maps[self.settings[WHITENED], self.settings[CENTERING]]
        return {each.share: each for each in term_starts(self.task, whitening)}

    def rankings(self, queries: QuerySet, adapted: Mapping[str, Floats] | None = None) -> dict[str, pa.Table]:
        """Rankings of queries by each system: query_id, rank, text_id and score.

        Args:
            queries: the queries.
            adapted: query vectors of encoders trained with labels, by name, shape (n_queries, dimensions); each is
                ranked alone and fused with BM25. Their scores have the weight of the whitened encoder's.
        """
        encoders = {BASE: queries.vectors, WHITENED: self.whiten(queries.vectors)}
        encoders |= dict(adapted or {})
        lexical = self.bm25.rankings(queries, DEPTH)
        normalized_lexical = normalize(lexical)
        systems = {BM25: lexical}
        feedback = add_feedback(self.task.frozen, queries, self.settings[FEEDBACK])
        alone = {FEEDBACK: feedback}
        if TERMS in self.settings:
            alone[TERMS] = self._mixes()[self.settings[TERMS]].apply(queries)
        for name, vectors in (encoders | alone).items():
            systems[name] = queries.ranking(self.task.frozen, vectors, DEPTH)
        for name in encoders:
            systems[by_ranks(name)] = fuse_by_rank([lexical, systems[name]])
            weight = self.settings.get(by_scores(name), self.settings[by_scores(WHITENED)])
            systems[by_scores(name)] = fuse_by_score(normalized_lexical, normalize(systems[name]), weight)
        return systems


def add_feedback(frozen: FrozenIndex, queries: QuerySet, weight: float) -> Floats:
    """Query vectors moved towards their first texts, shape (n_queries, dimensions).

    The vector is that of the query plus `weight` times the mean vector of its first `FEEDBACK_TEXTS` texts.

    Source: Rocchio 1971, without negatives; on dense vectors Li et al. 2021 (Vector PRF).
    """
    positions, _ = frozen.nearest(queries.vectors, queries.index, FEEDBACK_TEXTS)
    texts = frozen.take(np.maximum(positions, 0).reshape(-1)).reshape(*positions.shape, -1)
    has_text = (positions >= 0)[:, :, None]
    mean = (texts * has_text).sum(axis=1) / np.maximum(has_text.sum(axis=1), 1)
    moved = queries.vectors + weight * mean
    return np.asarray(moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12), np.float32)


def _best(values: Mapping[float, float]) -> float:
    return max(values, key=lambda setting: values[setting])
