"""Trials of a real run: what is selected, held out and restored."""

import numpy as np
import pytest

from darklode.pipeline.reranker.model import InitialReranker
from darklode.pipeline.reranker.stage import RerankerTask, best_trial, load_best_reranker, shuffle_positives
from helpers.reranked import RerankedRun


@pytest.fixture(scope="module")
def task(reranked: RerankedRun) -> RerankerTask:
    return RerankerTask.from_tables(reranked.out.tables(), reranked.finder, 10, reranked.settings.seed)


def test_held_out_queries_are_not_in_training_and_share_no_positive(task: RerankerTask) -> None:
    assert len(task.validation.ids) == 10
    assert not set(task.validation.queries) & set(task.pairs.queries)
    learned = set(task.pairs.texts_at(np.flatnonzero(task.pairs.target == 1)))
    relevant = set(
        task.validation.labels.filter(task.validation.labels["relevance"].to_numpy() > 0)["text_id"].to_pylist()
    )
    held_out = {
        text
        for text_id, text in zip(task.validation.rows["text_id"].to_pylist(), task.validation.pairs()[1], strict=True)
        if text_id in relevant
    }
    assert held_out
    assert not held_out & learned


def test_the_best_trial_is_restored_and_reaches_its_validation_result(reranked: RerankedRun) -> None:
    tables, trial = reranked.out.tables(), best_trial(reranked.out.tables())
    assert trial["base"] is None, "a new head has no result before training"
    task = RerankerTask.from_tables(tables, reranked.finder, 200, reranked.settings.seed)
    scores = load_best_reranker(tables, reranked.initial).scores(*task.validation.pairs())
    assert task.validation.ndcg(task.validation.rerank(scores, trial["weight"])) == pytest.approx(trial["validation"])
    assert task.validation.ndcg(task.validation.own_order()) == pytest.approx(trial["candidates"])
    untrained = InitialReranker(reranked.model, reranked.settings.seed).open().scores(*task.validation.pairs())
    assert task.validation.best_weight(untrained)[1] < trial["validation"]


def test_shuffled_positives_belong_to_other_queries(task: RerankerTask) -> None:
    shuffled = shuffle_positives(task.pairs, 3)
    positive = task.pairs.target == 1
    assert (shuffled.text[positive] != task.pairs.text[positive]).all()
    assert sorted(shuffled.text[positive]) == sorted(task.pairs.text[positive])
    assert (shuffled.text[~positive] == task.pairs.text[~positive]).all()
