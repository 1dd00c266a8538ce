"""What could be gained, told before training and without a look at the test queries' lists."""

import pytest

from darklode.pipeline.train.release.headroom import detectable
from helpers.adapted import SIDES
from helpers.runs import read

from ..conftest import Adapted


def test_what_92_queries_can_show() -> None:
    assert detectable(92) == pytest.approx(0.0768, abs=1e-4)
    assert detectable(10_000) == pytest.approx(2.802 * 0.2 / 100, abs=2e-4)
    assert (detectable(0), detectable(9)) == (None, None)


def test_each_bound_is_at_least_the_base(adapted: Adapted) -> None:
    rows = {(row["system"], row["measure"]): row for row in read(adapted.out, "headroom")}
    value = {key: float(str(row["value"])) for key, row in rows.items()}
    assert {row["queries"] for row in rows.values()} == {SIDES["train"] - 1 + SIDES["validation"]}, "12 do not do"
    best = "base, its first 100 in the best order"
    for measure in ("nDCG@10", "R@10", "R@100"):
        assert value["base", measure] <= value[best, measure] <= value["perfect", measure] == 1
        assert value["judge: labelled texts by its probability", measure] == 1
    assert value["base", "nDCG@10"] < value[best, "nDCG@10"]


def test_the_queries_that_decide_are_counted(adapted: Adapted) -> None:
    facts = adapted.out.manifests()["headroom"].facts
    assert facts["deciding"] == SIDES["test"] - 1, "one shares its positive with training"
    assert facts["detectable"] == detectable(SIDES["test"] - 1)
    assert {name: side["queries"] for name, side in facts["sides"].items()} == SIDES | {"train": SIDES["train"] - 1}


def test_systems_without_labels_stand_beside_the_bounds(adapted: Adapted) -> None:
    rows = [row for row in read(adapted.out, "headroom") if row["measure"] == "nDCG@10"]
    assert [row["system"] for row in rows if row["label_free"]] == [
        "BM25",
        "base",
        "whitened base",
        "base with feedback",
        "BM25 + base, RRF",
        "BM25 + base, weighted",
        "BM25 + whitened base, RRF",
        "BM25 + whitened base, weighted",
    ]
    selected = {row["system"] for row in rows if row["setting"] is not None}
    fused = {"BM25 + base, weighted", "BM25 + whitened base, weighted"}
    assert selected == {"whitened base", "base with feedback"} | fused


def test_unlabelled_texts_of_the_top_ten_are_counted(adapted: Adapted) -> None:
    """Of each query's texts two have a label; lists of ten from eight systems have many more."""
    assert 8 <= adapted.out.manifests()["headroom"].facts["unlabelled"] <= 8 * 10
