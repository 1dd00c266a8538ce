"""darklode train-towers: what the command turns into settings, and what it refuses before any work."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from darklode.flows import launch
from darklode.flows.cli import app
from darklode.pipeline.base.errors import CommandLineError


class Asked(Exception):
    """What the flow would have got."""


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of the flow, which is not run."""
    kept: list[tuple[Any, ...]] = []

    def note(_body: object, _reporter: object, *args: Any) -> None:
        kept.append(args)
        raise Asked

    monkeypatch.setattr(launch, "launch", note)
    return kept


STEPS = ("--set", "distill.max_steps=5")


def call(*words: str) -> BaseException | None:
    return CliRunner().invoke(app, ["train-towers", *words]).exception


def test_options_become_settings_and_arguments(given: list[tuple[Any, ...]], tmp_path: Path) -> None:
    words = ["runs/a", "runs/b", "--encoder", "e", "--out", "o", "--teacher", "t", "--layers", "2"]
    assert isinstance(call(*words, "--queries", "x.txt", "--queries", "y.txt", "--hold-out", "files", *STEPS), Asked)
    ((runs, encoder, out, settings, teacher, queries, stage, hold_out),) = given
    assert (runs, encoder, out, teacher, queries) == (["runs/a", "runs/b"], "e", "o", "t", ("x.txt", "y.txt"))
    assert (settings, stage, hold_out) == ({"distill": {"max_steps": 5, "student_layers": 2}}, 2, "files")
    words = ["runs/a", "--encoder", "e", "--out", "o", "--student", "m"]
    assert isinstance(call(*words), Asked)
    assert given.pop()[3] == {"distill": {"student_model": "m"}}


def test_stage_1_learns_from_triplets_alone(given: list[tuple[Any, ...]]) -> None:
    words = ["runs/a", "--stage", "1", "--encoder", "e", "--out", "o"]
    assert isinstance(call(*words), Asked)
    assert given.pop()[-2:] == (1, None)
    assert isinstance(call(*words, "--layers", "2"), Asked)
    assert given.pop()[3] == {"dual": {"query_tower_layers": 2}}
    for more in (["--teacher", "t"], ["--student", "m"], ["--queries", "x.txt"], ["--hold-out", "files"]):
        assert isinstance(call(*words, *more), CommandLineError)
    assert given == []


def test_several_processes_train_both_towers_alone(
    given: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    error = call("runs/a", "--encoder", "e", "--out", "o")
    assert isinstance(error, CommandLineError)
    assert "--stage 1" in str(error)
    assert given == []


def test_layers_and_another_model_are_not_taken_together(given: list[tuple[Any, ...]]) -> None:
    error = call("runs/a", "--encoder", "e", "--out", "o", "--layers", "2", "--student", "m")
    assert isinstance(error, CommandLineError)
    assert given == []
