"""The map that a smaller tower begins with: what it finds where there is one, and its ridge is told by the data."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from darklode.pipeline.towers.initialization import RIDGES, fit_linear_map, unit


@pytest.fixture
def draws() -> np.random.Generator:
    return np.random.default_rng(3)


def test_a_turn_is_found(draws: np.random.Generator) -> None:
    given = draws.normal(size=(200, 8)).astype(np.float32)
    turn, _ = np.linalg.qr(draws.normal(size=(8, 8)))
    found = fit_linear_map(5 * given, unit(given) @ turn.T)
    np.testing.assert_allclose(found, turn, atol=1e-4)


def test_of_noise_little_is_learned(draws: np.random.Generator) -> None:
    """Rows that say nothing of each other: the widest ridge is the best, and the map is small."""
    given, wanted = (draws.normal(size=(40, 30)).astype(np.float32) for _ in range(2))
    exact = np.linalg.norm(np.linalg.lstsq(unit(given), unit(wanted), rcond=None)[0])
    assert np.linalg.norm(fit_linear_map(given, unit(wanted))) < 0.5 * exact


def test_the_ridge_is_a_share_of_the_mean_variance(draws: np.random.Generator) -> None:
    given, wanted = unit(draws.normal(size=(12, 40))), unit(draws.normal(size=(12, 5)))
    found = fit_linear_map(given.astype(np.float32), wanted.astype(np.float32))
    every = [Ridge(alpha=ridge * 12 / 40, fit_intercept=False).fit(given, wanted).coef_ for ridge in RIDGES]
    assert min(np.abs(found - one).max() for one in every) < 1e-5


def test_a_single_row_and_blank_ones_are_no_fault() -> None:
    for n in (1, 2, 5):
        assert np.isfinite(fit_linear_map(np.zeros((n, 4), np.float32), np.zeros((n, 3), np.float32))).all()
    assert fit_linear_map(np.ones((1, 4), np.float32), np.ones((1, 3), np.float32)).shape == (3, 4)


def test_unit_normalizes_rows_of_any_length() -> None:
    np.testing.assert_allclose(unit(np.array([[3.0, 4], [3e-6, 4e-6], [0, 0]])), [[0.6, 0.8], [0.6, 0.8], [0, 0]])
