"""Measures of a ranking: held against ir_measures on the whole ranking at once, and against the hand."""

import ir_measures
import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.evaluate import measures as counting
from darklode.pipeline.evaluate.measures import compute_measures, depth_of, parse_measures, upper_bounds

NAMES = ("nDCG@10", "R@3", "R@20", "Success@3", "RR@10", "Judged@10")


def random_labels(random: np.random.Generator, queries: list[str], texts: list[str]) -> pa.Table:
    rows = [
        {"query_id": query, "text_id": texts[place], "relevance": int(random.integers(0, 3)) if place else 2}
        for query in queries
        for place in random.choice(len(texts), 6, replace=False)
    ]
    sure = [{"query_id": query, "text_id": texts[0], "relevance": 1} for query in queries]
    kept = {(row["query_id"], row["text_id"]): row for row in [*sure, *rows]}
    return pa.Table.from_pylist(list(kept.values()))


def random_lists(random: np.random.Generator, queries: list[str], texts: list[str], depth: int) -> pa.Table:
    rows = [
        {"query_id": query, "rank": place + 1, "text_id": texts[text]}
        for query in queries
        for place, text in enumerate(random.choice(len(texts), depth, replace=False))
    ]
    return pa.Table.from_pylist(rows)


def test_blocks_give_what_ir_measures_gives_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    queries, texts = [f"q{n:02}" for n in range(23)], [f"t{n}" for n in range(40)]
    labels = random_labels(random, queries, texts)
    lists = random_lists(random, [*queries[:-2], "not asked"], texts, 20)
    cut = lists.num_rows // 2 // 20 * 20
    monkeypatch.setattr(counting, "QUERIES_AT_ONCE", 5)
    found = compute_measures([lists.slice(0, cut), lists.slice(cut)], labels, queries, NAMES)
    qrels = [ir_measures.Qrel(row["query_id"], row["text_id"], row["relevance"]) for row in labels.to_pylist()]
    run = [ir_measures.ScoredDoc(row["query_id"], row["text_id"], 1 / row["rank"]) for row in lists.to_pylist()]
    kinds = parse_measures(NAMES)
    wanted = {(one.query_id, str(one.measure)): one.value for one in ir_measures.iter_calc(kinds, qrels, run)}
    for row, query in enumerate(queries):
        for column, name in enumerate(NAMES):
            assert found[row, column] == pytest.approx(wanted[query, name])
    assert not found[-2:].any()  # two queries have no list
    assert found[:-2].any(axis=0).all()


def test_the_rank_counts_and_not_the_id() -> None:
    labels = pa.table({"query_id": ["q", "q"], "text_id": ["a", "z"], "relevance": pa.array([0, 1], pa.int32())})
    lists = pa.table({"query_id": ["q", "q"], "rank": [1, 2], "text_id": ["z", "a"]})
    swapped = pa.table({"query_id": ["q", "q"], "rank": [1, 2], "text_id": ["a", "z"]})
    assert compute_measures([lists], labels, ["q"], ["RR@10"]).tolist() == [[1.0]]
    assert compute_measures([swapped], labels, ["q"], ["RR@10"]).tolist() == [[0.5]]


def test_a_perfect_list_reaches_the_ceiling_and_no_more() -> None:
    positives = [f"p{n:02}" for n in range(14)]
    labels = pa.table({"query_id": ["q"] * 14, "text_id": positives, "relevance": pa.array([1] * 14, pa.int32())})
    (found,) = upper_bounds(labels, ["q"], ["R@10", "nDCG@10", "Judged@20"])
    assert found == pytest.approx([10 / 14, 1.0, 1.0])
    lists = pa.table({"query_id": ["q"] * 10, "rank": range(1, 11), "text_id": positives[::-1][:10]})
    assert compute_measures([lists], labels, ["q"], ["R@10"])[0, 0] == pytest.approx(found[0])


def test_a_perfect_list_has_the_most_relevant_texts_first() -> None:
    grades = [0] * 12 + [1, 2]
    labels = pa.table({"query_id": ["q"] * 14, "text_id": [f"t{n:02}" for n in range(14)], "relevance": grades})
    names = ["nDCG@10", "R@2", "RR@10", "nDCG@1"]
    assert upper_bounds(labels, ["q"], names)[0] == pytest.approx([1.0, 1.0, 1.0, 1.0])


def test_the_deepest_measure_says_how_deep_lists_are() -> None:
    assert depth_of(["nDCG@10", "R@1000"]) == 1000


@pytest.mark.parametrize("name", ["recal@10", "nDCG@ten", "R", "__import__('os')"])
def test_a_measure_that_cannot_be_counted_is_an_error(name: str) -> None:
    with pytest.raises(SettingsError, match=r"evaluate\.measures"):
        parse_measures([name])


def test_a_text_with_an_uncertain_label_is_removed_from_the_ranking() -> None:
    relevance = pa.array([None, 1, 0], pa.int32())
    labels = pa.table({"query_id": ["q"] * 3, "text_id": ["maybe", "yes", "no"], "relevance": relevance})
    lists = pa.table({"query_id": ["q"] * 3, "rank": [1, 2, 3], "text_id": ["maybe", "yes", "unlabelled"]})
    assert compute_measures([lists], labels, ["q"], ["RR@10", "Judged@2"]).tolist() == [[1.0, 0.5]]
    assert upper_bounds(labels, ["q"], ["nDCG@10"]).tolist() == [[1.0]]
