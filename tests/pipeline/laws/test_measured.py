"""Means of entropy: by split, with intervals over clusters and none of a single one."""

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.laws.measured import means
from darklode.schemas.law_tables import CONTRASTIVE_ENTROPY


def rows(entropy: list[float], group: list[str], split: list[str]) -> pa.Table:
    n = len(entropy)
    about = {"tenant": ["acme"] * n, "encoder": ["e"] * n, "temperature": [0.05] * n, "negatives": [256] * n}
    ids = [str(number) for number in range(n)]
    columns = {"query_id": ids, "text_id": ids, "entropy": entropy, "group": group, "split": split}
    return CONTRASTIVE_ENTROPY.rows({**about, **columns})


def test_each_split_has_its_mean_and_one_cluster_has_no_interval() -> None:
    values = [1.0, 2.0, 3.0, 6.0, 4.0]
    test, train = means(rows(values, ["a", "a", "b", "c", "d"], ["train"] * 4 + ["test"]), 0).to_pylist()
    assert (test["split"], test["mean"], test["low"], test["high"]) == ("test", 4.0, None, None)
    assert (train["mean"], train["pairs"]) == (3.0, 4)
    assert 1.5 <= train["low"] < 3 < train["high"] <= 6
    assert train["chance"] == pytest.approx(np.log(257))


def test_pairs_of_one_cluster_count_as_one_draw() -> None:
    values = np.random.default_rng(0).normal(2, 0.5, 40).repeat(10).tolist()
    group = [str(number // 10) for number in range(400)]
    together, apart = (
        means(rows(values, one, ["test"] * 400), 0).to_pylist()[0] for one in (group, [str(n) for n in range(400)])
    )
    assert together["high"] - together["low"] > 2 * (apart["high"] - apart["low"])
