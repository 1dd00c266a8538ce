"""Two systems on the same queries: intervals, tests and corrections against other implementations and by simulation."""

import numpy as np
import pytest
from scipy import stats

from darklode.pipeline.evaluate.paired import Chance, compared, holm, means


def groups_of(n: int) -> np.ndarray:
    return np.arange(n)


def test_p_is_that_of_scipys_permutation_test() -> None:
    random = np.random.default_rng(1)
    one, other = random.random(40), random.random(40)
    for shift in (0.0, 0.05, 0.15):
        found = compared((one + shift)[:, None], other[:, None], groups_of(40), Chance(flips=20_000))
        wanted = stats.permutation_test(
            (one + shift, other),
            lambda a, b, axis: (a - b).mean(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=20_000,
            rng=np.random.default_rng(2),
        )
        assert found.p[0] == pytest.approx(wanted.pvalue, abs=0.03)
        assert found.mean[0] == pytest.approx((one + shift - other).mean())


def test_few_groups_give_the_exact_share_of_signs() -> None:
    ahead = np.array([[0.1], [0.2], [0.3], [0.4]])
    found = compared(ahead, np.zeros((4, 1)), groups_of(4), Chance(flips=40_000))
    assert found.p[0] == pytest.approx(2 / 16, abs=0.01)  # of 16 ways to draw four signs two are as extreme
    assert (found.wins.tolist(), found.losses.tolist()) == ([4], [0])


def test_equal_systems_do_not_differ() -> None:
    values = np.random.default_rng(5).random((30, 2))
    found = compared(values, values.copy(), groups_of(30), Chance())
    assert found.p.tolist() == [1.0, 1.0]
    assert (found.low.tolist(), found.high.tolist()) == ([0.0, 0.0], [0.0, 0.0])
    assert not found.wins.any()
    assert not found.losses.any()


def test_copies_of_a_query_say_no_more_than_one() -> None:
    random = np.random.default_rng(7)
    ahead = random.normal(0.05, 0.2, (20, 1))
    once = compared(ahead, np.zeros((20, 1)), groups_of(20), Chance())
    copies = compared(np.repeat(ahead, 10, axis=0), np.zeros((200, 1)), np.repeat(np.arange(20), 10), Chance())
    careless = compared(np.repeat(ahead, 10, axis=0), np.zeros((200, 1)), groups_of(200), Chance())
    assert copies.p[0] == pytest.approx(once.p[0])
    assert copies.high[0] - copies.low[0] == pytest.approx(once.high[0] - once.low[0])
    assert copies.detectable[0] == pytest.approx(once.detectable[0])
    assert careless.detectable[0] < 0.5 * copies.detectable[0]


def test_the_detectable_difference_is_found_four_times_of_five() -> None:
    random = np.random.default_rng(11)
    least = compared(random.normal(0, 0.2, (92, 1)), np.zeros((92, 1)), groups_of(92), Chance(10, 10)).detectable[0]
    assert least == pytest.approx(0.058, abs=0.012)  # 2.8 · 0.2 / √92
    tries = [
        compared(random.normal(least, 0.2, (92, 1)), np.zeros((92, 1)), groups_of(92), Chance(10, 500)).p[0]
        for _ in range(200)
    ]
    assert np.mean(np.array(tries) <= 0.05) == pytest.approx(0.8, abs=0.12)


def test_one_group_has_no_detectable_difference() -> None:
    found = compared(np.array([[0.5], [0.6]]), np.zeros((2, 1)), np.zeros(2, np.int64), Chance(10, 10))
    assert np.isnan(found.detectable[0])


def test_intervals_hold_the_mean_19_times_of_20() -> None:
    random, held = np.random.default_rng(13), 0
    for number in range(200):
        values = random.normal(0.4, 0.2, (60, 1))
        _, low, high = means(values, groups_of(60), Chance(resamples=300, seed=number))
        held += int(low[0] <= 0.4 <= high[0])
    assert 176 <= held <= 199


def test_holm_is_what_the_paper_steps_through() -> None:
    given = [0.01, 0.04, 0.03, 0.005, 0.5]
    assert holm(given).tolist() == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.5])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []
