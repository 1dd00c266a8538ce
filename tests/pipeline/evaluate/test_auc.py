"""AUC of systems over labelled pairs: from labels to scores to areas."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import rankdata

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.auc import AUC_STAGE, area, auc, rank_swap_p
from darklode.pipeline.evaluate.pair_scores import MANUAL_SCORES_STAGE, manual_scores
from darklode.pipeline.evaluate.paired import ResamplingSettings
from darklode.pipeline.retrieve.retrievers.kinds.bm25 import Bm25Kind
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put, read


def by_hand(labels: list[bool], scores: list[float]) -> float:
    """How often a positive pair stands above a negative one."""
    wins = [
        (one > other) + 0.5 * (one == other)
        for one, yes in zip(scores, labels, strict=True)
        if yes
        for other, no in zip(scores, labels, strict=True)
        if not no
    ]
    return float(np.mean(wins))


def test_area_is_the_share_of_pairs_in_the_right_order() -> None:
    random = np.random.default_rng(2)
    labels, scores = random.random(60) < 0.4, np.round(random.random(60), 1)
    assert area(labels, scores) == pytest.approx(by_hand(labels.tolist(), scores.tolist()))
    assert area(np.array([True, False]), np.array([np.nan, -5.0])) == 0.0  # what was not found is worse than anything
    assert np.isnan(area(np.array([True, True]), np.array([1.0, 2.0])))


def test_a_weight_is_as_many_copies() -> None:
    random = np.random.default_rng(4)
    labels, scores, times = random.random(30) < 0.5, random.random(30), random.integers(0, 3, 30)
    copies = np.repeat(np.arange(30), times)
    assert area(labels, scores, times) == pytest.approx(area(labels[copies], scores[copies]))


def test_p_is_the_share_of_all_swaps_of_ranks_that_differ_as_much() -> None:
    random = np.random.default_rng(8)
    query, labels = np.repeat(np.arange(6), 3), np.arange(18) % 3 == 0
    scores = (random.normal(size=(18, 2)) + labels[:, None] * [0.3, 1.5]) * [1, 100]
    ranks = np.argsort(np.argsort(scores, axis=0), axis=0)

    def difference(turned: int) -> float:
        swap = (turned >> query & 1).astype(bool)
        one, other = (np.where(swap, ranks[:, 1 - at], ranks[:, at]) for at in (0, 1))
        return abs(by_hand(labels.tolist(), one.tolist()) - by_hand(labels.tolist(), other.tolist()))

    share = np.mean([difference(turned) >= difference(0) - 1e-12 for turned in range(64)])
    assert rank_swap_p(labels, scores, query, ResamplingSettings()) == pytest.approx(share)


def test_equal_scores_and_missing_ones_share_ranks() -> None:
    random = np.random.default_rng(6)
    scores = np.round(random.normal(size=(40, 2)), 1)
    scores[random.random((40, 2)) < 0.2] = np.nan
    labels = random.random(40) < 0.3
    twice = np.stack([2 * rankdata(np.nan_to_num(one, nan=-9)) for one in scores.T], axis=1)
    query = np.arange(40) // 8
    assert rank_swap_p(labels, scores, query, ResamplingSettings()) == rank_swap_p(
        labels, twice, query, ResamplingSettings()
    )
    assert rank_swap_p(labels, scores[:, [0, 0]] * [1, 2], query, ResamplingSettings()) == 1


@pytest.mark.slow
def test_few_labels_of_one_kind_do_not_decide(tmp_path: Path) -> None:
    query, labels = np.repeat(np.arange(100), 2), np.arange(200) == 0
    random = np.random.default_rng(1)
    scores = random.normal(size=(200, 2)) + labels[:, None] * [9, -9]  # the one positive pair: above all, below all
    assert rank_swap_p(labels, scores, query, ResamplingSettings(flips=500)) >= 0.2
    run = labelled(tmp_path, 16)
    measured(run)
    assert {(row["low"], row["high"], row["clusters"]) for row in read(run, "evaluation_pairs")} <= {
        (None, None, 5),
        (None, None, 8),
    }


def labelled(folder: Path, n: int = 24) -> Run:
    """Every second pair fits: query and text share a rare word. Satisfaction is relevance, but for every sixth pair."""
    run = Run(str(folder / "run"))
    words = [f"word{chr(97 + at)}x" for at in range(n)]
    rows = [
        {
            "tenant": "default", "query_id": f"q{at // 2:02}", "query": f"about {words[at // 2]}", "text": None,
            "text_id": f"t{at:02}", "relevance": at % 2 == 0, "satisfaction": at % 2 == 0 and at % 6 != 0,
        }
        for at in range(n)
    ]  # fmt: skip
    texts = [
        {
            "tenant": "default", "chunk_id": f"t{at:02}", "doc_id": f"t{at:02}", "position": 0, "start": 0, "end": 5,
            "text": f"note on {words[at // 2 if at % 2 == 0 else -1]}", "content_hash": f"{at:032}", "title": None,
            "heading": None,
        }
        for at in range(n)
    ]  # fmt: skip
    put(run, "manual_labels", pa.Table.from_pylist(rows, schema=TABLES["manual_labels"].schema))
    put(run, "manual_texts", pa.Table.from_pylist(texts, schema=TABLES["manual_texts"].schema))
    return run


def measured(run: Run) -> None:
    """Score the pairs by BM25 and by one that sees nothing; measure both."""
    systems = {"bm25": Bm25Kind(), "blind": Bm25Kind(stemmer=None, k1=0.0, b=0.0)}
    names = {name: one.identity for name, one in systems.items()}
    execute(
        run,
        MANUAL_SCORES_STAGE,
        lambda tables, output: manual_scores(tables, output, systems=systems, identities=names),
    )
    given = EvaluateSettings(n_resamples=100)
    execute(run, AUC_STAGE, lambda tables, output: auc(tables, output, given, systems=list(systems), seed=1))


@pytest.mark.slow
def test_systems_get_areas_with_intervals_and_differences(tmp_path: Path) -> None:
    run = labelled(tmp_path)
    measured(run)
    scores = read(run, "manual_scores")
    assert len(scores) == 48
    found = [row["score"] for row in scores if row["system"] == "bm25"]
    assert [score is not None for score in found] == [at % 2 == 0 for at in range(24)]
    rows = {(row["measure"], row["system"]): row for row in read(run, "evaluation")}
    assert rows["AUC-REL", "bm25"]["value"] == 1.0
    assert rows["AUC-SAT", "bm25"]["value"] == pytest.approx(
        by_hand([at % 2 == 0 and at % 6 != 0 for at in range(24)], [1.0 if at % 2 == 0 else 0.0 for at in range(24)]),
        abs=0.15,
    )
    assert rows["AUC-SAT", "bm25"]["low"] < rows["AUC-SAT", "bm25"]["value"] <= rows["AUC-SAT", "bm25"]["high"]  # type: ignore[operator]
    assert {row["queries"] for row in rows.values()} == {12}
    (first, second) = read(run, "evaluation_pairs")
    assert (first["system"], first["other"], first["difference"], first["p"]) == ("blind", "bm25", 0.0, 1.0)
    assert second["measure"] == "AUC-REL"


def test_a_measure_whose_labels_are_all_equal_has_no_area(tmp_path: Path) -> None:
    run = labelled(tmp_path)
    labels = run.tables("manual_labels").read("manual_labels")
    always = labels.set_column(
        labels.schema.get_field_index("satisfaction"), "satisfaction", pa.repeat(True, len(labels))
    )
    put(run, "manual_labels", always.cast(labels.schema))
    measured(run)
    assert {str(row["measure"]) for row in read(run, "evaluation")} == {"AUC-REL"}
