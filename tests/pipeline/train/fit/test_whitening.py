"""Whitening: the map's own equation, what it undoes, and where methods that begin with it begin."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit import moments, whitening
from darklode.pipeline.train.fit.batched_heads import StackedTrial, train_stacked
from darklode.pipeline.train.fit.head_methods import HeadMethod, WhiteningMethod
from darklode.pipeline.train.fit.heads import Head
from darklode.pipeline.train.fit.method_registry import create_method
from darklode.pipeline.train.fit.whitening import (
    CENTERINGS,
    COVARIANCE_POWERS,
    Whitening,
    best_by_power,
    best_whitening,
    whiten,
    whitenings,
)
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
    found = {each.power: each.weight for each in whitenings(of_vectors(queries, texts))}
    assert tuple(found) == COVARIANCE_POWERS
    assert 0 == min(COVARIANCE_POWERS) < max(COVARIANCE_POWERS) < 1
    np.testing.assert_allclose(found[0.0], np.eye(6), atol=1e-6)
    spread = (np.cov(queries.T, bias=True) + np.cov(texts.T, bias=True)) / 2
    spread += whitening.SHRINKAGE * np.trace(spread) / 6 * np.eye(6)
    fourth = np.linalg.matrix_power(found[0.25].astype(np.float64), 4) @ spread
    np.testing.assert_allclose(fourth / fourth[0, 0], np.eye(6), atol=1e-4)
    assert np.linalg.norm(queries @ found[0.5], axis=1).mean() == pytest.approx(1, abs=1e-5)
    monkeypatch.setattr(moments, "_VECTORS_PER_PART", 16)
    for each in whitenings(of_vectors(queries, texts)):
        np.testing.assert_allclose(each.weight, found[each.power], atol=1e-5)


def test_centering_removes_its_share_of_the_mean_query() -> None:
    queries, texts = unit(40, 0, 3.0), unit(70, 1, 3.0)
    maps = list(whitenings(of_vectors(queries, texts), centerings=(0.0, 0.5, 1.0)))
    for each in maps:
        removed = each.apply(queries)
        expected = whiten(queries - each.centering * queries.mean(axis=0), each.weight)
        np.testing.assert_allclose(removed, expected, atol=1e-5)
        layers = Head.from_layers(each.layers)
        np.testing.assert_allclose(layers.apply_to(queries), removed, atol=1e-5)
        assert not each.apply(np.zeros((1, 6), np.float32)).any()
    assert [each.centering for each in maps[:5]] == [0.5, 1.0, 0.0, 0.5, 1.0], "no map is the base itself"
    centered = queries @ maps[4].weight.T + maps[4].bias
    np.testing.assert_allclose(centered.mean(axis=0), 0, atol=1e-5)


def test_a_direction_that_all_texts_share_counts_for_less() -> None:
    queries, texts = unit(40, 0, 8.0), unit(70, 1, 8.0)
    for each in whitenings(of_vectors(queries, texts), centerings=(0.0,)):
        assert (np.abs(each.apply(queries)[:, 0]) < np.abs(queries[:, 0]) + 1e-6).all()


def task_of(adapted: Adapted) -> Task:
    tables = adapted.out.tables()
    return Task.from_tables(tables, adapted.base.open(tables), same_document=False)


def test_no_label_of_a_training_query_is_read(adapted: Adapted) -> None:
    task, none = task_of(adapted), np.empty(0, np.int64)
    task = replace(task, train=replace(task.train, terms=None))
    bare = replace(task, pair_query=none, pair_position=none, train=replace(task.train, labels=pa.table({})))
    settings = AdaptSettings(method="whitened")
    found = [
        WhiteningMethod(settings, adapted.base).fit(one, 0.5, 0, lambda *_: None).best_weights for one in (task, bare)
    ]
    assert found[0]["0.weight"].tobytes() == found[1]["0.weight"].tobytes()
    vectors = create_method(settings, adapted.base).vectors(found[0], 1.0, task.validation)
    np.testing.assert_allclose(vectors, best_by_power(task)[0.5].apply(task.validation.vectors), atol=1e-5)


def test_a_head_begins_as_the_map_and_is_anchored_to_it(adapted: Adapted) -> None:
    task, first = task_of(adapted), next(whitenings(task_of(adapted), centerings=(0.5,)))
    settings = QUICK.model_copy(update={"max_steps": 50, "l2_to_base": 1e4})
    (history,) = train_stacked([StackedTrial(task, 1e-9, 0, lambda *_: None, first.layers, anchored=True)], settings)
    began = task.validation.ndcg(task.frozen, first.apply(task.validation.vectors))
    assert history.eval_points[0].validation == began
    assert history.eval_points[1].loss is not None
    assert history.eval_points[1].loss < 10, "the anchor lies where training began, not at the base"


def test_it_begins_where_validation_is_best(adapted: Adapted, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(adapted)
    reached = {(0.0, 0.0): task.validation.ndcg(task.frozen, task.validation.vectors)}
    maps = {(each.power, each.centering): each for each in whitenings(task)}
    assert {centering for _, centering in maps} == {*CENTERINGS}
    for key, each in maps.items():
        reached[key] = task.validation.ndcg(task.frozen, each.apply(task.validation.vectors))
    best = max(reached, key=lambda key: reached[key])
    found = best_whitening(task, whitenings(task))
    assert (found is None) == (best == (0.0, 0.0))
    assert found is None or (found.power, found.centering) == best
    for power, each in best_by_power(task).items():
        assert reached[power, each.centering] == max(reached[power, share] for share in CENTERINGS if power or share)
    monkeypatch.setattr(whitening, "COVARIANCE_POWERS", ())
    assert best_whitening(task, whitenings(task)) is None


def test_each_power_has_a_map_without_validation_queries(adapted: Adapted) -> None:
    task = task_of(adapted)
    without = replace(task, validation=task.validation.take(np.empty(0, np.int64)))
    assert list(best_by_power(without)) == [*COVARIANCE_POWERS]


@pytest.mark.parametrize(("start", "method", "moved"), [("whitened", "linear", True), ("base", "linear", False)])
def test_the_setting_says_where_it_begins(
    adapted: Adapted, monkeypatch: pytest.MonkeyPatch, start: str, method: str, moved: bool
) -> None:
    start_map = Whitening(0.5, 0.0, np.eye(8, dtype=np.float32)[::-1].copy(), np.zeros(8, np.float32))
    monkeypatch.setattr("darklode.pipeline.train.fit.head_methods.best_uncentered", lambda *_: start_map)
    settings = QUICK.model_copy(update={"init": start, "method": method, "max_steps": 1})
    history = HeadMethod(settings, adapted.base).fit(task_of(adapted), 1e-9, 0, lambda *_: None)
    assert moved == bool(np.abs(history.best_weights["0.weight"]).max() > 0.5)
