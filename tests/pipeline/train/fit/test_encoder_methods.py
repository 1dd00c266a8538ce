"""LoRA through all stages: what a kill leaves, and a verdict on queries that it encoded anew."""

from pathlib import Path

import pytest

from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.agreement import FOLDS
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.fit.stage import TRAIN_STAGE
from darklode.pipeline.train.release.verdict import VERDICT_STAGE, read_verdict
from darklode.schemas.adaptation import AdaptSettings
from helpers.runs import read

from ..conftest import Adapted, redo

LORA = AdaptSettings(
    method="lora", lora_rank=2, max_steps=10, batch_size=16, learning_rates=(1e-3, 3e-3), refresh_steps=5
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
