"""Encoders of sentence-transformers, from settings: their ids, and what a machine lacks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.models import local as local_models
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.sentence_transformers import SentenceTransformersEncoder
from darklode.schemas.settings import Settings
from helpers.minilm import MODEL

torch = pytest.importorskip("torch")
constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture(autouse=True)
def _nothing_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def local(**given: Any) -> EncoderKind:
    """Settings as a user gives them."""
    encoder = {"kind": "sentence_transformers", "model": str(MODEL)} | given
    return as_kind(Settings.model_validate({"encoders": {"one": encoder}}).encoders["one"], EncoderKind)


def test_it_is_loaded_under_the_id_foretold() -> None:
    asked = local(device="cpu")
    encoder = asked.load()
    assert isinstance(encoder, SentenceTransformersEncoder)
    assert encoder.encoder_id == asked.encoder_id()
    assert asked.encoder_id().startswith(f"{asked.kind}:")


def test_an_id_loads_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sentence_transformers.SentenceTransformer.__init__", lambda *_: pytest.fail("loaded"))
    assert "model@files-" in local().encoder_id()


def test_nothing_is_missing_for_a_small_model_in_a_folder() -> None:
    assert local().missing() == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "acme/embed-8B"}, "hf download acme/embed-8B"),
        ({"model": "acme/embed-8B", "dtype": "bfloat16"}, "about 20 GB of GPU memory: PyTorch sees no GPU here"),
        ({"model": "acme/embed-300M", "device": "cuda"}, "about 2 GB of GPU memory"),
        ({"model": "/nowhere"}, "the folder does not exist"),
    ],
)
def test_a_local_models_lacks_are_named(given: dict[str, str], said: str) -> None:
    assert said in str(local(**given).missing())


def test_a_model_too_large_for_the_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Card:
        total_memory = 10_000_000_000

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _number: Card)
    assert "about 20 GB of GPU memory: GPU 0 has 10 GB" in str(local(model="acme/embed-8B", dtype="bfloat16").missing())
    assert local().missing() == []


def test_parameters_are_counted_in_the_files() -> None:
    asked = local()
    assert asked.kind == "sentence_transformers"
    assert local_models.parameters(asked, local_models.locate(asked)) == 22_713_728


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_models, "find_spec", lambda name: None if name == "sentence_transformers" else object())
    assert "pip install" in str(local().missing())
