"""A query vector mixed with the vector that the query's tokens give, where training starts from if validation prefers
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from darklode.pipeline.base.types import Floats
from darklode.pipeline.train.fit.whitening import Whitening, whiten
from darklode.pipeline.train.types import Weights

if TYPE_CHECKING:
    from darklode.pipeline.train.data.dataset import QuerySet, Task

TERM_SHARES = (0.25, 0.5, 0.65)
"""Shares of the term vectors to try, beside none."""

PREFIX = "term_start."
"""Prefix of its tensors among those of a head."""


@dataclass(frozen=True)
class TermStart:
    """unit(unit(A·q + b) + B·t), where q is a query's vector and t the sum of its term vectors.

    A and b are a whitening. B is the same map, scaled so that train queries' t have the mean length 1, times
    a / (1 − a).

    Attributes:
        share: a.
        power: power of the whitening; 0 without one.
        weight: A, shape (dimensions, dimensions).
        bias: b, shape (dimensions,).
        terms: B, shape (dimensions, dimensions).
    """

    share: float
    power: float
    weight: Floats
    bias: Floats
    terms: Floats

    def apply(self, queries: QuerySet) -> Floats:
        """Mixed unit vectors, shape (n_queries, dimensions); a zero vector stays zero."""
        assert queries.terms is not None
        mixed = whiten(queries.vectors, self.weight, self.bias) + queries.terms @ self.terms.T
        mixed[~queries.vectors.any(axis=1)] = 0
        return np.asarray(mixed / np.maximum(np.linalg.norm(mixed, axis=1, keepdims=True), 1e-12), np.float32)

    def apply_to_task(self, task: Task) -> Task:
        """The task with mixed vectors instead of the base's."""
        train, validation = (replace(queries, vectors=self.apply(queries)) for queries in (task.train, task.validation))
        return replace(task, train=train, validation=validation)

    def interpolate(self, share: float) -> TermStart:
        """The start at a share of the way from the base."""
        eye = np.eye(len(self.bias), dtype=np.float32)
        weight = np.asarray(eye + share * (self.weight - eye), np.float32)
        scaled = np.float32(share) * self.bias, np.float32(share) * self.terms
        return TermStart(self.share, self.power, weight, *scaled)

    def tensors(self) -> dict[str, Floats]:
        """Its tensors by name, to be stored with those of a head."""
        settings = np.array([self.share, self.power], np.float32)
        tensors = {"weight": self.weight, "bias": self.bias, "terms": self.terms, "settings": settings}
        return {f"{PREFIX}{name}": np.ascontiguousarray(tensor) for name, tensor in tensors.items()}

    @classmethod
    def from_weights(cls, weights: Weights, share: float = 1.0) -> TermStart | None:
        """Inverse of `tensors`, at a share of the way from the base; None if these weights have no start."""
        if f"{PREFIX}terms" not in weights:
            return None
        part = {name: weights[f"{PREFIX}{name}"] for name in ("weight", "bias", "terms", "settings")}
        term_share, power = map(float, part["settings"].reshape(-1))
        return cls(term_share, power, part["weight"], part["bias"].reshape(-1), part["terms"]).interpolate(share)


def term_starts(task: Task, whitening: Whitening | None, shares: Sequence[float] = TERM_SHARES) -> list[TermStart]:
    """A start for each share; none if the queries have no term vectors.

    Args:
        task: train queries give the scale; no label is used.
        whitening: applied to both vectors; None: none is.
        shares: of the term vectors.
    """
    if task.train.terms is None or task.validation.terms is None:
        return []
    eye = np.eye(task.frozen.dimensions, dtype=np.float32)
    weight, bias = (eye, np.zeros(len(eye), np.float32)) if whitening is None else (whitening.weight, whitening.bias)
    length = float(np.linalg.norm(task.train.terms @ weight.T, axis=1).mean())
    if not length:
        return []
    scaled = weight / np.float32(length)
    power = 0.0 if whitening is None else whitening.power
    return [TermStart(share, power, weight, bias, np.float32(share / (1 - share)) * scaled) for share in shares]


def best_term_start(task: Task, whitening: Whitening | None) -> TermStart | None:
    """The start that is best on the validation queries; None if the whitening alone is as good.

    Args:
        task: has the validation queries.
        whitening: the best one; None: the base is better.
    """
    queries, best_start = task.validation, None
    starts = term_starts(task, whitening)
    if not starts:
        return None
    alone = queries.vectors if whitening is None else whitening.apply(queries.vectors)
    best_ndcg = queries.ndcg(task.frozen, alone)
    for start in starts:
        ndcg = queries.ndcg(task.frozen, start.apply(queries))
        if ndcg > best_ndcg:
            best_start, best_ndcg = start, ndcg
    return best_start
