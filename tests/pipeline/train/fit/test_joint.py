"""Queries and documents trained together: documents are embedded again, and the base stays the frozen one."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.pairs import PAIRS_STAGE, adaptation_pairs
from darklode.pipeline.train.data.term_vectors import TERM_VECTORS_STAGE, write_term_vectors
from darklode.pipeline.train.fit.adaptation_trial import EVALUATION_STEPS
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.fit.joint import JointMethod, JointTrial, passage_texts
from darklode.pipeline.train.release.ablation import ABLATION_STAGE, compare
from darklode.pipeline.train.release.baselines import baselines
from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings
from darklode.schemas.adaptation import AdaptSettings
from helpers.runs import execute, read

from ..conftest import Adapted

FAST = AdaptSettings(
    method="full",
    init="base",
    max_steps=6,
    batch_size=16,
    negatives_per_step=2,
    num_negatives=2,
    learning_rates=(3e-2,),
    refresh_steps=3,
)


@pytest.fixture(scope="module")
def task(adapted: Adapted) -> Task:
    tables = adapted.out.tables()
    return Task.from_tables(tables, adapted.base.open(tables), same_document=False)


def test_texts_stand_by_position_and_move_with_the_encoder(adapted: Adapted, task: Task) -> None:
    method, frozen = JointMethod(FAST, adapted.base), task.frozen
    before = frozen.take(np.arange(len(frozen)))
    said = passage_texts(adapted.base, frozen)
    with deterministic(0):
        same = method._open().document_vectors(said)
    assert np.abs(same - before).max() < 1e-5, "untrained it gives each position its own vector"
    weights = method.fit(task, 3e-2, 0, lambda *_: None).best_weights
    moved = method.transform_index(frozen, weights, 1.0)
    now = moved.take(np.arange(len(moved)))
    assert np.abs(now - before).max(axis=1).min() > 1e-4, "each document is embedded again"
    assert (frozen.take(np.arange(len(frozen))) == before).all()
    asked = task.validation
    vectors = method.vectors(weights, 1.0, asked)
    lists = asked.ranking(moved, vectors, 10)
    wanted = np.argsort(-(vectors.astype(np.float64) @ now[moved.position_of].T.astype(np.float64)), axis=1)[:, 0]
    first = lists.filter(lists["rank"].to_numpy() == 1)["text_id"].to_pylist()
    assert first == [moved.texts["text_id"][row].as_py() for row in wanted.tolist()]


def test_a_step_has_gradients_of_documents_whatever_their_number(adapted: Adapted) -> None:
    method = JointMethod(FAST, adapted.base)
    encoder, texts = method._open(), [f"text {number}" for number in range(70)]
    found = []
    for size in (32, 128):
        encoder._settings = encoder._settings.model_copy(update={"batch_size": size})
        encoder.loaded.zero_grad()
        torch.manual_seed(0)
        vectors = encoder.documents(texts)
        (vectors * torch.arange(8)).sum().backward()
        found.append([vectors.detach(), *(one.grad.clone() for one in encoder.parameters() if one.grad is not None)])
    assert len(found[0]) == len(found[1]) > 10
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-3, rtol=1e-3)


def test_looks_and_minings_are_among_the_moved_texts(adapted: Adapted, task: Task) -> None:
    encoder = JointMethod(FAST, adapted.base)._open()
    settings = FAST.model_copy(update={"max_steps": EVALUATION_STEPS + 10, "refresh_steps": 30})
    trial = JointTrial(task, settings, 0, encoder, lambda *_: None)
    trial.texts = passage_texts(adapted.base, task.frozen)
    trial.after_step(0)
    assert trial.task is task
    trial.after_step(1)
    assert trial.task is task, "nothing is due"
    for due in (30, EVALUATION_STEPS, EVALUATION_STEPS + 10):  # a refresh, a look, the last step
        with torch.no_grad():
            for one in encoder.parameters():
                one.add_(torch.randn(one.shape) * 0.1)
        trial.after_step(due)
        assert (trial.task.frozen.take(np.arange(3)) == encoder.document_vectors(trial.texts)[:3]).all()


@pytest.mark.slow
def test_it_is_compared_with_a_base_that_stays(adapted: Adapted, task: Task, tmp_path: Path) -> None:
    out, sources = Run(str(tmp_path / "out")), adapted.base.sources
    execute(out, PAIRS_STAGE, lambda _tables, output: adaptation_pairs(sources, output, AdaptSettings()))
    execute(out, TERM_VECTORS_STAGE, partial(write_term_vectors, base=adapted.base, enabled=False, seed=0))
    execute(
        out,
        ABLATION_STAGE,
        lambda tables, given: compare(tables, given, FAST, adapted.base, methods=["joint"], seeds=1),
    )
    lists = read(out, "comparison_lists")
    assert {row["system"] for row in lists} >= {"base", "joint"}
    asked = QuerySet.from_tables(out.tables(), task.frozen, "test")
    wanted = asked.ranking(task.frozen, asked.vectors, 100)["text_id"].to_pylist()
    assert [row["text_id"] for row in lists if row["system"] == "base"] == wanted
    (facts,) = [unit["facts"] for unit in out.manifests()["adapt_compare"].units.values() if unit["facts"]]
    assert (facts["system"], facts["trained"] > 100) == ("joint", True)


def test_it_is_a_rival_only_where_it_is_named_and_has_no_controls(adapted: Adapted, task: Task) -> None:
    found = baselines(FAST, ["joint"], Bm25Rankings(adapted.base, task.frozen), 16)
    assert [(one.name, one.settings.method, one.settings.init) for one in found] == [("joint", "full", "base")]
