"""laws run: its steps, and what the command turns into settings."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from darklode.flows import launch, run_laws
from darklode.flows.cli import app
from darklode.flows.plan_laws import plan_laws
from darklode.flows.runs import LAWS, note, recorded
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.pipeline.laws.plan import Wanted
from darklode.schemas.settings import Settings
from helpers.adapted import build_to_adapt, model_in


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


def test_from_a_run_to_a_plan(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    source = build_to_adapt(tmp_path / "run")
    model_in(tmp_path)
    adapt = {"method": "linear", "steps": 5, "learning_rates": [1e-3], "start": "base", "batch": 8}
    settings = {"adapt": adapt, "laws": {"sizes": [10, 20, 40], "seeds": 1}}
    with pytest.raises(SettingsError, match="there are 39 queries"):
        run_laws.run_laws([source.store.url], str(tmp_path / "model"), str(tmp_path / "laws"), settings)
    settings["laws"] = {"sizes": [10, 20, 39], "seeds": 1}
    said = run_laws.run_laws([source.store.url], str(tmp_path / "model"), str(tmp_path / "laws"), settings)
    assert said.count("labels: ") == 3
    assert "# Laws" in (tmp_path / "laws" / "laws.md").read_text()
    plans, spent = plan_laws(str(tmp_path / "laws"), Wanted(budget=10, per_label=1))
    assert {row["measure"] for row in plans} == {"contrastive_entropy", "nDCG@10", "R@1000"}
    assert all("label" in row["next"] for row in plans)
    assert spent == {}  # nobody judged this build
