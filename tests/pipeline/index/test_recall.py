"""The effort is chosen on one half; drift is told from noise."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.index.recall import QueryPart, advice, held_out_recall
from darklode.pipeline.index.searcher import VectorSearcher
from helpers.indexed import IDS, clustered, made
from helpers.runs import read


def test_the_quickest_of_what_reaches_the_target_on_its_half_is_in_use(indexed: Path) -> None:
    run = Run(str(indexed / "index"))
    tried = [row for row in read(run, "index_recall") if (row["depth"], row["half"]) == (100, "chosen on")]
    reached = [row for row in tried if row["recall"] - 2 * row["error"] >= 0.9]  # type: ignore[operator]
    (chosen,) = (row for row in tried if row["chosen"])
    assert chosen in reached
    assert len(reached) > 1
    with VectorSearcher(str(indexed / "index")) as searcher:
        facts, finder = searcher.facts, searcher._finder
        costs = [finder.kind.cost(finder.index, row["effort"]) + 100 * row["rerank"] for row in reached]
    assert (facts["effort"], facts["rerank"]) == (chosen["effort"], chosen["rerank"])
    assert chosen == reached[costs.index(min(costs))]
    assert {row["queries"] for row in tried} == {30}


def test_recall_is_the_share_of_the_exact_list_of_the_same_depth(indexed: Path) -> None:
    queries, texts = clustered(40, seed=9), Run(str(indexed / "index")).tables().read("indexed_texts").to_pylist()
    number = {row["text_id"]: row["number"] for row in texts}
    exact = np.argsort(-(queries @ clustered().T), axis=1)[:, :100]
    right = np.array([[number[IDS[place]] for place in row] for row in exact])
    with VectorSearcher(str(indexed / "index")) as searcher:
        finder, effort = searcher._finder, int(searcher.facts["effort"])
        found, _ = finder.find(queries, 100, effort)
        rows = QueryPart("base", queries, right, ["default"] * len(queries)).rows(finder, effort)
    for row, (half, depth) in zip(rows, product((0, 1), (10, 100)), strict=True):
        pairs = zip(found[half::2, :depth].tolist(), right[half::2, :depth].tolist(), strict=True)
        shares = [len({*mine} & {*wanted}) / depth for mine, wanted in pairs]
        assert (row["depth"], row["queries"]) == (depth, 20)
        assert row["recall"] == np.mean(shares) > 0.5


def test_a_short_list_is_the_head_of_a_long_one(indexed: Path) -> None:
    """What is told of the first ten holds for a search that asks for no more."""
    with VectorSearcher(str(indexed / "index")) as searcher:
        queries = clustered(20, seed=4)
        short, long = searcher.search(queries, 10), searcher.search(queries, 100)
    np.testing.assert_array_equal(short.rows, long.rows[:, :10])


def part(recall: float, error: float) -> dict[str, Any]:
    return {"base": {100: {"recall": recall, "error": error}}}


def test_advice_is_given_where_recall_fell_beyond_noise() -> None:
    assert advice(part(0.95, 0.001), part(0.94, 0.001), 0.0, None) == []
    assert advice(part(0.95, 0.05), part(0.90, 0.05), 0.0, 1.2) == []
    (said,) = advice(part(0.95, 0.001), part(0.92, 0.001), 0.0, None)
    assert said == "recall@100 of base queries fell from 0.950 to 0.920: train again"
    assert len(advice(part(0.95, 0.001), part(0.95, 0.001), 0.3, 2.0)) == 2


def test_without_stored_vectors_codes_alone_decide(indexed: Path, tmp_path: Path) -> None:
    from helpers.adapted import model_in

    model_in(tmp_path)
    folder = made(tmp_path, str(indexed / "vectors.parquet"), refine_factor=1)
    rows = Run(str(folder)).tables("index_recall").read("index_recall")
    alone = held_out_recall(rows)["base"][100]["recall"]
    better = held_out_recall(Run(str(indexed / "index")).tables("index_recall").read("index_recall"))["base"][100][
        "recall"
    ]
    assert not (folder / "stored").exists()
    assert 0.3 < alone < better
