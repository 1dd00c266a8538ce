"""Share of a reference's results that are found."""

import numpy as np
import pytest

from darklode.pipeline.model_swap.recall import mean_share, share_found


def test_share_of_the_reference_that_is_found() -> None:
    reference = np.array([[1, 2, 3], [4, -1, -1], [-1, -1, -1]])
    results = np.array([[3, 9, 1], [5, 4, 6], [1, 2, 3]])
    shares = share_found(results, reference, 3)
    assert shares[:2].tolist() == [pytest.approx(2 / 3), 1.0]
    assert np.isnan(shares[2]), "unknown, not 0: the reference has no results"
    assert share_found(results, reference, 1)[:2].tolist() == [0.0, 0.0]


def test_an_empty_place_is_no_hit() -> None:
    assert share_found(np.array([[-1, -1]]), np.array([[7, -1]]), 2).tolist() == [0.0]


def test_the_mean_has_an_interval_and_a_lower_bound_that_allows_for_rare_losses() -> None:
    share = mean_share(np.array([1.0] * 50 + [np.nan]), 13)
    assert (share.value, share.low, share.queries) == (1.0, 1.0, 50)
    assert share.bounded_low == pytest.approx(0.025 ** (1 / 50), abs=0.01), "Clopper-Pearson"
    mixed = mean_share(np.random.default_rng(0).choice([0.0, 1.0], 400), 13)
    assert max(mixed.bounded_low, mixed.low) < mixed.value < mixed.high
    assert mixed.low == pytest.approx(mixed.value - 1.96 * 0.5 / 20, abs=0.01)
    assert mean_share(np.array([np.nan]), 13).queries == 0
