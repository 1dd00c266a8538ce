"""Selection for hybrid search: the fused ranking is scored, as the test ranks it."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.system_names import ADAPTED, BASE, by_ranks, by_scores
from darklode.pipeline.train.fit.head_methods import HeadMethod
from darklode.pipeline.train.fit.hybrid_selection import HybridScorer
from darklode.pipeline.train.fit.model_selection import score_shares, selection_queries
from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings
from darklode.pipeline.train.release.evaluation import selected_settings
from darklode.pipeline.train.release.label_free import LabelFree
from helpers.runs import read

from ..conftest import QUICK, Adapted, redo


@pytest.fixture(scope="module")
def task(adapted: Adapted) -> Task:
    tables = adapted.out.tables()
    return Task.from_tables(tables, adapted.base.open(tables), same_document=False)


def moved(queries: QuerySet) -> np.ndarray:
    vectors = queries.vectors + np.random.default_rng(0).normal(0, 0.3, queries.vectors.shape).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("is_weighted", [True, False], ids=["by score", "by rank"])
def test_a_fused_score_is_that_of_the_test(adapted: Adapted, task: Task, *, is_weighted: bool) -> None:
    tables, queries = adapted.out.tables(), selection_queries(task)
    label_free = LabelFree(task, Bm25Rankings(adapted.base, task.frozen), selected_settings(tables))
    vectors = moved(queries)
    rankings = label_free.rankings(queries, {ADAPTED: vectors})
    weights = [label_free.settings[by_scores(name)] if is_weighted else None for name in (BASE, "whitened base")]
    scorer = HybridScorer(tables.read("lexical_rankings"), *weights)
    fused = by_scores if is_weighted else by_ranks
    for name, own, is_base in ((ADAPTED, vectors, False), (BASE, queries.vectors, True)):
        first = rankings[fused(name)].filter(pc.less_equal(rankings[fused(name)]["rank"], 10 + queries.max_uncertain))
        expected = compute_measures([first], queries.labels, queries.ids.to_pylist(), ["nDCG@10"]).mean()
        assert scorer.ndcg(task.frozen, queries, own, is_base=is_base) == pytest.approx(float(expected), abs=1e-9)


def test_the_fusion_is_the_better_one_for_the_base_and_shares_are_scored_by_it(adapted: Adapted, task: Task) -> None:
    tables = adapted.out.tables()
    values = {row["system"]: row["value"] for row in read(adapted.out, "headroom") if row["measure"] == "nDCG@10"}
    scorer = HybridScorer.from_tables(tables)
    assert (scorer.weight is None) == (float(str(values[by_ranks(BASE)])) >= float(str(values[by_scores(BASE)])))
    method = HeadMethod(QUICK, adapted.base)
    weights = {"0.weight": np.full((8, 8), 0.2, np.float32), "0.bias": np.zeros(8, np.float32)}
    scores = score_shares(task, method, weights, scorer)
    queries = task.validation
    assert scores[0].value == scorer.ndcg(task.frozen, queries, queries.vectors, is_base=True)
    assert scores[-1].value == scorer.ndcg(task.frozen, queries, method.vectors(weights, 1.0, queries))


def test_the_base_has_its_own_weight(adapted: Adapted, task: Task) -> None:
    lexical, queries = adapted.out.tables().read("lexical_rankings"), selection_queries(task)
    values = [
        HybridScorer(lexical, *weights).ndcg(task.frozen, queries, queries.vectors, is_base=is_base)
        for weights, is_base in (
            ((0.01, 0.01), True),
            ((0.01, 0.99), True),
            ((0.01, 0.99), False),
            ((0.99, 0.99), False),
        )
    ]
    assert values[0] == values[1] != values[2] == values[3]


def test_no_query_has_no_score(adapted: Adapted, task: Task) -> None:
    none = task.validation.take(np.empty(0, np.int64))
    assert np.isnan(HybridScorer.from_tables(adapted.out.tables()).ndcg(task.frozen, none, none.vectors))


def test_serving_as_hybrid_trains_the_same_and_selects_by_the_fusion(adapted: Adapted, tmp_path: Path) -> None:
    hybrid = adapted.settings.model_copy(update={"adapt": QUICK.model_copy(update={"serve_as": "hybrid"})})
    out = Run(str(tmp_path / "out"))
    redo(steps(adapted.base, hybrid)[:4], out)
    dense, fused = (read(run, "adaptation_trials") for run in (adapted.out, out))
    assert [(row["trial"], row["share"]) for row in fused] == [(row["trial"], row["share"]) for row in dense]
    assert [row["validation"] for row in fused] != [row["validation"] for row in dense]
    assert read(out, "training_log") == read(adapted.out, "training_log"), "early stopping is the encoder's own"
