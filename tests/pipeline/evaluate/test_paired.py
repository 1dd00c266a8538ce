"""Two systems on the same queries: intervals, tests and corrections against other implementations and by simulation."""

import numpy as np
import pytest
from scipy import stats

from darklode.pipeline.evaluate.paired import (
    MIN_CLUSTERS,
    POWER_FACTOR,
    ResamplingSettings,
    compare_paired,
    detectable_gain,
    holm,
    is_above_zero,
    is_gain,
    linearized_interval,
    means,
)


def groups_of(n: int) -> np.ndarray:
    return np.arange(n)


def test_p_is_that_of_scipys_permutation_test() -> None:
    random = np.random.default_rng(1)
    one, other = random.random(40), random.random(40)
    for shift in (0.0, 0.05, 0.15):
        found = compare_paired((one + shift)[:, None], other[:, None], groups_of(40), ResamplingSettings(flips=20_000))
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
    found = compare_paired(ahead, np.zeros((4, 1)), groups_of(4), ResamplingSettings(flips=40))
    assert found.p[0] == 2 / 16  # of 16 ways to draw four signs two are as extreme
    assert (found.wins.tolist(), found.losses.tolist()) == ([4], [0])
    random = np.random.default_rng(3).normal(0.1, 0.2, (12, 3))
    exact, drawn = (
        compare_paired(random, np.zeros((12, 3)), groups_of(12), ResamplingSettings(flips=flips)).p
        for flips in (2048, 2047)
    )
    wanted = [stats.permutation_test((one,), np.mean, permutation_type="samples").pvalue for one in random.T]
    assert exact == pytest.approx(wanted)
    assert drawn == pytest.approx(wanted, abs=0.04)


def test_the_least_p_passes_the_correction_for_as_many_tests_as_there_are() -> None:
    ahead = np.random.default_rng(3).uniform(0.1, 0.2, (40, 1))
    for tests in (1, 660):
        found = compare_paired(ahead, np.zeros((40, 1)), groups_of(40), ResamplingSettings(flips=100, tests=tests))
        assert holm([found.p[0], *[1.0] * (tests - 1)])[0] <= 0.01


def test_many_clusters_are_tested_as_sums_of_several() -> None:
    values = np.random.default_rng(3).normal(0.004, 0.2, (25_000, 1))
    found = compare_paired(values, np.zeros((25_000, 1)), groups_of(25_000), ResamplingSettings(resamples=100))
    assert found.p[0] == pytest.approx(2 * stats.norm.sf(values.sum() / np.sqrt((values**2).sum())), abs=0.02)


def test_a_mean_of_clusters_and_its_linear_form_are_the_same() -> None:
    random = np.random.default_rng(5)
    values = random.normal(0.1, 0.2, (30, 1))
    found = compare_paired(values, np.zeros((30, 1)), groups_of(30), ResamplingSettings())
    linear = linearized_interval(float(values.mean()), (values[:, 0] - values.mean()) / 30, ResamplingSettings())
    assert linear == pytest.approx((found.low[0], found.high[0]))


def shown(values: list[float]) -> tuple[bool, bool]:
    ahead = np.array(values)[:, None]
    row = compare_paired(ahead, np.zeros_like(ahead), groups_of(len(ahead)), ResamplingSettings()).row(0)
    return is_above_zero(row), is_gain(row)


def test_a_gain_takes_clusters_and_no_room_for_a_loss_that_was_not_seen() -> None:
    assert shown([0.9] * (MIN_CLUSTERS - 1)) == (False, False)
    assert shown([0.9] * MIN_CLUSTERS) == (True, True)
    assert shown([0.05] * 14) == (True, False)  # one in five might lose everything, and none would be among 14
    assert shown([0.05] * 200) == (True, True)
    assert shown([0.02] * 199 + [-1.0]) == (False, False)
    assert shown([0.0] * 40) == (False, False)


def test_the_bound_of_shares_is_that_of_clopper_and_pearson() -> None:
    for wins, n in ((20, 20), (15, 20), (40, 60)):
        values = np.r_[np.zeros(wins), np.full(n - wins, -1.0)][:, None]  # a loss is the least that a value can be
        found = (
            compare_paired(values, np.zeros((n, 1)), groups_of(n), ResamplingSettings(resamples=20_000)).bounded_low[0]
            + 1
        )
        assert found == pytest.approx(stats.beta.ppf(0.025, wins, n - wins + 1), abs=0.01)


def test_an_interval_of_skewed_differences_holds_the_mean() -> None:
    random = np.random.default_rng(17)
    tries = 0.1 * (1 - random.exponential(1, (20, 1000)))
    found = compare_paired(tries, np.zeros_like(tries), groups_of(20), ResamplingSettings(resamples=400))
    above, below = float((found.low > 0).mean()), float((found.high < 0).mean())
    assert above < 0.06  # of percentile intervals .085
    assert below < 0.05


