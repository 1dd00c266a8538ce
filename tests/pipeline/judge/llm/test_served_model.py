"""Who a judge is follows from what is served, not from what it is called."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote import client
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm.judge import LlmJudge
from darklode.pipeline.judge.llm.prompt import load_prompt
from darklode.pipeline.judge.llm.response_formats import OutputFormat, RequestTemplate
from darklode.pipeline.judge.llm.served_model import other_model, served_identity
from darklode.pipeline.judge.llm.settings import LlmSettings
from helpers.fake_chat import FakeChat
from helpers.scripted_stream import pairs

ROWS = pairs((1, 1), (1, 2), (2, 1))
ROOT = "/models/Qwen: 3=8B"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)


def settings_of(*servers: FakeChat, **changed: Any) -> LlmSettings:
    given = {"model": "fake", "base_url": [server.url for server in servers], "retry_timeout": 5}
    return LlmSettings(**(given | changed))


def judge_of(root: Path, *servers: FakeChat, said: list[str] | None = None, **changed: Any) -> LedgerJudge:
    say = (said if said is not None else []).append
    return LedgerJudge(LlmJudge(settings_of(*servers, **changed), say, str(root)), Ledger(str(root)))


def asked(judge: LedgerJudge) -> int:
    """How many pairs the judge asked its server about."""
    before = judge.n_requested
    asyncio.run(judge.judge(ROWS))
    return judge.n_requested - before


def told(*servers: FakeChat, **changed: Any) -> str | None:
    settings = settings_of(*servers, **changed)

    async def go() -> str | None:
        async with LlmJudge(settings)._client.session() as session:
            return await served_identity(settings, session)

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("card", "changed", "name"),
    [
        ({}, {}, ""),
        ({"root": "fake"}, {}, ""),
        ({"root": None, "revision": 3}, {}, ""),
        ({"root": "Qwen/Qwen3-8B"}, {}, "Qwen/Qwen3-8B"),
        ({"root": "Qwen/Qwen3-8B", "revision": "main"}, {}, "Qwen/Qwen3-8B@main"),
        ({"root": "fake", "revision": "r2"}, {}, "fake@r2"),
        ({"root": "fake", "revision": "r2"}, {"revision": "r2"}, ""),
        ({"root": "Qwen/Qwen3-8B"}, {"trust_model_name": True}, ""),
        ({"id": "another", "root": "Qwen/Qwen3-8B"}, {}, ""),
        ({"id": {}}, {}, ""),
    ],
)
def test_a_server_says_what_it_serves(card: dict[str, Any], changed: dict[str, Any], name: str) -> None:
    with FakeChat(card=card) as server:
        assert told(server, **changed) == name


@pytest.mark.parametrize(("status", "name"), [(404, ""), (401, ""), (400, ""), (503, None), (500, None), (429, None)])
def test_a_server_that_does_not_say_it_is_told_from_one_that_does_not_yet(status: int, name: str | None) -> None:
    with FakeChat(models_status=status, card={"root": ROOT}) as server:
        assert told(server) == name


def test_nobody_there_says_nothing() -> None:
    with FakeChat() as server:
        pass
    assert told(server) is None


def test_replicas_serve_one_model() -> None:
    with FakeChat(card={"root": "A"}) as one, FakeChat(card={"root": "B"}) as other:
        with pytest.raises(DarklodeError, match=r"serve different models: A, B\. .*judge\.trust_model_name"):
            told(one, other)
        assert told(one, one) == "A"
        assert told(one, other, trust_model_name=True) == ""
    assert told(one, other) is None


def test_another_model_behind_the_same_name_is_another_judge(tmp_path: Path) -> None:
    with FakeChat(card={"root": "A"}) as server:
        first = judge_of(tmp_path, server)
        assert asked(first) == 3
        assert first.judge_id.startswith("llm-1:fake=A:binary-1:choice+logprobs:")
        assert asked(judge_of(tmp_path, server)) == 0
        server.card = {"root": "B"}
        second = judge_of(tmp_path, server)
        assert (asked(second), second.judge_id == first.judge_id) == (3, False)
        server.card = {"root": "A"}
        assert asked(judge_of(tmp_path, server)) == 0


def test_where_the_root_is_the_name_or_is_not_told_the_id_is_that_of_before(tmp_path: Path) -> None:
    with FakeChat() as server:
        first = judge_of(tmp_path, server)
        assert asked(first) == 3
        for card in ({"root": "fake"}, {"root": None}):
            server.card = card
            same = judge_of(tmp_path, server)
            assert (same.judge_id, asked(same)) == (first.judge_id, 0)
        server.models_status = 404
        assert asked(judge_of(tmp_path, server)) == 0


def test_verdicts_under_the_name_alone_are_found_where_the_name_is_trusted(tmp_path: Path) -> None:
    with FakeChat() as server:
        first = judge_of(tmp_path, server)
        asked(first)
        server.card, said = {"root": ROOT}, list[str]()
        assert judge_of(tmp_path, server, said=said).judge_id != first.judge_id
        (line,) = said
        assert line.startswith(
            f"fake is served as {ROOT}, so all pairs are judged again. The ledger has verdicts of {first.judge_id},"
        )
        assert line.endswith("set judge.trust_model_name")
        trusting = judge_of(tmp_path, server, trust_model_name=True)
        assert (trusting.judge_id, asked(trusting)) == (first.judge_id, 0)


def test_without_a_server_the_only_model_that_is_kept_is_it(tmp_path: Path) -> None:
    with FakeChat(card={"root": ROOT}) as server:
        first = judge_of(tmp_path, server)
        asked(first)
    offline = judge_of(tmp_path, server)
    assert (offline.judge_id, asked(offline)) == (first.judge_id, 0)


def test_without_a_server_one_of_two_models_is_not_guessed(tmp_path: Path) -> None:
    with FakeChat() as server:
        for root in ("A", "B"):
            server.card = {"root": root}
            asked(judge_of(tmp_path, server))
    said = list[str]()
    with pytest.raises(DarklodeError, match=r"No answer for 0\.2 s"):
        asked(judge_of(tmp_path, server, said=said, retry_timeout=0.2))
    assert (
        said[0]
        == "the ledger has verdicts of several models under one name (A, B), so a server must tell which one it serves"
    )


def test_a_server_that_comes_up_with_another_model_is_refused(tmp_path: Path) -> None:
    with FakeChat(card={"root": "A"}) as server:
        asked(judge_of(tmp_path, server))
        port = server.port
    begun = judge_of(tmp_path, server)
    assert begun.judge_id
    said = "now serves B, but the ledger's verdicts are by A: run again"
    with FakeChat(card={"root": "B"}, port=port) as later:
        with pytest.raises(DarklodeError, match=said):
            asyncio.run(begun.judge(pairs((7, 7))))
        assert not any("7" in pair for pair in later.served)


def test_a_server_that_is_not_ready_to_say_is_waited_for(tmp_path: Path) -> None:
    with FakeChat(models_status=503, card={"root": "A"}) as server:

        def ready(_request: object) -> str | None:
            server.models_status = 200
            return None

        server.script = ready
        assert judge_of(tmp_path, server).judge_id.startswith("llm-1:fake=A:")


def test_a_reply_in_another_name_is_refused_or_by_setting_told(tmp_path: Path) -> None:
    with FakeChat(answers_as="other-2026") as server:
        with pytest.raises(
            DarklodeError, match=r"fake was requested, but 'other-2026' answered\. .*judge\.trust_model_name"
        ):
            asked(judge_of(tmp_path, server))
        said = list[str]()
        assert asked(judge_of(tmp_path, server, said=said, trust_model_name=True)) == 3
        assert len(said) == 1
        assert said[0].startswith("fake was requested, but 'other-2026' answered")


def test_a_server_that_changes_midway_stops_the_judge_and_what_came_before_is_kept(tmp_path: Path) -> None:
    many = pairs(*((1, chunk) for chunk in range(40)))

    with FakeChat() as server:

        def fall_back(_pair: str, said: dict[str, Any]) -> dict[str, Any]:
            return said | {"model": "cheaper"} if server.requests > 20 else said

        server.alters = fall_back
        judge = judge_of(tmp_path, server, max_concurrency=1)
        with pytest.raises(DarklodeError, match="'cheaper' answered"):
            asyncio.run(judge.judge(many))
    kept = Ledger(str(tmp_path)).open(judge.judge_id).find(many)
    assert 10 < len(kept.rows) < 25


@pytest.mark.parametrize("model", [None, "", "fake", 3, ["other"]])
def test_a_reply_that_names_no_other_model_is_taken(model: object) -> None:
    with FakeChat() as server:
        assert other_model({"model": model}, settings_of(server)) == ""


@pytest.mark.parametrize("name", ["", "A", ROOT, "a:b=c@d"])
def test_an_id_names_its_judge(name: str) -> None:
    settings, prompt = LlmSettings(model="m:7b", revision="r", base_url="http://127.0.0.1:1/v1"), load_prompt("binary")
    bare = RequestTemplate(settings, prompt, OutputFormat("choice", True))
    own = RequestTemplate(settings, prompt, OutputFormat("choice", True), name)
    assert bare.template_for(own.judge_id) == own
    for other in (OutputFormat("choice", False), OutputFormat("json", True)):
        assert bare.template_for(RequestTemplate(settings, prompt, other, name).judge_id) is None
    changed = settings.model_copy(update={"max_chunk_tokens": 9})
    assert bare.template_for(RequestTemplate(changed, prompt, OutputFormat("choice", True), name).judge_id) is None
    assert (own.previous_version is None) == bool(name)
