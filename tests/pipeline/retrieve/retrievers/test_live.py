"""Search engines before a run: what the first query shows."""

import socket
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.pipeline.retrieve.retrievers.kinds.opensearch import KIND
from darklode.pipeline.retrieve.retrievers.live import LiveBuilder
from darklode.schemas.settings import CacheSettings
from helpers.fake_engine import FakeEngine


def builder(url: str, **settings: Any) -> LiveBuilder:
    request = {"query": {"match": {"body": "{query}"}}, "size": "{k}"}
    kind = KIND.model_validate({"base_url": url, "index": "shop", "request": request} | settings)
    return LiveBuilder("engine", kind, CacheSettings())


def test_a_query_with_hits_gives_no_note_and_one_without_does() -> None:
    with FakeEngine({"shop": {"faq": "billing"}}) as engine:
        assert builder(engine.url).try_query("billing", "default") == []
        assert builder(engine.url).try_query("weather", "default") == [
            "retrievers.engine: the first query, 'weather', has no hits"
        ]
        assert [body["size"] for body in engine.searches] == [10, 10]


def test_what_would_stop_the_run_stops_it_before() -> None:
    with FakeEngine({"shop": {"faq": "billing"}}) as engine:
        with pytest.raises(MissingPart, match=r"no such index \[none\]"):
            builder(engine.url, index="none").try_query("billing", "default")
        request = {"query": {"match": {"body": "{query}"}}, "limit": "{k}"}
        with pytest.raises(DarklodeError, match="status 400: unknown key for a search"):
            builder(engine.url, request=request).try_query("billing", "default")
        with pytest.raises(DarklodeError, match=r"has no list at hits\.documents"):
            builder(engine.url, hits_path="hits.documents").try_query("billing", "default")


def test_a_server_that_does_not_listen_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert builder(url).engine.missing() == [f"no server at {url[7:]}; start it, or correct base_url"]
    with FakeEngine({}) as engine:
        assert builder(engine.url).engine.missing() == []
        (problem,) = builder(engine.url, api_key_env="SHOP_KEY").engine.missing()
        assert problem.endswith("needs a key: set the environment variable SHOP_KEY")
    (problem,) = builder("http://me:secret@host:1").engine.missing()
    assert "must not contain a user name" in problem
    assert "secret" not in problem


def test_the_builder_has_the_identity_of_its_settings(tmp_path: Path) -> None:
    first = builder("http://host:1", timeout=3, max_concurrency=1, auth_header="X-Key: {key}")
    assert first.identity == builder("http://host:1").identity
    assert first.identity != builder("http://host:2").identity
    assert first.identity != builder("http://host:1", index_version="2").identity
    assert first.shares == "engine"
