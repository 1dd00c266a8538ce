"""darklode train-reranker as a command: what it passes on, its exit codes, and how it continues after a kill."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from darklode.flows import launch
from darklode.flows.cli import app
from darklode.pipeline.base.artifacts import Run
from helpers.environment import with_paths
from helpers.reranked import bi_encoder, build_to_rerank, cross_encoder, quick_settings

KILLED = """
import os, signal, sys
from darklode.flows import cli
from darklode.pipeline.towers import checkpoint

checkpoint.MIN_SECONDS = 0.0
write, written = checkpoint.Checkpoints.write, []

def write_and_die(self, history):
    write(self, history)
    written.append(history.eval_points[-1].step)
    if len(written) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

if sys.argv.pop(1) == "die":
    checkpoint.Checkpoints.write = write_and_die
cli.main()
"""


class Started(Exception):
    """Instead of the job."""


def test_options_reach_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: list[tuple[Any, ...]] = []

    def record(_body: object, _reporter: object, *args: Any) -> None:
        arguments.append(args)
        raise Started

    monkeypatch.setattr(launch, "launch", record)
    words = ["train-reranker", "runs/a", "runs/b", "--base", "m", "--out", "o", "--encoder", "e"]
    words += ["--candidates", "30", "--control", "--set", "reranker.max_steps=5"]
    assert isinstance(CliRunner().invoke(app, words).exception, Started)
    runs = ["runs/a", "runs/b"]
    assert arguments == [(runs, "m", "o", {"reranker": {"max_steps": 5}}, "e", 30, True)]


def command(root: Path, out: str, mode: str) -> list[str]:
    config = root / "quick.yaml"
    config.write_text(yaml.safe_dump(quick_settings(root, max_steps=25)))
    words = ["train-reranker", str(root / "run"), "--base", str(root / "bi"), "--out", str(root / out)]
    return [sys.executable, "-c", KILLED, mode, *words, "--candidates", "5", "--config", str(config)]


@pytest.mark.slow
def test_a_killed_command_continues_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    build_to_rerank(tmp_path / "run")
    bi_encoder(tmp_path / "bi")
    killed = subprocess.run(command(tmp_path, "out", "die"), env=with_paths(), capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    assert list((tmp_path / "out" / "progress").rglob("*.state"))
    codes = []
    for out in ("out", "other"):
        done = subprocess.run(command(tmp_path, out, "live"), env=with_paths(), capture_output=True, check=False)
        codes.append(done.returncode)
        assert done.returncode in {0, 3}, done.stderr.decode()[-2000:]
        assert "Reranked candidates on the deciding test queries" in done.stdout.decode()
    assert codes[0] == codes[1]
    first, second = (Run(str(tmp_path / name)).tables() for name in ("out", "other"))
    for name in ("reranker_log", "reranker_trials", "adapter_weights", "test_rankings", "reranker_verdict"):
        assert first.content(name) == second.content(name)
    assert not list((tmp_path / "out" / "progress").rglob("*.state"))


def test_a_cross_encoder_needs_an_encoder_for_the_candidates(tmp_path: Path) -> None:
    build_to_rerank(tmp_path / "run")
    cross_encoder(tmp_path / "cross")
    words = ["train-reranker", str(tmp_path / "run"), "--base", str(tmp_path / "cross"), "--out", str(tmp_path / "out")]
    error = CliRunner().invoke(app, words).exception
    assert "name the encoder that finds its candidates with --encoder" in str(error)
    assert not (tmp_path / "out").exists()
