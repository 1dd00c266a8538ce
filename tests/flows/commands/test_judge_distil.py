"""darklode judge distil as a command: what it passes on, what it shows, and its exit code."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from darklode.flows import launch
from darklode.flows.cli import app
from darklode.pipeline.base.errors import NoLift
from helpers.distilled import judged_build
from helpers.reranked import bi_encoder, quick_settings


class Started(Exception):
    """Instead of the job."""


def test_options_reach_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: list[tuple[Any, ...]] = []

    def record(_body: object, _reporter: object, *args: Any) -> None:
        arguments.append(args)
        raise Started

    monkeypatch.setattr(launch, "launch", record)
    words = ["judge", "distil", "runs/a", "--base", "m", "--out", "o", "--min-agreement", "0.7"]
    words += ["--set", "reranker.max_steps=5"]
    assert isinstance(CliRunner().invoke(app, words).exception, Started)
    assert arguments == [("runs/a", "m", "o", {"reranker": {"max_steps": 5}}, 0.7)]


@pytest.mark.slow
def test_the_cascade_is_shown_whether_the_judge_is_good_enough_or_not(tmp_path: Path) -> None:
    judged_build(tmp_path / "run")
    model = bi_encoder(tmp_path / "bi")
    config = tmp_path / "quick.yaml"
    config.write_text(yaml.safe_dump(quick_settings(tmp_path)))
    words = ["judge", "distil", str(tmp_path / "run"), "--base", str(model), "--out", str(tmp_path / "out")]
    words += ["--config", str(config)]
    good = CliRunner().invoke(app, words)
    assert good.exit_code == 0, good.output
    assert "Cascade of the distilled judge and its teacher, on test queries" in good.output
    assert "the distilled judge agrees with its teacher on" in " ".join(good.output.split())
    refused = CliRunner().invoke(app, [*words, "--min-agreement", "0.99"])
    assert isinstance(refused.exception, NoLift)
    assert refused.exception.code == 3
    assert "Cascade of the distilled judge" in refused.output
    assert (tmp_path / "out" / "reranker" / "model.safetensors").exists()
