"""The reliability curve by hand, and what holds for any labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from pipeline.calibration.reliability import BINS, reliability_curve, wilson

PAIRS = st.lists(st.tuples(st.sampled_from(np.linspace(0, 1, 37).tolist()), st.booleans()), min_size=1, max_size=80)


def test_ece_by_hand() -> None:
    # Ten bins of two pairs; nine of them say 0.1 and 0.3 … and are right by half, the last says 0.9 and 1.0.
    probability = np.arange(20, dtype=np.float32) / 20
    positive = np.array([False, True] * 10)
    curve = reliability_curve(probability, positive)
    means = np.array([0.025 + 0.1 * place for place in range(10)])
    assert curve.mean_probability == pytest.approx(means, abs=1e-7)
    assert curve.relevant_share.tolist() == [0.5] * 10
    # |0.025-0.5| + |0.125-0.5| + … + |0.925-0.5| = 0.475+0.375+0.275+0.175+0.075+0.025+0.125+0.225+0.325+0.425 = 2.5
    assert curve.ece == pytest.approx(0.25, abs=1e-7)


def test_probabilities_that_mean_what_they_say_have_no_error() -> None:
    probability = np.repeat(np.array([0.25, 0.75], dtype=np.float32), 40)
    positive = np.array(([True] + [False] * 3) * 10 + ([True] * 3 + [False]) * 10)
    curve = reliability_curve(probability, positive)
    assert curve.labels.tolist() == [40, 40]
    assert curve.ece == 0


@given(PAIRS)
def test_every_pair_is_in_one_bin_and_equal_probabilities_in_the_same(pairs: list[tuple[float, bool]]) -> None:
    probability = np.array([one for one, _ in pairs], dtype=np.float32)
    positive = np.array([label for _, label in pairs])
    curve = reliability_curve(probability, positive)
    assert curve.labels.sum() == len(pairs)
    assert 1 <= len(curve.labels) <= BINS
    assert (curve.highest[:-1] < curve.lowest[1:]).all()
    assert np.sum(curve.labels * curve.relevant_share) == pytest.approx(positive.sum())
    assert 0 <= curve.ece <= 1
    assert (curve.share_low <= curve.relevant_share + 1e-12).all()
    assert (curve.share_high >= curve.relevant_share - 1e-12).all()


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(pairs: list[tuple[float, bool]], random: "np.random.Generator") -> None:
    mixed = list(pairs)
    random.shuffle(mixed)  # type: ignore[arg-type]
    first, second = (
        reliability_curve(np.array([p for p, _ in some], dtype=np.float32), np.array([y for _, y in some]))
        for some in (pairs, mixed)
    )
    assert first.relevant_share.tolist() == second.relevant_share.tolist()
    assert first.ece == second.ece


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (10, 10), (3, 10), (50, 200), (1, 1)])
def test_wilson_is_scipys(hits: int, n: int) -> None:
    known = binomtest(hits, n).proportion_ci(method="wilson")
    low, high = wilson(np.array([hits]), np.array([n]))
    assert (low[0], high[0]) == pytest.approx((known.low, known.high), abs=1e-12)
