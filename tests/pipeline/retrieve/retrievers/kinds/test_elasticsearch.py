"""The preset for Elasticsearch: its API keys have a scheme of their own."""

import pytest

from darklode.pipeline.retrieve.retrievers.kinds.elasticsearch import KIND
from helpers.fake_engine import ScriptedReplies

REPLY = {"timed_out": False, "hits": {"hits": [{"_id": "1", "_score": 2.5, "_source": {"doc_id": "faq"}}]}}


def test_a_search_is_sent_and_read_as_the_engine_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "0123abcd")
    with ScriptedReplies(lambda _body: REPLY) as engine:
        settings = {
            "index": "shop",
            "request": {"query": {"match": {"body": "{query}"}}, "size": "{k}"},
            "id_path": "_source.doc_id",
        }
        kind = KIND.model_validate({"base_url": engine.url, "api_key_env": "ENGINE_KEY"} | settings)
        assert list(kind.connect("engine", "acme").search(["red shoes"], 3)) == [(0, (["faq"], [2.5]))]
    ((path, headers, body),) = engine.requests
    assert path == "/shop/_search"
    assert headers["authorization"] == "ApiKey 0123abcd"
    assert "red shoes" in str(body)
    assert kind.connect("engine", "acme").version() is None
