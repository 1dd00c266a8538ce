"""The preset for Solr's JSON Request API."""

import pytest

from darklode.pipeline.retrieve.retrievers.kinds.solr import KIND
from helpers.fake_engine import ScriptedReplies

REPLY = {"responseHeader": {"status": 0}, "response": {"numFound": 1, "docs": [{"id": "faq", "score": 1.5}]}}


def test_a_search_is_sent_and_read_as_the_engine_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "0123abcd")
    with ScriptedReplies(lambda _body: REPLY) as engine:
        settings = {
            "index": "shop",
            "request": {"query": {"edismax": {"qf": "body", "query": "{query}"}}, "limit": "{k}", "fields": "id,score"},
        }
        kind = KIND.model_validate({"base_url": engine.url, "api_key_env": "ENGINE_KEY"} | settings)
        assert list(kind.connect("engine", "acme").search(["red shoes"], 3)) == [(0, (["faq"], [1.5]))]
    ((path, headers, body),) = engine.requests
    assert path == "/solr/shop/query"
    assert headers["authorization"] == "Bearer 0123abcd"
    assert "red shoes" in str(body)
    assert kind.connect("engine", "acme").version() is None
