import math

import numpy as np
import pytest

from darklode.pipeline.judge.teach.comparison import kappa_difference


def labels(n_queries: int, accuracy: float, seed: int) -> tuple[list[str], list[bool], list[bool | None]]:
    random = np.random.default_rng(seed)
    queries = [f"q{number}" for number in range(n_queries) for _ in range(4)]
    positive = [number % 2 == 0 for number in range(len(queries))]
    return queries, positive, [label if random.random() < accuracy else not label for label in positive]


def test_the_kappas_and_their_difference() -> None:
    queries, positive, poor = labels(60, 0.6, 1)
    difference = kappa_difference(queries, positive, poor, positive, seed=0)
    agreement = np.mean([label == truth for label, truth in zip(poor, positive, strict=True)])
    chance = 0.5  # half of the pairs are positive, so that chance agrees on half of them
    assert difference.today == pytest.approx((agreement - chance) / (1 - chance))
    assert difference.candidate == 1.0
    assert difference.low < 1 - difference.today < difference.high
    assert difference.is_better
    assert (difference.pairs, difference.queries) == (240, 60)


def test_no_better_judge_is_called_better() -> None:
    queries, positive, one = labels(60, 0.7, 1)
    assert not kappa_difference(queries, positive, one, one, seed=0).is_better
    worse = kappa_difference(queries, positive, positive, one, seed=0)
    assert worse.high < 0


def test_an_unreadable_label_counts_for_neither() -> None:
    queries, positive, one = labels(60, 0.7, 1)
    difference = kappa_difference(queries, positive, [None, *one[1:]], [one[0], None, *one[2:]], seed=0)
    assert difference.pairs == 238
    assert (difference.unreadable_today, difference.unreadable, difference.left_out) == (1, 1, 2)
    same = kappa_difference(queries, positive, [None, *one[1:]], [None, None, *one[2:]], seed=0)
    assert (same.unreadable_today, same.unreadable, same.left_out) == (1, 2, 2), (
        "a pair that both miss is left out once"
    )


def test_the_interval_covers_no_difference_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(60):
        queries, positive, one = labels(40, 0.7, seed)
        other = labels(40, 0.7, seed + 1000)[2]
        difference = kappa_difference(queries, positive, one, other, seed=seed)
        covered += difference.low <= 0 <= difference.high
    assert covered >= 52


def test_one_query_has_no_interval() -> None:
    difference = kappa_difference(["q"] * 4, [True, True, False, False], [True] * 4, [True, True, False, False], 0)
    assert math.isnan(difference.low)
    assert not difference.is_better
