"""train-towers --stage 1 on a whole run: what it leaves, that it stands, and what is refused."""

from pathlib import Path

import pytest

from darklode.flows.train_towers import train_towers
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import SettingsError
from helpers.adapted import model_in, settings_for
from helpers.dual import build_with_documents

QUICK = {"dual": {"nested": [4, 8], "steps": 4, "batch": 8, "learning_rates": [1e-3]}}


def test_both_towers_then_they_stand_and_the_query_tower_is_distilled(tmp_path: Path) -> None:
    build_with_documents(tmp_path / "run")
    model, run, out = str(model_in(tmp_path).model), [str(tmp_path / "run")], tmp_path / "out"
    said = train_towers(run, model, str(out), QUICK, stage=1)
    assert "nDCG@10" in said
    files = [path for part in ("tables", "towers") for path in (out / part).rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    assert train_towers(run, model, str(out), QUICK, stage=1) == said
    assert {path: path.read_bytes() for path in files} == before
    assert Run(str(out)).tables("tower_triplets").rows("tower_triplets") == 39
    quick = {"towers": {"layers": 1, "steps": 4, "batch": 8}}
    assert "it keeps " in train_towers(run, str(out / "towers"), str(tmp_path / "student"), quick)
    assert not (tmp_path / "student" / "query_encoder" / "router_config.json").exists()


def test_stage_1_has_neither_teacher_nor_queries(tmp_path: Path) -> None:
    settings_for(tmp_path)
    with pytest.raises(SettingsError, match="stage 1 learns from triplets"):
        train_towers([str(tmp_path)], "m", str(tmp_path / "out"), teacher="t", stage=1)
