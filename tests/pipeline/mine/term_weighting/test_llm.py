"""The LLM term weighter against a server on a real socket."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.chat_prompt import ChatPrompt
from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.base.remote import client
from darklode.pipeline.base.remote.chat_cache import UnreadableReply
from darklode.pipeline.mine.term_weighting.llm import (
    REPLY_ROWS,
    LlmTermWeighter,
    importances,
    term_weighting_prompt,
)
from darklode.pipeline.mine.term_weighting.llm_settings import LlmTermWeighterSettings
from darklode.pipeline.mine.term_weighting.port import Tokenizer
from darklode.schemas.tables import TABLES
from helpers.fake_chat import FakeChat, at_random
from helpers.hash_encoder import content_hash

WORDS = Tokenizer(every_word=True)


@dataclass
class FakeTermWeighter(FakeChat):
    """Answers with the replies that are left for a query, the last one again and again; else 0.5 for each word."""

    replies: dict[str, list[str]] = field(default_factory=dict)

    def _said(self, body: dict[str, Any], pair: str, *, wrong: bool) -> tuple[str, list[dict[str, Any]]]:
        query = pair.removeprefix("<query>\n").removesuffix("\n</query>")
        left = self.replies.get(query)
        if left:
            return (left.pop(0) if len(left) > 1 else left[0]), []
        return "no idea" if wrong else json.dumps(dict.fromkeys(query.split(), 0.5)), []


@pytest.fixture(autouse=True)
def root(tmp_path: Path) -> str:
    """Where replies are kept."""
    return str(tmp_path)


def settings(server: FakeChat, **more: Any) -> LlmTermWeighterSettings:
    return LlmTermWeighterSettings(model="fake", base_url=server.url, **more)


def weigh(weighter: LlmTermWeighter, *texts: str) -> dict[str, dict[str, float]]:
    ids = [str(number) for number in range(len(texts))]
    rows = weighter.terms(pa.table({"tenant": ["t"] * len(texts), "query_id": ids, "text": list(texts)}))
    assert rows.schema == TABLES["query_terms"].schema
    found: dict[str, dict[str, float]] = {text: {} for text in texts}
    for row in rows.to_pylist():
        found[texts[int(row["query_id"])]][row["term"]] = row["importance"]
    return found


def test_it_asks_about_each_query_once(root: str) -> None:
    with FakeTermWeighter(replies={"reset two factor": ['{"two factor": 1, "reset": 0.5, "phone": 1}']}) as server:
        found = weigh(LlmTermWeighter(settings(server), root), "reset two factor", "key card", "key card")
    assert found == {"reset two factor": {"two factor": 1.0, "reset": 0.5}, "key card": {"key": 0.5, "card": 0.5}}
    assert len(server.bodies) == 2
    assert server.bodies[0]["messages"][0]["content"] == term_weighting_prompt().system


def test_what_cannot_be_read_is_asked_again(root: str) -> None:
    with FakeTermWeighter(replies={"key": ["well", '{"key": 2}', '{"key": 0.75}']}) as server:
        weighter = LlmTermWeighter(settings(server), root)
        assert weigh(weighter, "key") == {"key": {"key": 0.75}}
    assert (weighter.counters.asked_again, weighter.counters.nulls) == (2, 0)
    assert [message["content"] for message in server.bodies[2]["messages"][2:]] == [
        '{"key": 2}',
        term_weighting_prompt().head.again,
    ]


def test_after_four_replies_a_query_has_no_terms(root: str) -> None:
    with FakeTermWeighter(replies={"key": ['{"key": 1.5}']}) as server:
        weighter = LlmTermWeighter(settings(server), root)
        assert weigh(weighter, "key", "card") == {"key": {}, "card": {"card": 0.5}}
    assert (len(server.bodies), weighter.counters.nulls) == (5, 1)


def test_parameters_are_sent_and_make_another_weighter(root: str) -> None:
    with FakeTermWeighter(finish_reason="length") as server:
        assert weigh(LlmTermWeighter(settings(server), root), "key") == {"key": {}}
        assert "max_tokens" not in server.bodies[0]
    with FakeTermWeighter() as server:
        assert weigh(LlmTermWeighter(settings(server, extra_body={"max_tokens": 4096}), root), "key") == {
            "key": {"key": 0.5}
        }
        assert (server.bodies[0]["max_tokens"], server.bodies[0]["temperature"]) == (4096, 0)


def test_a_query_that_the_server_refuses_has_no_terms(root: str) -> None:
    with FakeTermWeighter(longest=700) as server:
        weighter = LlmTermWeighter(settings(server), root)
        assert weigh(weighter, "word " * 2000, "card")["card"] == {"card": 0.5}
    assert weighter.counters.nulls == 1


@pytest.mark.slow
def test_failures_that_pass_are_waited_out(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.02)
    texts = [f"word{number}" for number in range(60)]
    with FakeTermWeighter(script=at_random(3, 0.3), hang_seconds=0.2) as server:
        found = weigh(LlmTermWeighter(settings(server, max_concurrency=8), root), *texts)
    assert found == {text: {text: 0.5} for text in texts}
    assert server.most_at_once <= 8
    assert server.faults


def test_it_gives_up_on_a_server_that_never_answers(root: str) -> None:
    with (
        FakeTermWeighter(script=lambda _request: "500") as server,
        pytest.raises(DarklodeError, match=r"term_weighting\.retry_timeout"),
    ):
        weigh(LlmTermWeighter(settings(server, retry_timeout=0.5), root), "key")


def test_a_wrong_key_stops_it_and_is_not_shown(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv("PLANNER_KEY", "secret-key")
    with FakeTermWeighter(key="other") as server, pytest.raises(MissingPart, match="PLANNER_KEY") as raised:
        weigh(LlmTermWeighter(settings(server, api_key_env="PLANNER_KEY"), root), "key")
    assert "secret-key" not in str(raised.value)


def test_the_version_names_model_and_prompt(root: str) -> None:
    with FakeTermWeighter() as server:
        ours = term_weighting_prompt()
        other = ChatPrompt(ours.head, ours.system + ".", ours.user)
        versions = [LlmTermWeighter(settings(server), root, prompt).version for prompt in (None, ours, other)]
    assert versions[0] == versions[1] != versions[2]


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ('```json\n{"API keys": 1}\n```', {"api key": 1.0}),
        ('{"api": 0.2, "APIs": 0.4}', {"api": 0.4}),
        ('{"keys api": 1, "pi": 1, "": 1}', {}),
        ("{}", {}),
    ],
)
def test_only_words_of_the_query_count(reply: str, found: dict[str, float]) -> None:
    assert importances(reply, "the api key", WORDS) == found


@pytest.mark.parametrize("reply", [None, "", "[1]", '{"api": true}', '{"api": "1"}', '{"api": NaN}', '{"api": -0.1}'])
def test_replies_that_cannot_be_read(reply: str | None) -> None:
    with pytest.raises(UnreadableReply):
        importances(reply, "api", WORDS)


def test_a_rerun_pays_only_for_what_is_missing(root: str) -> None:
    texts = [f"word{number}" for number in range(100)]
    with FakeTermWeighter(script=lambda request: "503" if request.number > 30 else None) as server:
        server.latency = 0.01
        with pytest.raises(DarklodeError, match="term_weighting"):
            weigh(LlmTermWeighter(settings(server, retry_timeout=0.3, max_concurrency=1), root), *texts)
        answered = sum(server.served.values())
        assert answered == 30
        server.script, asked = None, server.requests
        rest = LlmTermWeighter(settings(server), root)
        assert weigh(rest, *texts) == {text: {text: 0.5} for text in texts}
        assert (server.requests - asked, rest.counters.answered) == (70, 70)
        again = LlmTermWeighter(settings(server), root)
        assert weigh(again, *texts) == {text: {text: 0.5} for text in texts}
        assert again.counters.calls == 0


def test_replies_of_before_the_quoting_of_today_stand_where_the_query_was_shown_the_same(root: str) -> None:
    texts = ["reset key", "List<String>"]
    kept = {"query_hash": [content_hash(text) for text in texts], "reply": ['{"reset": 1}'] * 2, "error": [None] * 2}
    rows = pa.table(kept).cast(pa.schema([REPLY_ROWS.schema.field(name) for name in kept]))
    KeyedStore(root, REPLY_ROWS).append("llm planner 1 fake a0cb9a6c90e5c757", rows)
    with FakeTermWeighter() as server:
        found = weigh(LlmTermWeighter(settings(server), root), *texts)
        assert found == {"reset key": {"reset": 1.0}, "List<String>": {"list string": 0.5}}
        assert weigh(LlmTermWeighter(settings(server), root), *texts) == found
        assert server.requests == 1


def test_another_prompt_asks_anew_and_what_cannot_be_read_is_not_asked_about_again(root: str) -> None:
    with FakeTermWeighter(replies={"key": ["never"]}) as server:
        for calls in (4, 0):
            weighter = LlmTermWeighter(settings(server), root)
            assert weigh(weighter, "key") == {"key": {}}
            assert weighter.counters.calls == calls
        ours = term_weighting_prompt()
        other = LlmTermWeighter(settings(server), root, ChatPrompt(ours.head, ours.system + ".", ours.user))
        weigh(other, "key")
        assert other.counters.calls == 4
