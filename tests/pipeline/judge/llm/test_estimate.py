"""Samples are uniform, seeded, and of as many rows as there are; adaptive judging asks about a part."""

from collections import Counter

import pyarrow as pa
import pytest

from darklode.pipeline.judge.estimate import Estimate, least_share
from darklode.pipeline.judge.llm.estimate import draw


def blocks(n: int, size: int = 7) -> list[pa.Table]:
    return [pa.table({"row": list(range(at, min(at + size, n)))}) for at in range(0, n, size)]


def test_a_sample_is_seeded_and_in_order_of_the_rows() -> None:
    sample, count = draw(blocks(100), 10, seed=1)
    rows = sample["row"].to_pylist()
    assert (count, len(rows), rows) == (100, 10, sorted(set(rows)))
    assert draw(blocks(100, 30), 10, seed=1)[0]["row"].to_pylist() == rows, "however it is cut into blocks"
    assert draw(blocks(100), 10, seed=2)[0]["row"].to_pylist() != rows


def test_every_row_is_as_likely() -> None:
    drawn = Counter(row for seed in range(2000) for row in draw(blocks(20), 5, seed)[0]["row"].to_pylist())
    assert len(drawn) == 20
    assert all(abs(times - 500) < 100 for times in drawn.values())


def test_fewer_rows_than_asked_for_are_all_taken() -> None:
    assert draw(blocks(3), 10, seed=1)[0].num_rows == 3
    assert draw([], 10, seed=1)[1] == 0


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
