"""LoRA through all stages: what a kill leaves, and a verdict on queries that it encoded anew."""

from pathlib import Path

import numpy as np
import pytest

from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.agreement import FOLDS
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit.encoder_methods import EncoderMethod
from darklode.pipeline.train.fit.stage import TRAIN_STAGE
from darklode.pipeline.train.fit.whitening import best_whitening, whitenings
from darklode.pipeline.train.release.verdict import VERDICT_STAGE, read_verdict
from darklode.schemas.adaptation import AdaptSettings
from helpers.runs import read

from ..conftest import Adapted, redo

LORA = AdaptSettings(
    method="lora", init="base", lora_rank=2, max_steps=10, batch_size=16, learning_rates=(1e-3, 3e-3), refresh_steps=5
)


def files(run: Run) -> dict[str, bytes | None]:
    tables = (*TRAIN_STAGE.writes, "test_rankings", *VERDICT_STAGE.writes)
    return {name: run.store.read(name) for table in tables for name in run.store.sizes(f"tables/{table}")}


@pytest.mark.slow
def test_lora_killed_and_run_again_is_the_same_to_the_byte(adapted: Adapted, tmp_path: Path) -> None:
    these = steps(adapted.base, adapted.settings.model_copy(update={"adapt": LORA}))
    whole, killed = Run(str(tmp_path / "whole")), Run(str(tmp_path / "killed"))
    assert len(redo(these, whole)) == 2 * (2 * FOLDS + 1)
    with pytest.raises(KeyboardInterrupt):
        redo(these, killed, stop_after=2)
    told = redo(these, killed)
    assert len(told) == 4 * FOLDS, "the first trial of the first fold is not repeated"
    assert told[0].startswith("fold 1, learning rate 0.003: loss")
    assert files(killed) == files(whole)
    assert redo(these, whole) == []
    assert read_verdict(whole.tables())["folds"] == FOLDS
    trials = read(whole, "adaptation_trials")
    assert {row["setting"] for row in trials} == {"0.001", "0.003"}


@pytest.mark.parametrize("method", ["lora", "top_n", "full"])
def test_the_untrained_whitening_is_tried_with_centering(
    adapted: Adapted, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr("darklode.pipeline.train.fit.encoder_methods.whitenings", lambda task: whitenings(task, [0.5]))
    tables = adapted.out.tables()
    task = Task.from_tables(tables, adapted.base.open(tables), same_document=False)
    settings = AdaptSettings.model_validate({"method": method, "lora_rank": 2, "top_layers": 1})
    tried = EncoderMethod(settings, adapted.base)
    first, *rates = tried.hyperparameters
    assert (first, len(rates) > 0) == (0, True)
    weights = tried.fit(task, first, 0, lambda *_: None).best_weights
    whitening, queries = best_whitening(task, whitenings(task, [0.5])), task.validation
    assert whitening is not None
    assert whitening.centering == 0.5
    np.testing.assert_allclose(tried.vectors(weights, 1.0, queries), whitening.apply(queries.vectors), atol=1e-5)
    np.testing.assert_allclose(tried.vectors(weights, 0.0, queries), queries.vectors, atol=1e-5)


def test_from_the_base_there_is_no_untrained_trial(adapted: Adapted) -> None:
    settings = AdaptSettings(method="full", init="base", learning_rates=(1e-5,))
    assert EncoderMethod(settings, adapted.base).hyperparameters == (1e-5,)
