"""Whitening: the map's own equation, what it undoes, and where methods that begin with it begin."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit import whitening
from darklode.pipeline.train.fit.batched_heads import StackedTrial, train_stacked
from darklode.pipeline.train.fit.head_methods import HeadMethod, WhiteningMethod
from darklode.pipeline.train.fit.heads import Head
from darklode.pipeline.train.fit.method_registry import create_method
from darklode.pipeline.train.fit.whitening import COVARIANCE_POWERS, best_whitening, whiten, whitenings
from darklode.schemas.adaptation import AdaptSettings

from ..conftest import QUICK, Adapted

Floats = np.ndarray[Any, np.dtype[np.float32]]


def unit(n: int, seed: int, stretched: float = 1.0) -> Floats:
    drawn = np.random.default_rng(seed).standard_normal((n, 6))
    drawn[:, 0] *= stretched
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def of_vectors(queries: Floats, texts: Floats) -> Any:
    class Texts:
        def __len__(self) -> int:
            return len(texts)

        def take(self, positions: Any) -> Floats:
            return texts[positions]

    return SimpleNamespace(train=SimpleNamespace(vectors=queries), frozen=Texts())


def test_it_is_the_covariances_negative_power_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, texts = unit(40, 0, 3.0), unit(70, 1, 3.0)
    found = dict(whitenings(of_vectors(queries, texts)))
    assert tuple(found) == COVARIANCE_POWERS
    assert 0 < min(COVARIANCE_POWERS) < max(COVARIANCE_POWERS) < 1
    spread = (np.cov(queries.T, bias=True) + np.cov(texts.T, bias=True)) / 2
    spread += whitening.SHRINKAGE * np.trace(spread) / 6 * np.eye(6)
    fourth = np.linalg.matrix_power(found[0.25].astype(np.float64), 4) @ spread
    np.testing.assert_allclose(fourth / fourth[0, 0], np.eye(6), atol=1e-4)
    assert np.linalg.norm(queries @ found[0.5], axis=1).mean() == pytest.approx(1, abs=1e-5)
    monkeypatch.setattr(whitening, "_TEXTS_PER_BLOCK", 16)
    for power, weight in whitenings(of_vectors(queries, texts)):
        np.testing.assert_allclose(weight, found[power], atol=1e-5)


def test_a_direction_that_all_texts_share_counts_for_less() -> None:
    queries, texts = unit(40, 0, 8.0), unit(70, 1, 8.0)
    for _, weight in whitenings(of_vectors(queries, texts)):
        assert (np.abs(whiten(queries, weight)[:, 0]) < np.abs(queries[:, 0]) + 1e-6).all()
    assert not whiten(np.zeros((1, 6), np.float32), weight).any()


def task_of(adapted: Adapted) -> Task:
    tables = adapted.out.tables()
    return Task.from_tables(tables, adapted.base.open(tables), same_document=False)


def test_no_label_of_a_training_query_is_read(adapted: Adapted) -> None:
    task, none = task_of(adapted), np.empty(0, np.int64)
    bare = replace(task, pair_query=none, pair_position=none, train=replace(task.train, labels=pa.table({})))
    settings = AdaptSettings(method="whitened")
    found = [
        WhiteningMethod(settings, adapted.base).fit(one, 0.5, 0, lambda *_: None).best_weights for one in (task, bare)
    ]
    assert found[0]["0.weight"].tobytes() == found[1]["0.weight"].tobytes()
    vectors = create_method(settings, adapted.base).vectors(found[0], 1.0, task.validation)
    np.testing.assert_allclose(vectors, whiten(task.validation.vectors, dict(whitenings(task))[0.5]), atol=1e-5)


def test_a_head_begins_as_the_map_and_is_anchored_to_it(adapted: Adapted) -> None:
    task, (_, weight) = task_of(adapted), next(whitenings(task_of(adapted)))
    settings = QUICK.model_copy(update={"max_steps": 50, "l2_to_base": 1e4})
    start = Head.mapping(weight).weights()
    (history,) = train_stacked([StackedTrial(task, 1e-9, 0, lambda *_: None, start, anchored=True)], settings)
    began = task.validation.ndcg(task.frozen, whiten(task.validation.vectors, weight))
    assert history.eval_points[0].validation == began
    assert history.eval_points[1].loss is not None
    assert history.eval_points[1].loss < 10, "the anchor lies where training began, not at the base"


def test_it_begins_where_validation_is_best(adapted: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(adapted)
    reached = {0.0: task.validation.ndcg(task.frozen, task.validation.vectors)}
    maps = dict(whitenings(task))
    for power, weight in maps.items():
        reached[power] = task.validation.ndcg(task.frozen, whiten(task.validation.vectors, weight))
    best = max(reached, key=lambda one: (reached[one], -one))
    found = best_whitening(task)
    assert (found is None) == (best == 0.0)
    assert found is None or found.tobytes() == maps[best].tobytes()
    monkeypatch.setattr(whitening, "COVARIANCE_POWERS", ())
    assert best_whitening(task) is None


@pytest.mark.parametrize(("start", "method", "moved"), [("whitened", "linear", True), ("base", "linear", False)])
def test_the_setting_says_where_it_begins(
    adapted: Adapted, monkeypatch: pytest.MonkeyPatch, start: str, method: str, moved: bool
) -> None:
    weight = np.eye(8, dtype=np.float32)[::-1].copy()
    monkeypatch.setattr("darklode.pipeline.train.fit.head_methods.best_whitening", lambda _: weight)
    settings = QUICK.model_copy(update={"init": start, "method": method, "max_steps": 1})
    history = HeadMethod(settings, adapted.base).fit(task_of(adapted), 1e-9, 0, lambda *_: None)
    assert moved == bool(np.abs(history.best_weights["0.weight"]).max() > 0.5)
