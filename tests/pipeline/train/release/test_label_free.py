"""Systems without labels: their settings, and rankings of the asked queries only."""

from dataclasses import replace

import numpy as np
import pytest

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.system_names import (
    BASE,
    BM25,
    CENTERING,
    FEEDBACK,
    LABEL_FREE,
    TERMS,
    WHITENED,
    by_ranks,
    by_scores,
)
from darklode.pipeline.train.fit.term_start import TERM_SHARES
from darklode.pipeline.train.fit.whitening import CENTERINGS, COVARIANCE_POWERS, whitenings
from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings
from darklode.pipeline.train.release.label_free import DENSE_WEIGHTS, FEEDBACK_WEIGHTS, LabelFree, add_feedback

from ..conftest import Adapted


@pytest.fixture(scope="module")
def task(adapted: Adapted) -> Task:
    tables = adapted.out.tables()
    return Task.from_tables(tables, adapted.base.open(tables), same_document=False)


@pytest.fixture(scope="module")
def label_free(adapted: Adapted, task: Task) -> LabelFree:
    return LabelFree.select(task, Bm25Rankings(adapted.base, task.frozen), task.train)


def systems_of(label_free: LabelFree) -> set[str]:
    """The systems it ranks by: term vectors only if they are better than the whitening."""
    return {name for name in LABEL_FREE if name != TERMS or TERMS in label_free.settings}


@pytest.mark.parametrize("helpful", [True, False])
def test_term_vectors_are_a_system_if_they_help(adapted: Adapted, task: Task, helpful: bool) -> None:
    queries, draws = task.train, np.random.default_rng(0)
    terms = draws.normal(size=queries.vectors.shape).astype(np.float32)
    query, position = queries.positives(task.frozen)
    if helpful:
        terms[query] = task.frozen.take(position) * 3
    mixed = replace(queries, terms=terms)
    helped = replace(task, train=mixed, validation=mixed)
    found = LabelFree.select(helped, Bm25Rankings(adapted.base, task.frozen), mixed)
    assert (TERMS in found.settings) == helpful
    assert found.rankings(mixed).keys() == systems_of(found)
    if helpful:
        scores = {each.share: mixed.ndcg(task.frozen, each.apply(mixed)) for each in found._mixes().values()}
        assert found.settings[TERMS] in TERM_SHARES
        assert scores[found.settings[TERMS]] == max(scores.values())
        assert not found.rankings(mixed)[TERMS].equals(found.rankings(mixed)[WHITENED])


def test_each_setting_is_one_of_those_tried_and_the_best_of_them(label_free: LabelFree, task: Task) -> None:
    settings, queries = label_free.settings, task.train
    assert settings.keys() - {TERMS} == {WHITENED, CENTERING, FEEDBACK, by_scores(BASE), by_scores(WHITENED)}
    maps = {
        (each.power, each.centering): queries.ndcg(task.frozen, each.apply(queries.vectors))
        for each in whitenings(task)
    }
    assert maps.keys() == {(power, share) for power in COVARIANCE_POWERS for share in CENTERINGS if power or share}
    assert maps[settings[WHITENED], settings[CENTERING]] == max(maps.values())
    feedback = {
        weight: queries.ndcg(task.frozen, add_feedback(task.frozen, queries, weight)) for weight in FEEDBACK_WEIGHTS
    }
    assert feedback[settings[FEEDBACK]] == max(feedback.values())
    assert {settings[by_scores(BASE)], settings[by_scores(WHITENED)]} <= {*DENSE_WEIGHTS}


def test_labels_change_settings_only(label_free: LabelFree, task: Task) -> None:
    queries = replace(task.validation, labels=task.validation.labels.slice(0, 0))
    blind, seeing = label_free.rankings(queries), label_free.rankings(task.validation)
    assert blind.keys() == systems_of(label_free)
    assert all(blind[name].equals(seeing[name]) for name in blind)


def test_an_adapted_encoder_is_ranked_and_fused_as_the_base_is(label_free: LabelFree, task: Task) -> None:
    queries = task.validation
    rankings = label_free.rankings(queries, {"copy": queries.vectors})
    assert rankings.keys() == {*systems_of(label_free), "copy", by_ranks("copy"), by_scores("copy")}
    assert rankings["copy"].equals(rankings[BASE])
    assert rankings[by_ranks("copy")].equals(rankings[by_ranks(BASE)])
    settings = {**label_free.settings, by_scores(WHITENED): label_free.settings[by_scores(BASE)]}
    alike = replace(label_free, settings=settings).rankings(queries, {"copy": queries.vectors})
    assert alike[by_scores("copy")].equals(alike[by_scores(BASE)])
    assert not rankings[BM25].equals(rankings[BASE])


def test_feedback_moves_queries_towards_their_first_texts(task: Task) -> None:
    queries = task.validation
    positions, before = task.frozen.nearest(queries.vectors, queries.index, 3)
    moved = add_feedback(task.frozen, queries, 0.8)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), 1, atol=1e-5)
    after = np.einsum("qd,qkd->qk", moved, task.frozen.take(positions.reshape(-1)).reshape(*positions.shape, -1))
    assert (after.mean(axis=1) >= before.mean(axis=1) - 1e-6).all()
    np.testing.assert_allclose(add_feedback(task.frozen, queries, 0.0), queries.vectors, atol=1e-5)
