"""From settings to encoders, and what a machine lacks."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.models import local as local_models
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.openai import OpenAIEncoder
from darklode.pipeline.retrieve.encoders.sentence_transformers import SentenceTransformersEncoder
from darklode.schemas.settings import Settings
from helpers.fake_openai import FakeOpenAI
from helpers.minilm import MODEL

torch = pytest.importorskip("torch")
constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture(autouse=True)
def _nothing_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def settings(**given: Any) -> EncoderKind:
    found = Settings.model_validate({"encoders": {"one": given}}).encoders["one"]
    assert isinstance(found, EncoderKind)
    return found


def local(**given: Any) -> EncoderKind:
    return settings(kind="sentence_transformers", **({"model": str(MODEL)} | given))


def remote(**given: Any) -> EncoderKind:
    return settings(kind="openai", model="fake-1", **given)


def test_each_kind_is_loaded_under_the_id_foretold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    for asked, kind in ((local(device="cpu"), SentenceTransformersEncoder), (remote(), OpenAIEncoder)):
        foretold = asked.encoder_id()
        encoder = asked.load()
        assert isinstance(encoder, kind)
        assert encoder.encoder_id == foretold
        assert foretold.startswith(f"{asked.kind}:")


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
        ({"model": "/nowhere"}, "no such folder"),
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


def test_a_missing_key_is_named_and_a_set_one_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "OPENAI_API_KEY" in str(remote().missing())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert remote().missing() == []


def test_ones_own_server_must_listen() -> None:
    with FakeOpenAI() as server:
        assert remote(base_url=server.url, key_env="").missing() == []
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        assert "no server answers at 127.0.0.1" in str(remote(base_url=url, key_env="").missing())
