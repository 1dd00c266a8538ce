"""Weights as rows come back as they were, whatever their shape."""

import numpy as np
import pyarrow as pa

from darklode.pipeline.train.fit.weights import as_rows, from_rows


def test_tensors_come_back_from_the_rows_of_their_trial() -> None:
    draws = np.random.default_rng(0)
    given = {"b.bias": draws.random(5, np.float32), "a.weight": draws.random((3, 4), np.float32)}
    other = {name: one + 1 for name, one in given.items()}
    rows = pa.concat_tables([as_rows(0, other), as_rows(1, given)])
    assert rows["tensor"].to_pylist() == (["a.weight"] * 3 + ["b.bias"]) * 2
    found = from_rows(pa.concat_tables([rows.slice(6), rows.slice(4, 2)]))
    assert np.array_equal(found["a.weight"], given["a.weight"])
    assert np.array_equal(found["b.bias"], given["b.bias"][None])
