"""Query vectors mixed with term vectors: selected on validation queries, and where training starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit.head_methods import HeadMethod, WhiteningMethod
from darklode.pipeline.train.fit.heads import Head, layers_of
from darklode.pipeline.train.fit.term_start import TERM_SHARES, TermStart, best_term_start, term_starts
from darklode.pipeline.train.fit.weights import as_rows, from_rows
from darklode.pipeline.train.fit.whitening import best_uncentered, whitenings
from darklode.schemas.adaptation import AdaptSettings

from ..conftest import QUICK, Adapted


@pytest.fixture(name="task", scope="module")
def _task(adapted: Adapted) -> Task:
    tables = adapted.out.tables()
    return Task.from_tables(tables, adapted.base.open(tables), same_document=False)


def with_terms(task: Task, *, helpful: bool) -> Task:
    """Term vectors that point to each query's positive, or to nothing."""
    draws = np.random.default_rng(0)
    sets = []
    for queries in (task.train, task.validation):
        terms = draws.normal(size=queries.vectors.shape).astype(np.float32)
        if helpful:
            query, position = queries.positives(task.frozen)
            terms[query] = task.frozen.take(position) * 3
        sets.append(replace(queries, terms=terms))
    return replace(task, train=sets[0], validation=sets[1])


def test_it_mixes_the_whitened_vector_with_the_scaled_terms(task: Task) -> None:
    whitening, helped = next(whitenings(task, centerings=(0.5,))), with_terms(task, helpful=True)
    starts = term_starts(helped, whitening)
    assert [start.share for start in starts] == [*TERM_SHARES]
    assert {start.power for start in starts} == {whitening.power}
    queries = helped.validation
    assert helped.train.terms is not None
    assert queries.terms is not None
    length = np.linalg.norm(helped.train.terms @ whitening.weight.T, axis=1).mean()
    for start in starts:
        mixed = (1 - start.share) * whitening.apply(queries.vectors)
        mixed = mixed + start.share * queries.terms @ whitening.weight.T / length
        np.testing.assert_allclose(
            start.apply(queries), mixed / np.linalg.norm(mixed, axis=1, keepdims=True), atol=1e-5
        )
    blank = replace(queries, vectors=queries.vectors * 0)
    assert (starts[0].apply(blank) == 0).all(), "a blank query stays blank"


def test_its_way_begins_at_the_base(task: Task) -> None:
    helped = with_terms(task, helpful=True)
    start = term_starts(helped, next(whitenings(task)))[1]
    np.testing.assert_allclose(start.interpolate(0.0).apply(helped.train), helped.train.vectors, atol=1e-6)
    again = TermStart.from_weights(from_rows(as_rows(0, start.tensors())), 1.0)
    assert again is not None
    assert (again.share, again.power) == (start.share, start.power)
    np.testing.assert_array_equal(again.apply(helped.train), start.apply(helped.train))


def test_terms_that_say_nothing_are_left_out(adapted: Adapted, task: Task) -> None:
    noise, none = with_terms(task, helpful=False), replace(task, train=replace(task.train, terms=None))
    whitening = best_uncentered(task, whitenings(task))
    assert best_term_start(with_terms(task, helpful=True), whitening) is not None
    assert best_term_start(noise, whitening) is None
    assert best_term_start(none, whitening) is None
    settings = QUICK.model_copy(update={"max_steps": 10})
    for setting in (0.0, 1e-3):
        plain, noisy, missing = (
            HeadMethod(settings, adapted.base).fit(each, setting, 0, lambda *_: None).best_weights
            for each in (replace(task, train=replace(task.train, terms=None)), noise, none)
        )
        for name, tensor in plain.items():
            assert tensor.tobytes() == noisy[name].tobytes() == missing[name].tobytes(), "trained as without"


def test_training_starts_from_the_mix(adapted: Adapted, task: Task) -> None:
    helped = with_terms(task, helpful=True)
    settings = QUICK.model_copy(update={"max_steps": 10})
    method = HeadMethod(settings, adapted.base)
    start = best_term_start(helped, best_uncentered(helped, whitenings(helped)))
    assert start is not None
    history = method.fit(helped, 1e-9, 0, lambda *_: None)
    assert history.eval_points[0].validation == helped.validation.ndcg(helped.frozen, start.apply(helped.validation))
    weights = history.best_weights
    assert len(layers_of(weights)) == 1
    vectors = method.vectors(weights, 1.0, helped.validation)
    np.testing.assert_allclose(vectors, start.apply(helped.validation), atol=1e-4)
    moved = Head.from_layers([(weight + 0.5, bias) for weight, bias in layers_of(weights)])
    shifted = method.vectors({**weights, **moved.state()}, 1.0, helped.validation)
    np.testing.assert_allclose(shifted, moved.apply_to(start.apply(helped.validation)), atol=1e-5)


def test_whitened_without_training_uses_them_too(adapted: Adapted, task: Task) -> None:
    helped = with_terms(task, helpful=True)
    method = WhiteningMethod(AdaptSettings(method="whitened"), adapted.base)
    weights = method.fit(helped, 0.5, 0, lambda *_: None).best_weights
    start = TermStart.from_weights(weights)
    assert start is not None
    assert start.power == 0.5
    np.testing.assert_allclose(
        method.vectors(weights, 1.0, helped.validation), start.apply(helped.validation), atol=1e-5
    )
