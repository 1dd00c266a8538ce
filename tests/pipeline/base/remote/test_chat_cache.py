"""Questions whose replies are kept, against a server on a real socket."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import LimitReached
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.base.remote import chat_cache
from darklode.pipeline.base.remote.chat_cache import (
    DEFAULT_MAX_TOKENS,
    Question,
    SingleFlight,
    UnreadableReply,
    parse_object,
)
from darklode.pipeline.base.remote.client import Client
from darklode.pipeline.base.remote.endpoint import Endpoint
from helpers.fake_chat import FakeChat

KIND = RowKind("said", "asker", ("asked",), pa.schema([("reply", pa.string()), ("error", pa.string())]), answer="reply")
KEYS = [f"{number:032x}" for number in range(5)]


@dataclass
class Says(FakeChat):
    """Says the same to all."""

    word: str = "yes"

    def _said(self, body: dict[str, Any], pair: str, *, wrong: bool) -> tuple[str, list[dict[str, Any]]]:
        return self.word, []


def read_yes(reply: object) -> None:
    if reply != "yes":
        raise UnreadableReply("not a yes")


def questions() -> list[Question]:
    return [
        Question(key, key, lambda _before, key=key: [{"role": "user", "content": f"say {key}"}], read_yes)  # type: ignore[misc]
        for key in KEYS
    ]


def asking(server: FakeChat, root: Path) -> SingleFlight:
    endpoint = Endpoint(
        section="judge", model="fake", base_urls=(server.url,), path="/chat/completions", api_key_env="",
        max_concurrency=4, timeout=5, retry_timeout=5,
    )  # fmt: skip
    return SingleFlight(Client(endpoint), KeyedStore(str(root), KIND), {"model": "fake", "temperature": 0})


def kept(root: Path) -> dict[str, str | None]:
    found = KeyedStore(str(root), KIND).open("who").find(pa.table({"asked": KEYS}))
    return {KEYS[row]: said for row, said in zip(found.rows.tolist(), found.values["reply"].to_pylist(), strict=True)}


def test_readable_replies_are_kept_and_others_with_their_error(tmp_path: Path) -> None:
    with Says() as server:
        one = asking(server, tmp_path)
        one.ask("who", questions()[:3])
        assert kept(tmp_path) == dict.fromkeys(KEYS[:3], "yes")
        assert (server.requests, one.client.counters.nulls) == (3, 0)
    with Says(word="no") as server:
        two = asking(server, tmp_path)
        two.ask("who", questions()[3:])
        assert kept(tmp_path) == dict.fromkeys(KEYS[:3], "yes") | dict.fromkeys(KEYS[3:])
        assert (server.requests, two.client.counters.nulls) == (8, 2), "four tries each"


def test_a_reply_that_may_not_be_complete_is_asked_for_again(tmp_path: Path) -> None:
    with Says(finish_reason="tool_calls") as server:
        asking(server, tmp_path).ask("who", questions()[:1])
        assert (server.requests, kept(tmp_path)) == (4, {KEYS[0]: None})


def test_a_reply_that_was_cut_off_is_not_asked_for_again(tmp_path: Path) -> None:
    with Says(finish_reason="length") as server:
        one = asking(server, tmp_path)
        one.ask("who", questions()[:1])
        assert (server.requests, kept(tmp_path)) == (1, {KEYS[0]: None})
        assert "max_tokens" not in server.bodies[0], "nothing is limited"
        assert one.client.counters.nulls == 1
    (error,) = KeyedStore(str(tmp_path), KIND).open("who").rows(["error"])["error"].to_pylist()
    assert error == "the reply was cut off at the token limit"


def test_what_is_kept_on_the_way_is_told_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_cache, "STORE_SECONDS", 0)
    told: list[int] = []
    with Says() as server:
        asking(server, tmp_path).ask("who", questions(), told.append)
    assert kept(tmp_path) == dict.fromkeys(KEYS, "yes")
    assert told == [1, 2, 3, 4, 5]


@dataclass
class SaysAtLength(Says):
    """Takes as many tokens as it may."""

    def completion(self, body: dict[str, Any], pair: str, *, wrong: bool = False) -> dict[str, Any]:
        usage = {"prompt_tokens": 10, "completion_tokens": body.get("max_tokens") or body["max_completion_tokens"]}
        return super().completion(body, pair, wrong=wrong) | {"usage": usage}


@pytest.mark.parametrize(
    "given", [{}, {"max_tokens": 500}, {"max_completion_tokens": 500}, {"max_tokens": None, "max_completion_tokens": 9}]
)
@pytest.mark.parametrize("affordable", [0, 1, 5])
def test_calls_under_way_never_exceed_a_limit(given: dict[str, Any], affordable: int, tmp_path: Path) -> None:
    keys = [f"{number:032x}" for number in range(40)]
    most = given.get("max_tokens") or given.get("max_completion_tokens") or DEFAULT_MAX_TOKENS
    limit = affordable * most + most / 2
    with SaysAtLength(latency=0.05) as server:
        endpoint = Endpoint(
            section="judge", model="fake", base_urls=(server.url,), path="/chat/completions", api_key_env="",
            max_concurrency=32, timeout=5, retry_timeout=5, completion_price=1e6, spending_limit=limit,
        )  # fmt: skip
        client = Client(endpoint)
        one = SingleFlight(client, KeyedStore(str(tmp_path), KIND), {"model": "fake", **given})
        with pytest.raises(LimitReached, match="spending_limit"):
            one.ask("who", [replace(questions()[0], key=key) for key in keys])
        sent = {
            name: value for name, value in ({"max_tokens": DEFAULT_MAX_TOKENS} | given).items() if value is not None
        }
        if "max_completion_tokens" in given:
            sent.pop("max_tokens", None)
        assert all({name: body.get(name) for name in sent} == sent for body in server.bodies)
    assert (client.counters.calls, client.counters.cost) == (affordable, affordable * most)


def test_it_goes_on_over_faults(tmp_path: Path) -> None:
    with Says(script=lambda one: "503" if one.time == 1 else None) as server:
        asking(server, tmp_path).ask("who", questions())
        assert kept(tmp_path) == dict.fromkeys(KEYS, "yes")
        assert server.faults["503"] == len(KEYS)


@pytest.mark.parametrize("reply", [None, 3, "no", "[1]", "```json\n[]\n```", "{" * 100_000])
def test_what_is_no_object_is_unreadable(reply: object) -> None:
    with pytest.raises(UnreadableReply):
        parse_object(reply)


def test_an_object_may_stand_in_a_fence() -> None:
    assert parse_object('```json\n{"a": 1}\n```') == parse_object('{"a": 1}') == {"a": 1}
