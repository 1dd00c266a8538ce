"""The bound, the interval, and the rounds as a whole."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from darklode.pipeline.judge.adaptive.evidence import Evidence
from darklode.pipeline.judge.adaptive.rounds import Rounds, missed, needed, recall_outside
from helpers.made_evidence import made

DICE = np.random.default_rng(3)


@pytest.mark.parametrize(("positives", "recall"), [(29, 0.9), (100, 0.9), (60, 0.8), (400, 0.95)])
def test_the_bound_is_the_least_that_keeps_its_promise(positives: int, recall: float) -> None:
    """Would the learner reach so many if it had found less than wanted? In less than one of twenty cases."""
    wanted = needed(positives, recall)
    assert wanted is not None
    assert binom.sf(wanted - 1, positives, recall) <= 0.05 < binom.sf(wanted - 2, positives, recall)


def test_too_few_positives_promise_nothing() -> None:
    assert needed(28, 0.9) is None
    assert needed(0, 0.9) is None
    assert needed(29, 0.9) == 29


def test_a_slice_larger_than_the_recall_suffices_alone() -> None:
    assert needed(3, recall_outside(0.2, 0.3)) == 0
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
        said = missed(found, left, int((positive & drawn).sum()), int((positive & reached & drawn).sum()))
        assert 0 <= said.low <= said.share <= said.high <= 1
        covered += said.low <= (positive & ~reached & ~drawn).sum() / 1_500 <= said.high
    assert covered >= 0.93 * 400


def test_no_more_can_be_missed_than_was_left() -> None:
    said = missed(found=0, unjudged=50, positives=10, reached=0)
    assert said.high == said.share == 50 / 60


def run(evidence: Evidence, labels: Any, seed: int = 0, recall: float = 0.8) -> tuple[Rounds, list[Any]]:
    rounds, asked = Rounds(evidence, recall=recall, random_share=0.2, seed=seed), []
    while len(numbers := rounds.next()):
        rounds.learn(numbers, labels[numbers])
        asked.append(numbers)
    return rounds, asked


def test_rounds_ask_for_no_pair_twice_and_reach_the_recall() -> None:
    evidence, labels = made()
    reached = 0
    for seed in range(12):
        rounds, asked = run(evidence, labels, seed)
        everything = np.concatenate(asked)
        assert len(np.unique(everything)) == len(everything)
        assert set(rounds.unjudged) == set(range(evidence.n_pairs)) - set(everything)
        assert rounds.positives == labels[everything].sum()
        reached += rounds.positives >= 0.8 * labels.sum()
    assert reached >= 11


def test_verdicts_of_the_slice_teach_the_learner_nothing() -> None:
    """Other labels for the slice's negatives, as many positives as before: the same calls follow."""
    evidence, labels = made()
    rounds, asked = run(evidence, labels)
    drawn = np.flatnonzero(rounds._random)
    other = labels.copy()
    other[drawn] = np.where(labels[drawn] > 0, 1.0, np.nan)
    assert all(np.array_equal(*pair) for pair in zip(asked, run(evidence, other)[1], strict=True))
