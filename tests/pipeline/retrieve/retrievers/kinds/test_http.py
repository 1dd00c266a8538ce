"""The kind `http`: any engine, with paths of the user's."""

from typing import Any

import pytest
from pydantic import ValidationError

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.retrieve.retrievers.kinds.http import KIND
from helpers.fake_engine import ScriptedReplies

SETTINGS = {
    "base_url": "http://127.0.0.1:1",
    "endpoint": "/v1/{index}/search",
    "index": "shop",
    "request": {"text": "{query}", "limit": "{k}"},
    "hits_path": "results",
    "id_path": "doc.id",
}


def kind(**settings: Any) -> KIND:
    return KIND.model_validate(SETTINGS | settings)


def test_a_hit_without_a_score_has_the_reciprocal_of_its_rank() -> None:
    hits = [{"doc": {"id": 1}, "score": 9}, {"doc": {"id": "b"}}, {"doc": {"id": "c"}, "score": None}]
    with ScriptedReplies(lambda _body: {"results": hits}) as engine:
        live = kind(base_url=engine.url).connect("engine", "acme")
        assert list(live.search(["q"], 3)) == [(0, (["1", "b", "c"], [9.0, 1 / 2, 1 / 3]))]
    assert engine.requests[0][0] == "/v1/shop/search"
    assert engine.requests[0][2] == {"text": "q", "limit": 3}


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ({"results": {"a": 1}}, "has no list at results"),
        ({}, "has no list at results"),
        ({"results": [{"doc": {"id": True}}]}, "has no id at doc.id of hit 1"),
        ({"results": ["a"]}, "has no id at doc.id of hit 1"),
        ({"results": [{"doc": {"id": "a"}}, {"doc": {}}]}, "has no id at doc.id of hit 2"),
    ],
)
def test_a_reply_of_another_form_is_an_error_that_names_the_path(reply: object, problem: str) -> None:
    with ScriptedReplies(lambda _body: reply) as engine:
        live = kind(base_url=engine.url).connect("engine", "acme")
        with pytest.raises(DarklodeError, match=f"{problem}.*Check retrievers.engine.request, hits_path and id_path"):
            list(live.search(["q"], 3))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"request": {"text": "{query}"}}, r'request has no "\{k\}"'),
        ({"request": {"limit": "{k}"}}, r'request has no "\{query\}"'),
        ({"index": ""}, "index is required: the endpoint is"),
        ({"auth_header": "X-Key"}, "auth_header must have the form"),
        ({"hits_path": None}, "hits_path"),
    ],
)
def test_settings_that_cannot_work_are_errors(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        kind(**settings)
