"""darklode laws: a file of points becomes verdicts, tables and a page; what cannot be is said."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from darklode.flows.cli import app
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.laws.fit_stage import FIT_STAGE


def written(folder: Path) -> Path:
    """A planted law of human labels, and labels that teach nothing."""
    draws, lines = np.random.default_rng(0), ["size,value,seed,source"]
    for size in 2 ** np.arange(6, 11):
        for seed in range(3):
            lines.append(f"{size},{((300 / size) ** 0.5 + 0.9) * np.exp(draws.normal(0, 0.002))},{seed},human")
            lines.append(f"{size},{2 + size / 4096},{seed},shuffled")
    (folder / "points.csv").write_text("\n".join(lines) + "\n")
    return folder / "points.csv"


@pytest.mark.slow
def test_a_file_becomes_verdicts_tables_and_a_page(tmp_path: Path) -> None:
    points, out = written(tmp_path), str(tmp_path / "laws")
    told = CliRunner().invoke(app, ["laws", "fit", str(points), "--out", out, "--json"], catch_exceptions=False)
    verdicts = {row["source"]: row["verdict"] for row in json.loads(told.stdout)["law_verdicts"]}
    assert verdicts == {"human": "law", "shuffled": "no law"}
    run = Run(out)
    rows = run.tables("law_constants").read("law_constants").to_pylist()
    planted = {row["constant"]: row["value"] for row in rows if row["form"] == "size" and row["fitted_to"] == "all"}
    assert planted["beta"] == pytest.approx(0.5, abs=0.1)
    assert "contrastive_entropy | shuffled |  | no law" in (run.store.read("laws.md") or b"").decode()
    before = run.manifest(FIT_STAGE)
    assert CliRunner().invoke(app, ["laws", "fit", str(points), "--out", out]).exit_code == 0
    assert run.manifest(FIT_STAGE) == before  # nothing changed, nothing is fitted again
