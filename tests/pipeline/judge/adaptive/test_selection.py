"""Which pair is worth a call: gains by query, and the floor below them."""

from dataclasses import replace

import numpy as np
from scipy import sparse

from darklode.pipeline.judge.adaptive.pool_features import Evidence
from darklode.pipeline.judge.adaptive.selection import (
    MAX_GAIN_DIVISOR,
    MIN_JUDGED_SHARE,
    expected_gains,
    first_pairs_per_query,
)
from helpers.made_evidence import made


def two_queries() -> Evidence:
    """Two queries with ten pairs each, fused ranks descending by number in the second."""
    place = np.concatenate([np.arange(1, 11), np.arange(10, 0, -1)])
    nothing = sparse.csr_matrix((20, 1))
    features = np.zeros((20, 1), np.float32)
    return Evidence(np.array([0, 10, 20]), place, features, np.array([0]), nothing, sparse.csr_matrix((2, 2)))


def test_the_first_find_of_a_query_counts_more_than_anothers_next_one() -> None:
    labels = np.full(20, np.nan)
    labels[:3], labels[10:13] = [1, 1, 0], 0
    found = np.exp(expected_gains(two_queries(), np.zeros(20), labels))
    np.testing.assert_allclose(found, [0.5 / 3] * 10 + [0.5] * 10)


def test_from_some_finds_on_a_next_one_counts_the_same() -> None:
    evidence, labels = two_queries(), np.full(20, np.nan)
    labels[: MAX_GAIN_DIVISOR - 1] = 1
    at_most = expected_gains(evidence, np.zeros(20), labels)
    labels[:10] = 1
    np.testing.assert_array_equal(expected_gains(evidence, np.zeros(20), labels), at_most)


def test_within_a_query_the_likelier_pair_comes_first() -> None:
    evidence, labels = made(4)
    log_odds = np.random.default_rng(0).normal(size=evidence.n_pairs)
    found = expected_gains(evidence, log_odds, labels)
    for first, end in zip(evidence.starts[:-1], evidence.starts[1:], strict=True):
        assert np.array_equal(np.argsort(found[first:end]), np.argsort(log_odds[first:end]))


def test_a_query_below_its_floor_is_owed_its_best_fused_ranks() -> None:
    """All ten calls went to the first query; a round of four more comes."""
    asked = np.arange(20) < 10
    (numbers,) = np.nonzero(first_pairs_per_query(two_queries(), asked, 4))
    assert numbers.tolist() == [16, 17, 18, 19]  # half of 14 / 20 of ten pairs, the best four places
    assert numbers.size == np.ceil(MIN_JUDGED_SHARE * 14 / 20 * 10)


def test_nothing_is_owed_where_calls_are_even_and_never_more_than_is_left() -> None:
    evidence = two_queries()
    assert not first_pairs_per_query(evidence, evidence.fused_rank <= 4, 4).any()
    assert not first_pairs_per_query(evidence, np.ones(20, bool), 4).any()
    uneven = replace(evidence, starts=np.array([0, 18, 20]))
    assert first_pairs_per_query(uneven, np.zeros(20, bool), 20).sum() == 9 + 1
