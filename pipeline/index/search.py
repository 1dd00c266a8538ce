"""Search an index: candidates by codes, rescored by stored vectors if there are any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.index.faiss_io import selector_of
from darklode.pipeline.index.kinds import IndexKind
from darklode.pipeline.index.stored_vectors import StoredBlocks

QUERIES_PER_BLOCK = 256
"""Queries searched at a time, to bound memory."""

MIN_DEPTH = 100
"""Minimum depth for which candidates are collected: recall measured at this depth then holds for shorter lists."""

MAX_EXACT_TEXTS = 20_000
"""A tenant with at most this many texts in an index of several is searched exactly. Scoring 20,000 texts takes one
query about as long as a filtered search with enough cells (6 ms on one thread), and misses nothing."""


@dataclass(frozen=True)
class TenantTexts:
    """One tenant's texts in an index of several tenants.

    Attributes:
        numbers: their numbers, ascending.
        share: their share of the index's texts.
    """

    numbers: Ints
    share: float

    @cached_property
    def selector(self) -> Any:
        """faiss selector of these texts."""
        return selector_of(self.numbers)


@dataclass(frozen=True)
class IndexSearcher:
    """An opened index.

    Attributes:
        kind: index kind.
        index: faiss index.
        stored: vectors for rescoring; None: scores by codes.
        rerank: candidates rescored per result; 1 without stored vectors.
        current: faiss selector of the current texts; None: no removed text is in the index.
        tenants: each tenant's texts, in an index of several tenants; else empty.
    """

    kind: IndexKind
    index: Any
    stored: StoredBlocks | None
    rerank: int
    current: Any
    tenants: Mapping[str, TenantTexts]

    def is_exact(self, tenant: str) -> bool:
        """Whether a tenant's texts are searched exactly, not by the index."""
        texts = self.tenants.get(tenant)
        has_vectors = self.stored is not None or not self.kind.LOSSY
        return texts is not None and has_vectors and len(texts.numbers) <= MAX_EXACT_TEXTS

    def find(self, queries: Floats, depth: int, effort: int, tenant: str | None = None) -> tuple[Ints, Floats]:
        """Numbers (-1: none) and scores of the best texts, shape (n_queries, depth); ties by lower number.

        Args:
            queries: unit vectors in the dimensions of the index.
            depth: length of the lists.
            effort: one of the index kind's search efforts.
            tenant: search this tenant's texts only; None: all texts.
        """
        parts = [
            self._block(queries[start : start + QUERIES_PER_BLOCK], depth, effort, tenant)
            for start in range(0, len(queries), QUERIES_PER_BLOCK)
        ]
        if not parts:
            return np.empty((0, depth), np.int64), np.empty((0, depth), np.float32)
        return np.concatenate([numbers for numbers, _ in parts]), np.concatenate([scores for _, scores in parts])

    def find_by_tenant(self, queries: Floats, tenants: Sequence[str], depth: int, effort: int) -> tuple[Ints, Floats]:
        """As `find`, each query among its own tenant's texts in an index of several tenants.

        Args:
            queries: as for `find`.
            tenants: tenant of each query.
            depth: as for `find`.
            effort: as for `find`.
        """
        if not self.tenants:
            return self.find(queries, depth, effort)
        numbers, scores = np.full((len(queries), depth), -1, np.int64), np.full((len(queries), depth), -np.inf)
        of_query = np.array(tenants)
        for tenant in dict.fromkeys(tenants):
            own = of_query == tenant
            numbers[own], scores[own] = self.find(queries[own], depth, effort, tenant)
        return numbers, scores.astype(np.float32)

    def _block(self, queries: Floats, depth: int, effort: int, tenant: str | None) -> tuple[Ints, Floats]:
        texts = None if tenant is None else self.tenants[tenant]
        if tenant is not None and texts and self.is_exact(tenant):
            numbers, scores = self._exact(queries, texts)
        else:
            numbers, scores = self._candidates(queries, depth, effort, texts)
        scores[numbers < 0] = -np.inf
        if scores.shape[1] > 2 * depth:
            column = np.argpartition(-scores, 2 * depth - 1, axis=1)[:, : 2 * depth]
            numbers, scores = np.take_along_axis(numbers, column, 1), np.take_along_axis(scores, column, 1)
        order = np.lexsort((numbers, -scores), axis=1)[:, :depth]
        numbers, scores = np.take_along_axis(numbers, order, 1), np.take_along_axis(scores, order, 1)
        return _pad(numbers, depth, -1), _pad(scores, depth, -np.inf)

    def _candidates(self, queries: Floats, depth: int, effort: int, texts: TenantTexts | None) -> tuple[Ints, Floats]:
        """The best candidates by the index, rescored."""
        n_candidates = min(max(depth, MIN_DEPTH) * self.rerank if self.stored else depth, max(1, self.index.ntotal))
        self.kind.set_effort(
            self.index, self.kind.effort_for_share(self.index, effort, texts.share) if texts else effort
        )
        selector = texts.selector if texts else self.current
        scores, numbers = self.kind.search(self.index, queries, n_candidates, selector)
        return numbers, self.stored.scores(queries, numbers) if self.stored else scores

    def _exact(self, queries: Floats, texts: TenantTexts) -> tuple[Ints, Floats]:
        """All texts of a tenant with their scores."""
        if self.stored:
            scores = self.stored.all_scores(queries, texts.numbers)
        else:
            scores = queries @ self.kind.vectors(self.index, texts.numbers).T
        return np.broadcast_to(texts.numbers, scores.shape), scores


def _pad(values: Any, depth: int, value: float) -> Any:
    n_missing = depth - values.shape[1]
    return np.pad(values, ((0, 0), (0, n_missing)), constant_values=value) if n_missing > 0 else values
