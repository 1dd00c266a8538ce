"""Encoders behind an endpoint, from settings: their ids, and what a machine lacks for them."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.encoders.openai import OpenAIEncoder
from darklode.schemas.settings import Settings
from helpers.fake_openai import FakeOpenAI


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def remote(**given: Any) -> EncoderKind:
    """Settings as a user gives them."""
    chosen = Settings.model_validate({"encoders": {"one": {"kind": "openai", "model": "fake-1"} | given}}).encoders[
        "one"
    ]
    return as_kind(chosen, EncoderKind)


def test_it_is_loaded_under_the_id_foretold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    asked = remote()
    encoder = asked.load()
    assert isinstance(encoder, OpenAIEncoder)
    assert encoder.encoder_id == asked.encoder_id()
    assert asked.encoder_id().startswith(f"{asked.kind}:")


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"timeout": 3, "batch_size": 7, "spending_limit": 5, "api_key_env": ""}, True),
        ({"query_prompt": "query: "}, False),
        ({"dimensions": 8}, False),
        ({"query_extra_body": {"input_type": "query"}}, False),
        ({"base_url": "https://elsewhere.example/v1"}, False),
        ({"max_input_tokens": 100}, False),
    ],
)
def test_the_id_names_all_that_changes_a_vector_and_nothing_else(given: dict[str, Any], same: bool) -> None:
    assert (remote(**given).encoder_id() == remote().encoder_id()) == same


def test_a_missing_key_is_named_and_a_set_one_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "OPENAI_API_KEY" in str(remote().missing())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with FakeOpenAI() as server:
        assert remote(base_url=server.url).missing() == []


def test_ones_own_server_must_listen() -> None:
    with FakeOpenAI() as server:
        assert remote(base_url=server.url, api_key_env="").missing() == []
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        assert "no server at 127.0.0.1" in str(remote(base_url=url, api_key_env="").missing())
