"""The preset for Vespa's query API: a reply without hits has no list."""

import pytest

from darklode.pipeline.retrieve.retrievers.kinds.vespa import KIND
from helpers.fake_engine import ScriptedReplies

REPLY = {"root": {"fields": {"totalCount": 1}, "children": [{"relevance": 0.25, "fields": {"doc_id": "faq"}}]}}


def test_a_search_is_sent_and_read_as_the_engine_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "0123abcd")
    with ScriptedReplies(lambda _body: REPLY) as engine:
        settings = {
            "request": {"yql": "select doc_id from docs where userQuery()", "query": "{query}", "hits": "{k}"},
            "id_path": "fields.doc_id",
        }
        kind = KIND.model_validate({"base_url": engine.url, "api_key_env": "ENGINE_KEY"} | settings)
        assert list(kind.connect("engine", "acme").search(["red shoes"], 3)) == [(0, (["faq"], [0.25]))]
    ((path, headers, body),) = engine.requests
    assert path == "/search/"
    assert headers["authorization"] == "Bearer 0123abcd"
    assert "red shoes" in str(body)
    assert kind.connect("engine", "acme").version() is None


def test_a_reply_without_a_list_has_no_hits() -> None:
    request = {"yql": "select doc_id from docs where userQuery()", "query": "{query}", "hits": "{k}"}
    with ScriptedReplies(lambda _body: {"root": {"fields": {"totalCount": 0}}}) as engine:
        kind = KIND.model_validate({"base_url": engine.url, "request": request, "id_path": "fields.doc_id"})
        assert list(kind.connect("engine", "acme").search(["red shoes"], 3)) == [(0, ([], []))]
