"""The test queries are asked of both towers and of what they began as, whose documents have other vectors."""

from darklode.pipeline.towers.dual.evaluation import SYSTEMS
from helpers.runs import read

from .conftest import Trained


def test_both_systems_rank_the_same_texts(both: Trained) -> None:
    rows = read(both.out, "test_rankings")
    texts = {row["text_id"] for row in read(both.out, "adaptation_texts")}
    queries = {row["query_id"] for row in read(both.out, "test_queries")}
    scores = {}
    for system in SYSTEMS:
        mine = [row for row in rows if row["system"] == system]
        assert {row["query_id"] for row in mine} == queries
        assert {row["text_id"] for row in mine} <= texts
        scores[system] = [row["score"] for row in mine]
    assert scores["beginning"] != scores["towers"]
    assert {row["split"] for row in read(both.out, "adaptation_queries") if row["query_id"] in queries} == {"test"}


def test_evaluation_tells_their_difference(both: Trained) -> None:
    pairs = {row["measure"]: row for row in read(both.out, "evaluation_pairs") if row["part"] == "counted"}
    assert set(pairs) == {"R@10", "R@50", "R@100", "nDCG@10"}
    assert all((row["system"], row["other"]) == ("towers", "beginning") for row in pairs.values())
