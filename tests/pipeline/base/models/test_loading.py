"""A model as it is loaded: refused with code of its own, with the tokens that it declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.models.loading import fetch_model, load_model, open_model
from darklode.schemas.pooling import LocalModel
from helpers.minilm import clone


def settings(model: str) -> LocalModel:
    return LocalModel.model_validate({"model": model, "device": "cpu"})


def test_a_declared_end_token_is_appended(tmp_path: Path) -> None:
    declared: dict[str, object] = {"add_eos_token": True, "eos_token": "[MASK]", "bos_token": "[CLS]"}
    folder = clone(tmp_path / "model", tokenizer_config=declared, special_tokens_map=declared)
    tokenizer = load_model(settings(str(folder)), "cpu").tokenizer
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("tea", truncation=True, max_length=8)["input_ids"])
    assert tokens == ["[CLS]", "tea", "[MASK]"]


def test_code_of_its_own_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    folder = clone(tmp_path / "model", config={"auto_map": {"AutoModel": "modeling_acme.AcmeModel"}})
    with pytest.raises(MissingPart, match=r"modeling_acme\.AcmeModel.*serve it with vLLM"):
        open_model(settings(str(folder)), "cpu", "SentenceTransformer")


def test_a_model_that_is_here_is_not_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_given, **_named: pytest.fail("fetched"))
    fetch_model(settings(str(clone(tmp_path / "model"))))
