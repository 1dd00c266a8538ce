"""laws plan: the price of a label is the one said, or that of the runs' judge, and of a file nobody knows it."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from darklode.flows.cli import app
from darklode.flows.fit_laws import fit_laws
from darklode.flows.plan_laws import plan_laws
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.laws.plan import Wanted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    root, draws, lines = tmp_path_factory.mktemp("plan"), np.random.default_rng(0), ["size,value,seed"]
    for size in 2 ** np.arange(6, 11):
        lines += [f"{size},{((300 / size) ** 0.5 + 0.9) * np.exp(draws.normal(0, 0.002))},{seed}" for seed in range(3)]
    (root / "points.csv").write_text("\n".join(lines) + "\n")
    return fit_laws(str(root / "points.csv"), str(root / "laws")).store.url


def test_a_budget_buys_labels_at_the_price_that_is_said(folder: str) -> None:
    (row,), spent = plan_laws(folder, Wanted(budget=300, per_label=0.6))
    assert spent == {}
    assert row["bought"] == pytest.approx(500)
    assert row["reached"] == pytest.approx((300 / 1524) ** 0.5 + 0.9, abs=0.01)


def test_without_a_price_money_is_not_told(folder: str) -> None:
    found = CliRunner().invoke(app, ["laws", "plan", folder, "--budget", "300"], catch_exceptions=False)
    assert "contrastive_entropy, labels, 1,024 labelled queries: the next 0.1 takes" in " ".join(found.stdout.split())
    assert "give --per-label" in found.stdout
    assert "buys" not in found.stdout


def test_a_folder_without_points_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no points"):
        plan_laws(str(tmp_path), Wanted())
