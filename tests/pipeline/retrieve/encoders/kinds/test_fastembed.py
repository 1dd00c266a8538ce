"""The encoder kind `fastembed`, from settings to a retriever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.models import onnx_models
from darklode.pipeline.retrieve.encoders.fastembed import FastembedEncoder
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.schemas.settings import Settings
from helpers.tiny_onnx import tiny_encoder

pytest.importorskip("fastembed", reason="fastembed is not installed")
constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("models") / "tiny")


def kind(**values: Any) -> EncoderKind:
    """Settings as a user gives them."""
    section = Settings.model_validate({"encoders": {"small": {"kind": "fastembed"} | values}}).encoders["small"]
    return as_kind(section, EncoderKind)


def test_it_is_loaded_under_the_id_foretold(folder: Path) -> None:
    settings = kind(model=str(folder))
    settings.fetch()
    assert settings.missing() == []
    encoder = settings.load()
    assert isinstance(encoder, FastembedEncoder)
    assert encoder.encoder_id == settings.encoder_id()
    assert settings.price() == 0


def test_an_id_loads_no_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_models, "load_onnx", lambda *_: pytest.fail("loaded"))
    assert "tiny@files-" in kind(model=str(folder)).encoder_id()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "BAAI/bge-small-en-v1.5"}, "HF_HUB_OFFLINE disables the hub: on a machine with network run"),
        ({"model": "bge-small-en"}, "did you mean BAAI/bge-small-en"),
        ({"model": "/nowhere"}, "the folder does not exist"),
    ],
)
def test_what_is_missing_is_named(folder: Path, values: dict[str, str], message: str) -> None:
    assert message in str(kind(**({"model": str(folder)} | values)).missing())


def test_a_model_that_fastembed_cannot_run_is_named(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / "tiny")
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
    assert "cannot run its module Dense" in str(kind(model=str(folder)).missing())


def test_the_extra_to_install_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_models, "find_spec", lambda _name: None)
    assert kind(model=str(folder)).missing() == ['pip install "darklode[light]"']
