"""darklode entropy: what the command asks for, and what it refuses."""

from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from darklode.flows import launch
from darklode.flows.cli import app
from darklode.flows.jobs import measure_entropy
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.law_tables import ENTROPY_MEANS
from helpers.runs import put


def test_options_reach_the_measurement(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    mean = {"tenant": "acme", "split": "test", "encoder": "e", "temperature": 0.1, "mean": 1.25, "chance": 5.5}
    mean |= {"pairs": 1, "queries": 1, "negatives": 3}
    put(run, ENTROPY_MEANS.name, pa.Table.from_pylist([mean], ENTROPY_MEANS.schema))
    kept: list[tuple[Any, ...]] = []
    monkeypatch.setattr(launch, "launch", lambda body, _reporter, *args: kept.append((body, *args)))
    words = ["entropy", run.store.url, "--encoder", "e", "--tenant", "acme", "--temperature", "0.1"]
    found = CliRunner().invoke(app, [*words, "--set", "runner.kind=ray"], catch_exceptions=False)
    settings = {"runner": {"kind": "ray"}}
    assert kept == [(measure_entropy.measure_entropy, run.store.url, "e", "acme", 0.1, settings)]
    assert "1.25" in found.stdout
    assert "Tenant acme: some positives are compared with only 3 of 256 random texts" in found.stdout


def test_a_folder_without_a_run_is_refused(tmp_path: Any) -> None:
    error = CliRunner().invoke(app, ["entropy", str(tmp_path), "--encoder", "e"]).exception
    assert isinstance(error, ArtifactError)
