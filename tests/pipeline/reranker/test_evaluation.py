"""The test of a real run: all systems on the same candidates, and the cost beside the quality."""

from darklode.pipeline.reranker.evaluation import (
    ALONE,
    BASE_RERANKER,
    BEST_ORDER,
    CANDIDATES,
    RERANKED,
    RERANKER_TEST_STAGE,
    compared_pairs,
)
from helpers.reranked import CANDIDATES as DEPTH
from helpers.reranked import RerankedRun


def test_all_orders_have_the_same_texts_and_the_best_one_bounds_them(reranked: RerankedRun) -> None:
    rows = reranked.out.tables().read("test_rankings").to_pylist()
    lists: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        lists.setdefault(row["system"], set()).add((row["query_id"], row["text_id"]))
    assert set(lists) == {"BM25", "base", CANDIDATES, RERANKED, ALONE, BEST_ORDER}
    assert lists[RERANKED] == lists[ALONE] == lists[BEST_ORDER] == lists[CANDIDATES]
    values = {
        row["system"]: row["value"]
        for row in reranked.out.tables().read("evaluation").to_pylist()
        if row["measure"] == "nDCG@10" and row["part"] == "counted"
    }
    assert values[BEST_ORDER] == max(values.values())
    assert values[RERANKED] > values[CANDIDATES]


def test_milliseconds_are_those_of_a_querys_candidates(reranked: RerankedRun) -> None:
    manifest = reranked.out.manifest(RERANKER_TEST_STAGE)
    assert manifest is not None
    assert manifest.facts["pairs"] == DEPTH
    assert manifest.facts["milliseconds"] > 0
    assert manifest.facts["parameters"] == sum(values.size for values in reranked.initial.open().state().values())


def test_the_reranked_lists_are_compared_with_each_system() -> None:
    pairs = compared_pairs(["BM25", CANDIDATES, BASE_RERANKER, RERANKED])
    assert {other for system, other in pairs if system == RERANKED} == {"BM25", CANDIDATES, BASE_RERANKER}
    assert ("BM25", CANDIDATES) in pairs
