"""The quality that selects the weights, and the texts of pairs as often as they were drawn."""

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.reranker.distil.sampling import DISTILLED_PAIRS_STAGE, SOURCE_TABLES, distilled_pairs
from darklode.pipeline.reranker.distil.training import PairTexts, TeacherValidation, soft_auc
from helpers.adapted import TENANT
from helpers.distilled import judged_build
from helpers.runs import execute, read

pytest.importorskip("torch")


def test_soft_auc() -> None:
    scores = np.array([3.0, 2.0, 1.0, 0.0])
    assert soft_auc(scores, np.array([1.0, 1.0, 0.0, 0.0])) == 1
    assert soft_auc(scores, np.array([0.0, 0.0, 1.0, 1.0])) == 0
    assert soft_auc(scores, np.full(4, 0.3)) == 0.5
    assert 0.5 < soft_auc(scores, np.array([0.9, 0.8, 0.2, 0.1])) < 1


def test_validation_weighs_no_other_scores() -> None:
    validation = TeacherValidation(["q"] * 4, ["t"] * 4, np.array([0.9, 0.8, 0.2, 0.1]))
    weight, quality = validation.best_weight(np.array([3.0, 2.0, 1.0, 0.0]))
    assert (weight, quality) == (1.0, soft_auc(np.array([3.0, 2.0, 1.0, 0.0]), validation.target))
    assert validation.pairs() == (["q"] * 4, ["t"] * 4)


def test_pairs_are_repeated_as_often_as_drawn_with_the_right_texts(tmp_path: Path) -> None:
    source = judged_build(tmp_path / "run").tables(*SOURCE_TABLES, "human_labels")
    out = Run(str(tmp_path / "out"))
    execute(out, DISTILLED_PAIRS_STAGE, lambda t, o: distilled_pairs(t, o, source, TENANT, 500, seed=1))
    pairs = PairTexts.of_part(out.tables(), source, "train").soft_pairs()
    rows = [row for row in read(out, "distilled_pairs") if row["part"] == "train"]
    assert len(pairs) == sum(int(str(row["draws"])) for row in rows)
    texts = {row["chunk_id"]: row["text"] for row in source.read("chunks").to_pylist()}
    queries = {row["query_id"]: row["text"] for row in source.read("queries").to_pylist()}
    expected = [
        (queries[row["query_id"]], texts[row["chunk_id"]], row["target"], row["weight"])
        for row in sorted(rows, key=lambda row: (row["query_id"], row["chunk_id"]))
        for _ in range(int(str(row["draws"])))
    ]
    numbers = np.arange(len(pairs))
    found = zip(pairs.queries_at(numbers), pairs.texts_at(numbers), pairs.target, pairs.weight, strict=True)
    assert [(query, text.strip(), target, weight) for query, text, target, weight in found] == expected
