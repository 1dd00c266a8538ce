"""Residual k-means: each level clusters the residuals of the level before (ScalingNote, 3.5).

A greedy loop over faiss's k-means: faiss's ResidualQuantizer with its default beam of 5 had a larger error.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.types import Floats
from darklode.pipeline.index.faiss_io import MIN_POINTS_PER_CENTROID, faiss, one_thread
from darklode.schemas.serving import SemanticIdSettings
from darklode.schemas.serving_tables import SEMANTIC_CODEBOOKS

MAX_BITS = 63  # bits of a non-negative int64

Codes = NDArray[np.int32]
Books = Sequence[Floats]
"""Centroids of each level, shape (codes, dimensions)."""


ITERATIONS = 20  # k-means iterations per level


def fit_codebooks(sample: Floats, settings: SemanticIdSettings, seed: int) -> list[Floats]:
    """Centroids of each level.

    Args:
        sample: training vectors, shape (n, dimensions).
        settings: levels and codebook_size; a level has at most n // 39 codes, but at least one.
        seed: random seed of the initial centroids.
    """
    residuals = sample.copy()
    books: list[Floats] = []
    codes = max(1, min(settings.codebook_size, len(sample) // MIN_POINTS_PER_CENTROID))
    with one_thread():
        for level in range(settings.levels):
            kmeans = faiss().Kmeans(
                residuals.shape[1],
                codes,
                niter=ITERATIONS,
                seed=seed + level,
                max_points_per_centroid=1 << 30,
                min_points_per_centroid=1,
            )
            kmeans.train(residuals)
            books.append(np.array(kmeans.centroids, np.float32).reshape(codes, -1))
            residuals -= books[-1][_nearest(residuals, books[-1])]
    return books


def encode_vectors(vectors: Floats, books: Books) -> tuple[Codes, NDArray[np.float64]]:
    """Codes of each vector, shape (n, levels), and the sum of squared residuals after each level, shape (levels,)."""
    residuals = vectors.copy()
    codes = np.empty((len(vectors), len(books)), np.int32)
    errors = np.zeros(len(books))
    with one_thread():
        for level, centres in enumerate(books):
            codes[:, level] = _nearest(residuals, centres)
            residuals -= centres[codes[:, level]]
            errors[level] = np.einsum("ij,ij->", residuals, residuals, dtype=np.float64)
    return codes, errors


def _nearest(vectors: Floats, centres: Floats) -> NDArray[np.int64]:
    """Nearest centroid of each vector: the one with the largest v·c - |c|²/2."""
    scores = vectors @ centres.T
    scores -= 0.5 * np.einsum("ij,ij->i", centres, centres)
    return np.asarray(scores.argmax(axis=1))


def groups(codes: Codes) -> list[NDArray[np.int64]]:
    """For each level, a group number per row: rows with equal codes up to this level have the same number."""
    order, begins = _sorted_groups(codes)
    matrices = []
    for level in range(codes.shape[1]):
        group = np.empty(len(codes), np.int64)
        group[order] = np.cumsum(begins[:, level]) - 1
        matrices.append(group)
    return matrices


def last_groups(codes: Codes) -> tuple[NDArray[np.int64], list[float]]:
    """The last level's group number per row, and the share of rows that are alone in their group by level.

    Faster than `groups`: only the last level is brought back into the order of the rows.
    """
    order, begins = _sorted_groups(codes)
    group = np.empty(len(codes), np.int64)
    group[order] = np.cumsum(begins[:, -1]) - 1
    ends = np.concatenate([begins[1:], np.ones((min(1, len(codes)), codes.shape[1]), np.bool_)])
    shares = (begins & ends).sum(axis=0) / max(1, len(codes))
    return group, shares.tolist()


def _sorted_groups(codes: Codes) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Row order by codes, and whether a group of each level begins at each place, shape (n, levels)."""
    order = _lexicographic_order(codes)
    differs = np.logical_or.accumulate(np.diff(codes[order], axis=0) != 0, axis=1)
    return order, np.concatenate([np.ones((min(1, len(codes)), codes.shape[1]), np.bool_), differs])


def _lexicographic_order(codes: Codes) -> NDArray[np.int64]:
    """Row order by codes, level by level. Codes that fit into 63 bits are packed into an integer: faster to sort."""
    bits = max(1, int(codes.max(initial=0)).bit_length())
    if bits * codes.shape[1] > MAX_BITS:
        return np.lexsort(codes.T[::-1])
    combined_key = np.zeros(len(codes), np.int64)
    for level in range(codes.shape[1]):
        combined_key = combined_key << bits | codes[:, level]
    return np.argsort(combined_key, kind="stable")


def perplexity(codes: Codes) -> float:
    """Perplexity of one level's codes: exp of their entropy."""
    counts = np.bincount(codes)
    shares = counts[counts > 0] / max(1, len(codes))
    return float(np.exp(-(shares * np.log(shares)).sum()))


def pair_agreement(first: NDArray[np.int64], other: NDArray[np.int64]) -> float | None:
    """Jaccard index of the row pairs that share a group in each of two groupings; None if there are no such pairs."""
    both = np.unique(first * (int(other.max(initial=0)) + 1) + other, return_counts=True)[1]
    by_both, by_one, by_other = (_pairs(counts) for counts in (both, np.bincount(first), np.bincount(other)))
    either = by_one + by_other - by_both
    return by_both / either if either else None


def _pairs(counts: NDArray[np.int64]) -> float:
    """Number of row pairs within groups of these sizes."""
    return float((counts * (counts - 1) // 2).sum())


def codebook_rows(fit: int, books: Books) -> pa.Table:
    """Rows of `semantic_codebooks`."""
    sizes = [len(centres) for centres in books]
    numbers = pa.array(np.concatenate([centres.ravel() for centres in books]))
    ends = np.arange(sum(sizes) + 1, dtype=np.int32) * books[0].shape[1]
    return SEMANTIC_CODEBOOKS.rows(
        {
            "fit": pa.repeat(fit, sum(sizes)),
            "level": pa.array(np.repeat(np.arange(1, len(books) + 1), sizes)),
            "code": pa.array(np.concatenate([np.arange(size) for size in sizes])),
            "centre": pa.ListArray.from_arrays(pa.array(ends), numbers),
        }
    )


def read_codebooks(rows: pa.Table, fit: int) -> list[Floats]:
    """Centroids of a fit, from rows of `semantic_codebooks`."""
    fit_rows = rows.filter(pc.equal(rows["fit"], fit)).sort_by([("level", "ascending"), ("code", "ascending")])
    levels = fit_rows["level"].to_numpy()
    centroids = np.asarray(fit_rows["centre"].combine_chunks().flatten(), np.float32).reshape(
        len(levels), _width(fit_rows)
    )
    return [np.ascontiguousarray(centroids[levels == level]) for level in np.unique(levels)]


def _width(rows: pa.Table) -> int:
    return len(rows["centre"][0]) if rows.num_rows else 0


def codebook_id(books: Books) -> str:
    """Hash of the centroids: 16 hex digits."""
    digest = sha256()
    for centres in books:
        digest.update(f"{centres.shape}".encode())
        digest.update(centres.astype("<f4").tobytes())
    return digest.hexdigest()[:16]
