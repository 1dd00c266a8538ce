"""Fusion of rankings, against sums by hand."""

import pyarrow as pa
import pytest

from darklode.pipeline.train.data.fusion import by_value, fuse_by_rank, fuse_by_score, normalize


def ranking(query: str, **scores: float) -> pa.Table:
    ids = sorted(scores, key=lambda name: -scores[name])
    columns = {"query_id": [query] * len(ids), "rank": range(1, len(ids) + 1), "text_id": ids}
    return pa.table(columns | {"score": [scores[name] for name in ids]})


def test_rankings_by_value_start_at_rank_one_in_every_query() -> None:
    rows = pa.table(
        {"query_id": ["b", "a", "a", "b", "a"], "text_id": list("xyzwv"), "score": [0.1, 0.5, 0.9, 0.1, 0.5]}
    )
    ranked = by_value(rows, "score")
    assert ranked["score"].to_pylist() == pytest.approx([0.9, 0.5, 0.5, 0.1, 0.1])
    assert ranked.drop_columns(["score"]).to_pylist() == [
        {"query_id": "a", "rank": 1, "text_id": "z"},
        {"query_id": "a", "rank": 2, "text_id": "v"},
        {"query_id": "a", "rank": 3, "text_id": "y"},
        {"query_id": "b", "rank": 1, "text_id": "w"},
        {"query_id": "b", "rank": 2, "text_id": "x"},
    ]


def test_by_rank_a_text_in_both_lists_comes_before_the_first_of_one() -> None:
    fused = fuse_by_rank([ranking("a", x=9, y=8), ranking("a", z=0.9, y=0.1)])
    assert fused["text_id"].to_pylist() == ["y", "x", "z"], "1/62 + 1/62 > 1/61; ties by id"


def test_scores_of_a_query_are_between_0_and_1_whatever_the_others_are() -> None:
    rows = normalize(pa.concat_tables([ranking("a", x=30.0, y=20.0, z=10.0), ranking("b", x=-1.0)]))
    values = {(row["query_id"], row["text_id"]): row["value"] for row in rows.to_pylist()}
    assert values == {("a", "x"): 1, ("a", "y"): 0.5, ("a", "z"): 0, ("b", "x"): 1}


@pytest.mark.parametrize(("weight", "order"), [(0.1, "xzy"), (0.5, "zxy"), (0.9, "yzx")])
def test_the_weight_is_that_of_the_second(weight: float, order: str) -> None:
    first, second = (normalize(rows) for rows in (ranking("a", x=3, z=2, w=0), ranking("a", y=9, z=6, v=0)))
    fused = fuse_by_score(first, second, weight)["text_id"].to_pylist()
    assert fused[:3] == list(order)
    assert sorted(fused) == ["v", "w", "x", "y", "z"], "nothing is lost"
