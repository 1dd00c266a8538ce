"""darklode entropy: what the command asks for, and what it refuses."""

from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from darklode.flows import measure_entropy
from darklode.flows.cli import app
from darklode.pipeline.base.errors import ArtifactError


def test_options_reach_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[Any, ...]] = []

    class Measured:
        def tables(self, _name: str) -> Any:
            return self

        def sql(self, _query: str) -> pa.Table:
            return pa.table({"split": ["test"], "mean": [1.25]})

    monkeypatch.setattr(measure_entropy, "measure_entropy", lambda *args: kept.append(args) or Measured())
    words = ["entropy", "runs/a", "--encoder", "e", "--tenant", "acme", "--temperature", "0.1"]
    found = CliRunner().invoke(app, words, catch_exceptions=False)
    assert kept == [("runs/a", "e", "acme", 0.1)]
    assert "1.25" in found.stdout


def test_a_folder_without_a_run_is_refused(tmp_path: Any) -> None:
    error = CliRunner().invoke(app, ["entropy", str(tmp_path), "--encoder", "e"]).exception
    assert isinstance(error, ArtifactError)
