"""laws run: its steps, and what the command turns into settings."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from darklode.flows import launch, run_laws
from darklode.flows.cli import app
from darklode.flows.runs import LAWS, note, recorded
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.settings import Settings


def test_options_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[Any, ...]] = []
    monkeypatch.setattr(launch, "launch", lambda body, _reporter, *args: kept.append((body, *args)))
    words = "laws run runs/a --encoder e --out o --size 0 --size 100 --source ict --seeds 2 --set adapt.steps=5".split()
    assert CliRunner().invoke(app, words).exit_code == 0
    laws = {"sizes": [0, 100], "sources": ["ict"], "seeds": 2}
    assert kept == [(run_laws.run_laws, ["runs/a"], "e", "o", {"adapt": {"steps": 5}, "laws": laws})]
    Settings.model_validate(kept[0][4])


def test_a_folder_of_laws_is_no_run(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "laws"))
    note(run, {LAWS: ["runs/a"]})
    with pytest.raises(ArtifactError, match="holds laws"):
        recorded(run)
