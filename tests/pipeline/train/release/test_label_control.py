"""The control with shuffled labels: what it is trained on, and when there is none."""

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit.heads import Head
from darklode.pipeline.train.fit.method_registry import create_method
from darklode.pipeline.train.fit.model_selection import full_training
from darklode.pipeline.train.fit.stage import TRAIN_STAGE, load_best_trial
from darklode.pipeline.train.fit.weights import as_rows, from_rows
from darklode.pipeline.train.release.baselines import shuffle_labels
from darklode.pipeline.train.release.label_control import CONTROL_STAGE, train_control
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put

from ..conftest import QUICK, Adapted, rows_of


def control(
    adapted: Adapted, folder: Path, settings: AdaptSettings, *, trial: int, share: float = 1.0, step: int = 1
) -> Run:
    """Train the control of a selected trial; returns its run."""
    run = Run(str(folder))
    tables = adapted.out.tables()
    for name in CONTROL_STAGE.reads[:-1]:
        put(run, name, tables.read(name))
    row = {"trial": trial, "setting": "x", "share": share, "step": step, "validation": 1.0, "queries": 1}
    put(run, "adaptation_trials", rows_of("adaptation_trials", row))
    execute(run, CONTROL_STAGE, lambda read, output: train_control(read, output, settings, adapted.base, seed=0))
    return run


def test_it_learns_other_pairs_with_the_selected_setting(adapted: Adapted, tmp_path: Path) -> None:
    fast = QUICK.model_copy(update={"max_steps": 50, "learning_rates": (3e-3,)})
    trained = from_rows(control(adapted, tmp_path, fast, trial=1).tables().read("control_weights"))
    tables = adapted.out.tables()
    task = full_training(Task.from_tables(tables, adapted.base.open(tables), same_document=False))
    method = create_method(fast, adapted.base)
    real, shuffled = (
        method.fit(labels, 3e-3, 0, lambda *_: None).best_weights for labels in (task, shuffle_labels(task, 0))
    )
    assert trained.keys() == shuffled.keys() == load_best_trial(adapted.out.tables())[1].keys()
    for name, values in trained.items():
        np.testing.assert_array_equal(values.reshape(-1), shuffled[name].reshape(-1))
    assert any(np.abs(trained[name].reshape(-1) - real[name].reshape(-1)).max() > 1e-3 for name in real)


@pytest.mark.parametrize(
    ("update", "trial", "share", "step"),
    [({}, 0, 1.0, 1), ({}, 1, 0.0, 1), ({"method": "whitened"}, 1, 1.0, 1), ({"method": "full"}, 1, 1.0, 0)],
    ids=["the untrained start", "the base", "a method without labels", "the whitening an encoder starts from"],
)
def test_without_trained_labels_there_is_none(
    adapted: Adapted, tmp_path: Path, update: dict[str, str], trial: int, share: float, step: int
) -> None:
    run = control(adapted, tmp_path, QUICK.model_copy(update=update), trial=trial, share=share, step=step)
    assert run.tables().rows("control_weights") == 0
    assert run.tables().read("control_weights").schema == TABLES["control_weights"].schema


def test_weights_are_in_the_format_of_the_trials() -> None:
    assert as_rows(0, Head(4, 1).state()).schema == TABLES["control_weights"].schema
    assert TRAIN_STAGE.writes[-1] == "adapter_weights"
