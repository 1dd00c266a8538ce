"""Canonical correlation between a part of a chunk and the rest: the inverse cloze task in closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.retrieve.encoders.lsa import (
    TermVectors,
    entropy_weights,
    log_counts,
    truncated_svd,
    unit_sparse_rows,
)

if TYPE_CHECKING:
    from scipy import sparse

_SAMPLE_CHUNKS = 20_000
_BASE_DIMENSIONS = 300
_N_SPLITS = 5  # each parts every chunk anew: moments of one draw are noisy
_SEED = 20190601


def split_counts(
    counts: sparse.csr_matrix, share: float, random: np.random.Generator
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Assign each word of a chunk to the first part with probability `share`, else to the second."""
    first = counts.copy()
    first.data = random.binomial(counts.data.astype(np.int64), share).astype(np.float32)
    second = (counts - first).tocsr()
    first.eliminate_zeros()
    second.eliminate_zeros()
    return first, second


def fit_cca(terms: TermSpace, dimensions: int, share: float = 0.35, ridge: float = 0.3) -> TermVectors:
    """Query and document maps under which a part of a chunk retrieves the rest.

    The objective is the inverse cloze task (Lee, Chang and Toutanova 2019), solved by Hotelling's canonical correlation
    (1936)
    with a ridge between LSA vectors of random parts of at most 20,000 chunks.

    Args:
        terms: the corpus.
        dimensions: maximum number of directions.
        share: expected share of a chunk's words in the query part.
        ridge: added to both covariances, relative to their mean variance.
    """
    sample = terms.sample(_SAMPLE_CHUNKS)
    weights = np.maximum(entropy_weights(sample), 0) + np.float32(1e-3)
    _, _, right = truncated_svd(unit_sparse_rows(log_counts(sample, weights)), _BASE_DIMENSIONS)
    base = (weights[:, None] * right.T).astype(np.float32)
    queries, documents = _correlated_directions(*_project_parts(sample, weights, right, share), ridge, dimensions)
    name = f"cca-{dimensions}-{share}-{ridge}-1"
    return TermVectors(name, terms, base @ documents, base @ queries)


def _project_parts(
    sample: sparse.csr_matrix, weights: NDArray[np.float32], right: NDArray[np.float32], share: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Second moments of the parts, of the rests, and between them, each of shape (rank, rank)."""
    random = np.random.default_rng(_SEED)
    rank = len(right)
    sums = np.zeros((3, rank, rank))
    for _ in range(_N_SPLITS):
        parts = split_counts(sample, share, random)
        first, second = (unit_sparse_rows(log_counts(part, weights)) @ right.T for part in parts)
        sums += np.stack([first.T @ first, second.T @ second, first.T @ second])
    return sums[0], sums[1], sums[2]


def _correlated_directions(
    own: NDArray[np.float64],
    context: NDArray[np.float64],
    both: NDArray[np.float64],
    ridge: float,
    dimensions: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    own_whitener, right = _whitener(own, ridge), _whitener(context, ridge)
    u, values, v = np.linalg.svd(own_whitener @ both @ right)
    strength = np.sqrt(values[:dimensions])
    queries = (own_whitener @ u[:, :dimensions] * strength).astype(np.float32)
    return queries, (right @ v[:dimensions].T * strength).astype(np.float32)


def _whitener(moments: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    size = len(moments)
    level = max(float(np.trace(moments)) / size, 1e-12)
    values, vectors = np.linalg.eigh(moments + ridge * level * np.eye(size))
    return np.asarray(vectors / np.sqrt(values) @ vectors.T)
