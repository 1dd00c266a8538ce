"""Candidate lists: their own order, the best one, and a weighted sum of scores."""

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.reranker.lists import WEIGHTS, CandidateLists

IDS = ["a", "b"]
TEXT_IDS = ["t0", "t1", "t2", "t1", "t3"]


def lists() -> CandidateLists:
    rows = pa.table(
        {
            "query_id": ["a", "a", "a", "b", "b"],
            "text_id": TEXT_IDS,
            "score": pa.array([0.9, 0.5, 0.1, 0.7, 0.2], pa.float32()),
        }
    )
    labels = pa.table({"query_id": ["a", "b"], "text_id": ["t2", "t3"], "relevance": pa.array([1, 1], pa.int32())})
    texts = pa.array(["zero", "one", "two", "three"])
    return CandidateLists(
        pa.array(IDS), ["qa", "qb"], texts, rows, np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 1, 3]), labels
    )


def order(rankings: pa.Table) -> list[tuple[str, int, str]]:
    columns = (rankings[name].to_pylist() for name in ("query_id", "rank", "text_id"))
    return list(zip(*columns, strict=True))


def test_pairs_name_query_and_text_of_each_candidate() -> None:
    assert lists().pairs() == (["qa", "qa", "qa", "qb", "qb"], ["zero", "one", "two", "one", "three"])


def test_own_order_and_best_order() -> None:
    own = [("a", 1, "t0"), ("a", 2, "t1"), ("a", 3, "t2"), ("b", 1, "t1"), ("b", 2, "t3")]
    assert order(lists().own_order()) == own
    best = [("a", 1, "t2"), ("a", 2, "t0"), ("a", 3, "t1"), ("b", 1, "t3"), ("b", 2, "t1")]
    assert order(lists().best_order()) == best
    assert lists().ndcg(lists().best_order()) == 1
    assert lists().ndcg(lists().own_order()) == pytest.approx((1 / np.log2(4) + 1 / np.log2(3)) / 2)


def test_a_weight_mixes_both_scores_scaled_within_their_query() -> None:
    scores = np.array([0.0, 30.0, 60.0, -5.0, 5.0])
    assert order(lists().rerank(scores, 1.0))[0] == ("a", 1, "t2")
    # of query a: scaled candidates 1, .5, 0, scaled scores 0, .5, 1
    mixed = lists().rerank(scores, 0.25)
    assert mixed["score"].to_pylist() == pytest.approx([0.75, 0.5, 0.25, 0.75, 0.25])
    assert order(mixed) == order(lists().own_order())


def test_the_smallest_of_the_best_weights_is_selected_and_never_0() -> None:
    assert lists().best_weight(np.array([0.0, 1.0, 2.0, 0.0, 1.0])) == (0.75, 1.0)
    weight, value = lists().best_weight(np.array([2.0, 1.0, 0.0, 1.0, 0.0]))
    assert (weight, value) == (WEIGHTS[0], lists().ndcg(lists().own_order()))
