"""The truncated SVD against NumPy's full one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from pipeline.encoders.svd import truncated_svd


def low_rank(rank: int, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    left = np.linalg.qr(random.standard_normal((60, rank)))[0]
    right = np.linalg.qr(random.standard_normal((40, rank)))[0]
    return np.asarray(left * np.arange(rank, 0, -1) @ right.T, dtype=np.float32)


def test_leading_triplets_equal_the_full_decomposition() -> None:
    matrix = low_rank(8)
    left, values, right = truncated_svd(sparse.csr_matrix(matrix), 5)
    np.testing.assert_allclose(values, [8, 7, 6, 5, 4], rtol=1e-4)
    expected = np.linalg.svd(matrix)[2][:5]
    np.testing.assert_allclose(np.abs(np.sum(right * expected, axis=1)), 1, atol=1e-4)
    np.testing.assert_allclose(left.T @ left, np.eye(5), atol=1e-4)
    np.testing.assert_allclose(matrix @ right.T, left * values, atol=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_signs_are_settled_and_runs_agree(seed: int) -> None:
    matrix = sparse.csr_matrix(low_rank(6, seed))
    left, _, right = truncated_svd(matrix, 6)
    assert (right[np.arange(6), np.abs(right).argmax(axis=1)] > 0).all()
    again = truncated_svd(matrix, 6)
    np.testing.assert_array_equal(left, again[0])
    np.testing.assert_array_equal(right, again[2])


def test_no_more_triplets_than_the_rank() -> None:
    left, values, right = truncated_svd(sparse.csr_matrix(low_rank(3)), 20)
    assert (left.shape, values.shape, right.shape) == ((60, 3), (3,), (3, 40))


def test_an_empty_matrix_gives_one_triplet_of_zeros() -> None:
    for shape in ((4, 3), (4, 0), (0, 3)):
        left, values, right = truncated_svd(sparse.csr_matrix(shape, dtype=np.float32), 2)
        assert (left.shape, values.tolist(), right.shape) == ((shape[0], 1), [0.0], (1, shape[1]))