def test_an_end_that_resamples_leave_open_is_the_greatest_difference() -> None:
    one = np.r_[np.zeros(10), 0.3, 0.2][:, None]
    found = compare_paired(one, np.zeros_like(one), groups_of(12), ResamplingSettings())
    assert (found.high[0], np.isfinite(found.low[0])) == (1.0, True)


def test_the_detectable_gain_is_released_four_times_of_five() -> None:
    random = np.random.default_rng(19)
    for n in (40, 100):
        least = detectable_gain(0.2 / np.sqrt(n), n)
        tries = random.normal(least, 0.2, (n, 300))
        found = compare_paired(tries, np.zeros_like(tries), groups_of(n), ResamplingSettings(400, 1000))
        assert np.mean([is_gain(found.row(at)) for at in range(300)]) == pytest.approx(0.8, abs=0.09)


def test_equal_systems_do_not_differ() -> None:
    values = np.random.default_rng(5).random((30, 2))
    found = compare_paired(values, values.copy(), groups_of(30), ResamplingSettings())
    assert found.p.tolist() == [1.0, 1.0]
    assert (found.low.tolist(), found.high.tolist()) == ([0.0, 0.0], [0.0, 0.0])
    assert not found.wins.any()
    assert not found.losses.any()


def test_copies_of_a_query_say_no_more_than_one() -> None:
    random = np.random.default_rng(7)
    ahead = random.normal(0.05, 0.2, (20, 1))
    once = compare_paired(ahead, np.zeros((20, 1)), groups_of(20), ResamplingSettings())
    copies = compare_paired(
        np.repeat(ahead, 10, axis=0), np.zeros((200, 1)), np.repeat(np.arange(20), 10), ResamplingSettings()
    )
    careless = compare_paired(np.repeat(ahead, 10, axis=0), np.zeros((200, 1)), groups_of(200), ResamplingSettings())
    assert copies.p[0] == pytest.approx(once.p[0])
    assert copies.high[0] - copies.low[0] == pytest.approx(once.high[0] - once.low[0])
    assert copies.detectable[0] == pytest.approx(once.detectable[0])
    assert careless.detectable[0] < 0.5 * copies.detectable[0]


def test_the_detectable_difference_is_found_four_times_of_five() -> None:
    random = np.random.default_rng(11)
    least = compare_paired(
        random.normal(0, 0.2, (92, 1)), np.zeros((92, 1)), groups_of(92), ResamplingSettings(10, 10)
    ).detectable[0]
    assert least == pytest.approx(0.058, abs=0.012)  # 2.8 · 0.2 / √92
    tries = [
        compare_paired(
            random.normal(least, 0.2, (92, 1)), np.zeros((92, 1)), groups_of(92), ResamplingSettings(10, 500)
        ).p[0]
        for _ in range(200)
    ]
    assert np.mean(np.array(tries) <= 0.05) == pytest.approx(0.8, abs=0.12)


def test_one_group_has_no_detectable_difference() -> None:
    found = compare_paired(
        np.array([[0.5], [0.6]]), np.zeros((2, 1)), np.zeros(2, np.int64), ResamplingSettings(10, 10)
    )
    assert np.isnan(found.detectable[0])
    assert [found.row(0)[name] for name in ("low", "high", "clusters")] == [None, None, 1]


def test_intervals_hold_the_mean_19_times_of_20() -> None:
    random, held = np.random.default_rng(13), 0
    for number in range(200):
        values = random.normal(0.4, 0.2, (60, 1))
        _, low, high = means(values, groups_of(60), ResamplingSettings(resamples=300, seed=number))
        held += int(low[0] <= 0.4 <= high[0])
    assert 176 <= held <= 199


def test_holm_is_what_the_paper_steps_through() -> None:
    given = [0.01, 0.04, 0.03, 0.005, 0.5]
    assert holm(given).tolist() == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.5])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []


def test_p_of_draws_is_never_zero() -> None:
    """The data are one of the draws (Phipson and Smyth 2010): none of 99 that reaches them means p is at most .01."""
    ahead = np.random.default_rng(0).uniform(0.1, 0.2, (60, 1))
    assert 0 < compare_paired(ahead, np.zeros((60, 1)), groups_of(60), ResamplingSettings(flips=99)).p[0] <= 0.01


def test_the_standard_error_is_that_of_a_sample() -> None:
    ahead = np.random.default_rng(0).normal(0.05, 0.2, (5, 1))
    found = compare_paired(ahead, np.zeros((5, 1)), groups_of(5), ResamplingSettings(10, 10))
    assert found.detectable[0] == pytest.approx(POWER_FACTOR * ahead.std(ddof=1) / np.sqrt(5))


def test_above_zero_takes_an_interval_and_a_test() -> None:
    row = {"clusters": MIN_CLUSTERS, "low": 0.1, "p": 0.01, "bounded_low": 0.05}
    assert is_above_zero(row)
    for change in ({"clusters": MIN_CLUSTERS - 1}, {"low": None}, {"low": 0.0}, {"p": 0.051}, {"p": 1.0}):
        assert not is_above_zero(row | change)
    assert not is_gain(row | {"bounded_low": 0.0})
