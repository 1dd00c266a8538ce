"""Truncated singular value decomposition that gives the same answer on every run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

_OVERSAMPLING = 20
_POWER_ITERATIONS = 2
_SEED = 20240607
_SMALLEST = 1e-3
"""Singular values below this share of the first are rounding, squared as they are in float32."""


def truncated_svd(
    matrix: sparse.csr_matrix, rank: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Leading singular triplets by randomised subspace iteration (Halko, Martinsson and Tropp 2011).

    Args:
        matrix: shape (m, n).
        rank: how many are wanted; fewer come back where the matrix has no more above rounding. An empty or
            all-zero matrix gives one triplet of zeros.

    Returns:
        Left vectors (m, r), singular values (r,) descending, right vectors (r, n). The largest entry of each
        right vector is positive, which settles the sign.
    """
    if not matrix.nnz:
        left, right = np.zeros((matrix.shape[0], 1), np.float32), np.zeros((1, matrix.shape[1]), np.float32)
        return left, np.zeros(1, np.float32), right
    width = min(rank + _OVERSAMPLING, *matrix.shape)
    start = np.random.default_rng(_SEED).standard_normal((matrix.shape[1], width), dtype=np.float32)
    transposed = matrix.T.tocsr()
    basis = _orthonormal(matrix @ start)
    for _ in range(_POWER_ITERATIONS):
        basis = _orthonormal(matrix @ (transposed @ basis))
    projected = transposed @ basis
    squares, rotation = np.linalg.eigh(projected.T.astype(np.float64) @ projected)
    values = np.sqrt(np.maximum(squares[::-1][:rank], 0))
    kept = max(1, int(np.count_nonzero(values > _SMALLEST * values[0])))
    rotation = rotation[:, ::-1][:, :kept].astype(np.float32)
    values = values[:kept].astype(np.float32)
    right = (projected @ rotation / values).T
    signs = np.where(right[np.arange(kept), np.abs(right).argmax(axis=1)] < 0, -1, 1).astype(np.float32)
    return (basis @ rotation) * signs, values, right * signs[:, None]


def _orthonormal(matrix: NDArray[Any]) -> NDArray[np.float32]:
    return np.linalg.qr(np.asarray(matrix, dtype=np.float32))[0]
