"""Samples are uniform, seeded, and of as many rows as there are."""

from collections import Counter

import pyarrow as pa

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
