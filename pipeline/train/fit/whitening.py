"""Whitening of query vectors as a linear head that needs no labels.

Encoders put what a collection's texts have in common into few directions, which then dominate every score. A map of the
query alone reverses that: in q·W·d each direction is weighted by a negative power of its variance; no text vector
changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from darklode.pipeline.base.types import Doubles, Floats
from darklode.pipeline.train.fit.moments import Moments
from darklode.pipeline.train.types import Layers

if TYPE_CHECKING:
    from darklode.pipeline.train.data.dataset import Task

COVARIANCE_POWERS = (0.0, 0.25, 0.5, 0.75)
"""Powers of the covariance: 0 leaves directions as they are, 1 whitens scores completely."""

CENTERINGS = (0.0, 0.5)
"""Shares of the mean query to remove: what all queries have in common pulls the same texts up for each of them."""

SHRINKAGE = 0.1
"""Shrinkage: share of the mean variance added to each direction, because directions with little variance are noise."""


@dataclass(frozen=True)
class Whitening:
    """The map C^-p·(q − c·m), where m is the mean train query; its result is to be normalized.

    Attributes:
        power: p.
        centering: c.
        weight: C^-p, scaled, shape (dimensions, dimensions).
        bias: −c·C^-p·m, shape (dimensions,).
    """

    power: float
    centering: float
    weight: Floats
    bias: Floats

    def apply(self, vectors: Floats) -> Floats:
        """Whitened unit vectors, shape (n_queries, dimensions); a zero vector stays zero."""
        return whiten(vectors, self.weight, self.bias)

    @property
    def layers(self) -> Layers:
        """The same map as the layers of a head."""
        return [(self.weight - np.eye(len(self.weight), dtype=np.float32), self.bias)]


def whitenings(task: Task, centerings: Sequence[float] = CENTERINGS) -> Iterator[Whitening]:
    """Whitening maps for each power of `COVARIANCE_POWERS` and each centering, without the base itself (0, 0).

    No label is used.

    C is the mean covariance of texts and train queries. C^-p is symmetric, and scaled so that train queries keep their
    mean length.

    Args:
        task: text vectors and train queries.
        centerings: shares of the mean query to remove.

    Source: Mu and Viswanath 2018 and Su et al. 2021 remove the mean and whiten on both sides; here texts stay fixed,
    and validation selects the power and the share of the mean.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        queries = task.train.vectors.astype(np.float64)
        query_moments, text_moments = Moments(queries.shape[1]), Moments(queries.shape[1])
        query_moments.add(task.train.vectors)
        text_moments.add_parts(task.frozen.take, len(task.frozen))
        for power, weight in covariance_powers((query_moments.covariance + text_moments.covariance) / 2):
            lengths = np.linalg.norm(queries @ weight, axis=1)
            scaled = (weight / max(float(lengths.mean()), 1e-12)).astype(np.float32)
            shift = scaled @ queries.mean(axis=0)
            for centering in centerings if power else [share for share in centerings if share]:
                yield Whitening(power, centering, scaled, (-centering * shift).astype(np.float32))


def covariance_powers(covariance: Doubles) -> Iterator[tuple[float, Doubles]]:
    """C^-p for each power p of `COVARIANCE_POWERS`; C is shrunk, see `SHRINKAGE`."""
    values, axes = np.linalg.eigh(covariance)
    values = np.maximum(values, 0) + max(SHRINKAGE * float(np.mean(values)), 1e-12)
    for power in COVARIANCE_POWERS:
        yield power, (axes * values**-power) @ axes.T


def whiten(vectors: Floats, weight: Floats, bias: Floats | float = 0.0) -> Floats:
    """Apply an affine map and normalize; a zero vector stays zero."""
    mapped = vectors @ weight.T + bias
    mapped[~vectors.any(axis=1)] = 0
    return np.asarray(mapped / np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), 1e-12), np.float32)


def best_whitening(task: Task, maps: Iterable[Whitening]) -> Whitening | None:
    """The best of some maps on the validation queries; None if the base is better."""
    queries, best = task.validation, None
    best_ndcg = queries.ndcg(task.frozen, queries.vectors)
    for whitening in maps:
        ndcg = queries.ndcg(task.frozen, whitening.apply(queries.vectors))
        if ndcg > best_ndcg:
            best, best_ndcg = whitening, ndcg
    return best


def best_uncentered(task: Task, maps: Iterable[Whitening]) -> Whitening | None:
    """What trained heads and encoders start from: the best of the maps that remove nothing of the mean query.

    Centering helps an untrained map; on development folds it did not help heads that are trained from it.
    """
    return best_whitening(task, (each for each in maps if not each.centering))


def best_by_power(task: Task) -> dict[float, Whitening]:
    """The map with the best centering on the validation queries, for each power."""
    best: dict[float, Whitening] = {}
    best_ndcg: dict[float, float] = {}
    for whitening in whitenings(task):
        ndcg = task.validation.ndcg(task.frozen, whitening.apply(task.validation.vectors))
        if whitening.power not in best or ndcg > best_ndcg[whitening.power]:
            best[whitening.power], best_ndcg[whitening.power] = whitening, ndcg
    return best
