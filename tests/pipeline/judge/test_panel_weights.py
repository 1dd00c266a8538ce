"""Weights of a panel's members: stacking on people's labels."""

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import cohens_kappa, confusion
from darklode.pipeline.judge.panel_weights import scale_weights, stack_members, weighted_votes

N_PAIRS = 4000


def independent_votes(positive: NDArray[np.bool_], accuracy: list[float]) -> NDArray[np.float64]:
    """Votes of members that err independently of one another."""
    is_right = np.random.default_rng(3).random((len(positive), len(accuracy))) < accuracy
    return np.where(is_right, positive[:, None], ~positive[:, None]).astype(np.float64)


def truth() -> NDArray[np.bool_]:
    return np.random.default_rng(1).random(N_PAIRS) < 0.3


def kappa(labels: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    return float(cohens_kappa(confusion(labels == 1, positive)))


def test_a_weighted_majority_counts_the_weights_of_the_members_that_answer() -> None:
    votes = np.array([[1, 0, 0], [0, 1, 1], [np.nan, 1, 0], [np.nan, 0, np.nan], [np.nan] * 3])
    np.testing.assert_array_equal(weighted_votes(votes, (1.0, 0.3, 0.3)), [1, 0, 0, 0, np.nan])
    np.testing.assert_array_equal(weighted_votes(votes, (1.0, 0.7, 0.6)), [0, 1, 1, 0, np.nan])


def test_weights_are_scaled_and_never_negative() -> None:
    assert scale_weights(np.array([2.0, -1.0, 0.5])) == (1.0, 0.0, 0.25)
    assert scale_weights(np.array([-2.0, -1.0])) == (1.0, 1.0)


def test_better_members_get_more_weight_and_the_vote_beats_a_majority() -> None:
    positive = truth()
    votes = independent_votes(positive, [0.95, 0.6, 0.6])
    weights = stack_members(votes, positive)
    assert weights[0] == 1.0
    assert max(weights[1:]) < 0.5
    majority = weighted_votes(votes, (1.0, 1.0, 1.0))
    assert kappa(weighted_votes(votes, weights), positive) > kappa(majority, positive) + 0.2


def test_few_labels_leave_the_weights_nearly_equal() -> None:
    positive = truth()[:100]
    votes = independent_votes(positive, [0.8, 0.7, 0.7])
    few, many = stack_members(votes, positive), stack_members(np.tile(votes, (40, 1)), np.tile(positive, 40))
    assert min(few) > min(many)
    assert min(few) > 0.5


def test_stacking_takes_missing_votes() -> None:
    positive = truth()
    votes = independent_votes(positive, [0.9, 0.7, 0.5])
    votes[::3, 2] = np.nan
    weights = stack_members(votes, positive)
    assert weights[0] == 1.0
    assert weights[2] < weights[1]


def test_copies_of_a_bad_judge_do_not_outvote_good_ones() -> None:
    positive = truth()
    votes = independent_votes(positive, [0.9, 0.9, 0.6])[:, [0, 1, 2, 2, 2]]
    majority = weighted_votes(votes, (1.0,) * 5)
    weights = stack_members(votes, positive)
    assert max(weights[2:]) < 0.5
    assert kappa(weighted_votes(votes, weights), positive) > kappa(majority, positive) + 0.3
