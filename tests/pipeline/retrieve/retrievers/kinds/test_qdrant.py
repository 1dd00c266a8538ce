"""The preset for Qdrant's query API."""

import pytest

from darklode.pipeline.retrieve.retrievers.kinds.qdrant import KIND
from helpers.fake_engine import ScriptedReplies

REPLY = {"result": {"points": [{"id": 7, "score": 0.5, "payload": {"doc_id": "faq"}}]}, "usage": {"hardware": None}}


def test_a_search_is_sent_and_read_as_the_engine_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "0123abcd")
    with ScriptedReplies(lambda _body: REPLY) as engine:
        settings = {
            "index": "shop",
            "request": {"query": {"text": "{query}", "model": "m"}, "limit": "{k}", "with_payload": ["doc_id"]},
            "id_path": "payload.doc_id",
        }
        kind = KIND.model_validate({"base_url": engine.url, "api_key_env": "ENGINE_KEY"} | settings)
        assert list(kind.connect("engine", "acme").search(["red shoes"], 3)) == [(0, (["faq"], [0.5]))]
    ((path, headers, body),) = engine.requests
    assert path == "/collections/shop/points/query"
    assert headers["api-key"] == "0123abcd"
    assert "red shoes" in str(body)
    assert kind.connect("engine", "acme").version() is None


def test_the_request_is_one_that_qdrants_own_client_knows() -> None:
    models = pytest.importorskip("qdrant_client.http.models")
    with ScriptedReplies(lambda _body: REPLY) as engine:
        request = {"query": {"text": "{query}", "model": "m"}, "limit": "{k}", "with_payload": ["doc_id"]}
        kind = KIND.model_validate({"base_url": engine.url, "index": "shop", "request": request})
        list(kind.connect("engine", "acme").search(["red shoes"], 3))
    sent = models.QueryRequest.model_validate(engine.requests[0][2])
    assert (sent.query.text, sent.limit) == ("red shoes", 3)
