"""The preset for OpenSearch: its version, and replies that lack the hits of some shards."""

from typing import Any

import pytest

from darklode.pipeline.retrieve.retrievers.kinds.opensearch import KIND
from helpers.fake_engine import FakeEngine

REQUEST = {"query": {"match": {"body": "{query}"}}, "size": "{k}"}


def kind(url: str, **settings: Any) -> KIND:
    return KIND.model_validate({"base_url": url, "index": "shop", "request": REQUEST} | settings)


def test_every_write_changes_the_version_and_a_replica_does_not() -> None:
    with FakeEngine({"shop": {}, "other": {}}) as engine:
        live = kind(engine.url).connect("engine", "acme")
        before = live.version()
        assert before == live.version() is not None
        engine.sequence_number += 1
        assert live.version() != before
        engine.sequence_number -= 1
        assert kind(engine.url, index="other").connect("engine", "acme").version() not in {before, None}


def test_the_version_of_the_settings_precedes_that_of_the_engine_and_a_failure_has_none() -> None:
    with FakeEngine({"shop": {}}) as engine:
        assert kind(engine.url, index_version="3").connect("engine", "acme").version() == "3"
        assert engine.headers == []
        engine.has_stats = False
        assert kind(engine.url).connect("engine", "acme").version() is None
    assert kind(engine.url).connect("engine", "acme").version() is None


@pytest.mark.parametrize("reply", [{}, {"indices": {}}, {"indices": {"shop": {"uuid": "u"}}}, {"indices": []}])
def test_a_reply_without_sequence_numbers_has_no_version(
    reply: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeEngine, "stats", lambda _engine, _index: reply)
    with FakeEngine({"shop": {}}) as engine:
        assert kind(engine.url).connect("engine", "acme").version() is None


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ({"timed_out": False, "_shards": {"failed": 0}}, ""),
        ({"hits": {}}, ""),
        ({"timed_out": True}, "is incomplete: the search timed out"),
        ({"_shards": {"failed": 2}}, "is incomplete: 2 shards failed"),
    ],
)
def test_a_partial_result_is_none(reply: dict[str, Any], problem: str) -> None:
    assert KIND.reply_problem(reply) == problem


def test_an_index_is_one_part_of_the_path() -> None:
    with FakeEngine({"a/b?c,d": {"faq": "billing"}}) as engine:
        live = kind(engine.url, index="a/b?c,d").connect("engine", "acme")
        assert list(live.search(["billing"], 5)) == [(0, (["faq"], [1.0]))]
    assert engine.paths == ["/a%2Fb%3Fc,d/_search"]
