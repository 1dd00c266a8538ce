"""The bound and the intervals, held against simulation."""

import numpy as np
import pytest
from scipy.stats import binom

from darklode.pipeline.judge.adaptive.recall_estimate import (
    estimate_missed,
    estimate_missed_by_query,
    min_random_positives,
    recall_outside,
)

DICE = np.random.default_rng(3)


@pytest.mark.parametrize(("positives", "recall"), [(29, 0.9), (100, 0.9), (60, 0.8), (400, 0.95)])
def test_the_bound_is_the_least_that_keeps_its_promise(positives: int, recall: float) -> None:
    """Would the learner reach so many if it had found less than wanted? In less than one of twenty cases."""
    wanted = min_random_positives(positives, recall)
    assert wanted is not None
    assert binom.sf(wanted - 1, positives, recall) <= 0.05 < binom.sf(wanted - 2, positives, recall)


def test_too_few_positives_promise_nothing() -> None:
    assert min_random_positives(28, 0.9) is None
    assert min_random_positives(0, 0.9) is None
    assert min_random_positives(29, 0.9) == 29


def test_a_slice_larger_than_the_recall_suffices_alone() -> None:
    assert min_random_positives(3, recall_outside(0.2, 0.3)) == 0
    assert recall_outside(0.9, 0.0) == 0.9


@pytest.mark.parametrize("recall", [0.55, 0.9, 0.97])
def test_the_interval_covers_the_missed_share_in_simulation(recall: float) -> None:
    """400 slices of a pool of 20,000 pairs with 1,500 positives, of which the learner reaches a known share."""
    covered = 0
    for _ in range(400):
        positive, reached = np.arange(20_000) < 1_500, np.arange(20_000) < 1_500 * recall
        drawn = np.zeros(20_000, bool)
        drawn[DICE.choice(20_000, 1_200, replace=False)] = True
        found = int((positive & reached & ~drawn).sum())
        left = int((~reached & ~drawn).sum())
        said = estimate_missed(found, left, int((positive & drawn).sum()), int((positive & reached & drawn).sum()))
        assert 0 <= said.low <= said.share <= said.high <= 1
        covered += said.low <= (positive & ~reached & ~drawn).sum() / 1_500 <= said.high
    assert covered >= 0.93 * 400


def test_no_more_can_be_missed_than_was_left() -> None:
    said = estimate_missed(n_found=0, unjudged=50, positives=10, n_reached=0)
    assert said.high == said.share == 50 / 60


def test_no_more_can_be_missed_than_was_left_though_half_of_the_slice_was() -> None:
    said = estimate_missed(n_found=100, unjudged=5, positives=10, n_reached=5)
    assert said.share == said.high == 5 / 115, "by the slice alone it were 100 more"


def test_a_slice_without_a_positive_promises_nothing_however_large() -> None:
    assert min_random_positives(0, recall_outside(0.2, 0.3)) is None


def test_queries_count_alike_however_many_positives_they_have() -> None:
    """One query lost its only positive, another kept nine of ten, all of which the slice holds."""
    weights, reached = np.array([1.0, *[0.1] * 10]), np.array([False, *[True] * 9, False])
    said = estimate_missed_by_query(weights, reached, drawn=0.0)
    assert said.share == pytest.approx(1 - 0.9 / 2)
    assert estimate_missed_by_query(weights, reached, drawn=0.2).share == pytest.approx(0.8 * said.share)
    assert estimate_missed_by_query(np.ones(40), np.ones(40, bool), 0.1).low == 0


@pytest.mark.parametrize("lost", [0.05, 0.2, 0.4])
def test_the_interval_by_query_covers_the_mean_over_queries(lost: float) -> None:
    """400 slices of 600 queries with 1 to 12 positives; queries with one lose `lost`, the others a third of that."""
    positives = np.tile([1, 1, 1, 4, 8, 12], 100)
    query = np.repeat(np.arange(600), positives)
    reached = DICE.random(len(query)) >= np.where(positives == 1, lost, lost / 3)[query]
    drawn_share, covered = 0.06, 0
    truth = (1 - drawn_share) * np.mean(np.bincount(query, ~reached) / positives)
    for _ in range(400):
        drawn = DICE.random(len(query)) < drawn_share
        said = estimate_missed_by_query(1 / positives[query[drawn]], reached[drawn], drawn_share)
        assert 0 <= said.low <= said.share <= said.high <= 1
        covered += said.low <= truth <= said.high
    assert covered >= 0.93 * 400
