"""Training pairs of a real run: train queries alone, and no answer among the negatives."""

import numpy as np
import pyarrow.compute as pc

from darklode.pipeline.reranker.training_pairs import load_pairs
from helpers.reranked import RERANKER_SIDES, RerankedRun


def test_positives_have_their_weight_and_negatives_are_no_answers(reranked: RerankedRun) -> None:
    tables = reranked.out.tables()
    rows = tables.read("reranker_pairs").to_pylist()
    assert {row["query_id"].partition("-")[0] for row in rows} == {"train"}
    positives = {(row["query_id"], row["text_id"]) for row in rows if row["target"] == 1}
    assert positives == {(query, f"{query}#0") for query, _ in positives}
    assert len(positives) == RERANKER_SIDES["train"] - 1
    assert {row["weight"] for row in rows} == {1.0}  # all positives have the same probability
    negatives = [row for row in rows if row["target"] == 0]
    assert len(negatives) == 4 * len(positives)
    assert not any(row["text_id"] == f"{row['query_id']}#0" for row in negatives)
    judged = {(row["query_id"], row["text_id"]) for row in negatives if row["text_id"].endswith("#1")}
    assert judged, "texts of the topic that are judged not relevant are among them"


def test_pairs_are_loaded_with_their_texts(reranked: RerankedRun) -> None:
    tables = reranked.out.tables()
    query_ids = pc.unique(tables.read("reranker_pairs")["query_id"])[:2]
    pairs = load_pairs(tables, reranked.finder.sources, query_ids)
    assert len(pairs) == 10
    rows = np.flatnonzero(pairs.target == 1)
    for query, text in zip(pairs.queries_at(rows), pairs.texts_at(rows), strict=True):
        assert text.startswith(query.removeprefix("how "))
