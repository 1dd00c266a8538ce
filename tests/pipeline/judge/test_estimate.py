"""The lower bound of adaptive judging, and the table of an estimate."""

import pytest

from darklode.pipeline.judge.estimate import Estimate, least_share


def test_adaptive_judging_asks_at_least_for_its_slice_and_what_holds_the_recall() -> None:
    # Of 10,000 pairs 2,000 are relevant: 500 drawn hold 100 of them, and .895 of the other 1,900 are still to be found.
    assert least_share(10_000, 0.2, 0.9, 0.1) == pytest.approx((500 + 9500 * 0.2 * (0.85 / 0.95)) / 10_000)
    assert least_share(10_000, 0.02, 0.9, 0.1) == 1, "20 positives in the slice promise nothing"
    assert least_share(10_000, None, 0.9, 0.1) == 1
    assert least_share(0, None, 0.9, 0.1) == 0


def test_a_table_at_adaptive_depth_has_both_ends() -> None:
    found = Estimate("m", 10_000, 8_000, 50, 1_000_000, None, 4.0, 100.0, 10.0, 0.2)
    rows = {row["estimate"]: row for row in found.table_at_adaptive_depth(0.9, 0.1).to_pylist()}
    assert (rows["to ask"]["at least"], rows["to ask"]["at most"]) == ("1,760", "8,000")
    assert (rows["prompt tokens"]["at least"], rows["cost"]["at least"]) == ("220,000", "0.88")
    assert (rows["completion tokens"]["at least"], rows["pairs"]["at least"]) == ("unknown", "10,000")
