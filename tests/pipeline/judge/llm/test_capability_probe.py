"""Which form a server obeys, and that nothing that passes decides it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote import client, replicas
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.llm.judge import LlmJudge
from darklode.pipeline.judge.llm.logprobs import LOGPROBS_MISSING
from darklode.pipeline.judge.llm.settings import LlmSettings
from helpers.fake_chat import FakeChat, Request, at_random

OBEYED = "choice+logprobs"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(client, "LONGEST_WAIT", 0.1)


def form_of(server: FakeChat, said: list[str] | None = None, **changed: Any) -> str:
    """The form that is found, and what was said meanwhile."""
    given = {"model": "fake", "base_url": server.url, "retry_timeout": 20}
    judge = LlmJudge(LlmSettings(**(given | changed)), (said if said is not None else []).append)
    return str(judge.template.form)


def first(n: int, fault: str) -> Callable[[Request], str | None]:
    return lambda request: fault if request.number <= n else None


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["500", "503", "429", "dropped", "html"])
@pytest.mark.parametrize("failures", [1, 3, 4, 12])
def test_a_server_that_fails_at_first_changes_no_form(
    failures: int, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "FIRST_PAUSE", 0.01)
    with FakeChat(script=first(failures, fault)) as server:
        assert form_of(server) == OBEYED
        assert server.faults[fault] == failures


@pytest.mark.parametrize("seed", range(5))
def test_failures_here_and_there_change_no_form(seed: int) -> None:
    script = at_random(seed, 0.4)
    with FakeChat(script=lambda request: None if (fault := script(request)) in {None, "hang"} else fault) as server:
        assert form_of(server) == OBEYED


@pytest.mark.parametrize("without", [{1}, {2}, {2, 3}])
def test_a_reply_without_log_probabilities_changes_no_form(without: set[int]) -> None:
    seen = 0

    def strip(_pair: str, said: dict[str, Any]) -> dict[str, Any]:
        nonlocal seen
        seen += 1
        if seen in without:
            said["choices"][0].pop("logprobs")
        return said

    with FakeChat(alters=strip) as server:
        assert form_of(server) == OBEYED
        assert seen >= max(without)


def contradicted(_pair: str, said: dict[str, Any]) -> dict[str, Any]:
    top = [{"token": "yes", "logprob": -9.0}, {"token": "no", "logprob": -0.001}]
    content = said["choices"][0]["message"]["content"]
    chosen = top[content == "no"] | {"logprob": -9.0}
    said["choices"][0]["logprobs"]["content"] = [chosen | {"top_logprobs": [chosen, top[content == "yes"]]}]
    return said


def test_an_example_whose_label_is_contradicted_changes_no_form() -> None:
    with FakeChat(alters=contradicted) as server:
        assert form_of(server) == OBEYED


@pytest.mark.parametrize("status", [400, 422, 500, 501])
@pytest.mark.parametrize(
    ("refuses", "form"),
    [({"choice"}, "json+logprobs"), ({"logprobs"}, "choice"), ({"choice", "json", "logprobs"}, "text")],
)
def test_a_form_that_is_refused_while_plain_calls_succeed_is_left_out(
    status: int, refuses: set[str], form: str
) -> None:
    with FakeChat(refuses=frozenset(refuses), refusal_status=status) as server:
        assert form_of(server) == form
        plain = [body for body in server.bodies if len(body["messages"]) == 1 and body.keys() == PLAIN]
        assert len(plain) >= (1 if status < 500 else 5)


PLAIN = {"model", "max_tokens", "messages"}


def test_a_server_that_refuses_plain_calls_too_is_not_blamed_on_a_form() -> None:
    with (
        FakeChat(longest=1) as server,
        pytest.raises(DarklodeError, match=r"fake refuses even a plain call, status 400: .*judge\.extra_body"),
    ):
        form_of(server)


def thinks(_pair: str, said: dict[str, Any]) -> dict[str, Any]:
    said["choices"][0]["message"]["reasoning_content"] = "Hm."
    said["usage"]["completion_tokens"] = 1234
    return said


@pytest.mark.parametrize(
    ("changed", "cost"),
    [({}, "at most 3\\. Every pair"), ({"completion_price_per_million": 2}, "; 2\\.47 for 1,000 pairs")],
)
def test_that_the_model_thinks_and_what_it_costs_is_said(changed: dict[str, Any], cost: str) -> None:
    said: list[str] = []
    with FakeChat(alters=thinks) as server:
        assert form_of(server, said, **changed) == OBEYED
    (line,) = said
    assert re.search(rf"fake is a reasoning model: 1,234 tokens for the first reply.*{cost}", line)


def test_of_a_model_that_does_not_think_nothing_is_said() -> None:
    said: list[str] = []
    with FakeChat() as server:
        form_of(server, said)
    assert said == []


@dataclass
class Thinker(FakeChat):
    """Thinks before it answers, as a server with a reasoning parser tells it; a reply without room for it is cut off.

    Attributes:
        thoughts: tokens of each answer's thoughts, one after another.
        context: most tokens that may be asked for.
    """

    thoughts: tuple[int, ...] = (900,)
    context: int = 1 << 20
    answers: int = 0

    def completion(self, body: dict[str, Any], pair: str, *, wrong: bool = False) -> dict[str, Any]:
        said = super().completion(body, pair, wrong=wrong)
        (choice,), tokens = said["choices"], self.thoughts[self.answers % len(self.thoughts)] + 1
        self.answers += 1
        choice["message"]["reasoning_content"] = "Hm. " * 9
        if tokens > body["max_tokens"]:
            choice |= {"finish_reason": "length", "message": {"content": None, "reasoning_content": "Hm."}}
            choice.pop("logprobs", None)
        said["usage"]["completion_tokens"] = min(tokens, body["max_tokens"])
        return said

    def _refusal(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if body["max_tokens"] > self.context:
            return 400, {"error": {"message": "max_tokens is too large: the context length is short"}}
        return super()._refusal(body)


@pytest.mark.parametrize("thoughts", [(350,), (350, 50, 350, 350, 350, 350, 50, 50, 50)])
@pytest.mark.parametrize("context", [1 << 20, 2000])
def test_a_model_that_thinks_longer_than_it_may_loses_no_probabilities(thoughts: tuple[int, ...], context: int) -> None:
    said: list[str] = []
    with Thinker(thoughts=thoughts, context=context) as server:
        assert form_of(server, said, extra_body={"max_tokens": 300}) == OBEYED
    assert (
        any("truncated at max_tokens 300; with a higher limit it took 351 tokens" in line for line in said)
        or thoughts[1:]
    )


def test_a_model_that_thinks_is_not_asked_without_room_that_somebody_chose() -> None:
    with (
        Thinker() as server,
        pytest.raises(DarklodeError, match=r"truncated at max_tokens 32; .* it took 901 .*max_tokens: 4096"),
    ):
        form_of(server)


@dataclass
class Talker(FakeChat):
    """Gives long reasons, a token a word, and thinks nothing that it does not say."""

    def completion(self, body: dict[str, Any], pair: str, *, wrong: bool = False) -> dict[str, Any]:
        said = super().completion(body, pair, wrong=wrong)
        (choice,), reason = said["choices"], "because " * 600
        label = json.loads(choice["message"]["content"])["label"]
        content = json.dumps({"rationale": reason, "label": label})
        said["usage"]["completion_tokens"] = tokens = min(body["max_tokens"], 610)
        choice["message"]["content"] = content if tokens == 610 else content[:4000]
        choice["finish_reason"] = "stop" if tokens == 610 else "length"
        choice.pop("logprobs", None)
        return said


def test_a_model_that_gives_long_reasons_is_not_said_to_think() -> None:
    said: list[str] = []
    with Talker() as server:
        assert form_of(server, said, rationale=True, response_format="json") == "json+rationale"
    (line,) = (one for one in said if "truncated" in one)
    assert line == (
        "fake's first reply was truncated at max_tokens 512; with a higher limit it took 610 tokens. Longer replies "
        "become null: raise judge.extra_body.max_tokens"
    )


def test_thoughts_that_no_server_tells_of_show_by_their_tokens() -> None:
    def silent(_pair: str, said: dict[str, Any]) -> dict[str, Any]:
        said["choices"][0]["message"].pop("reasoning_content", None)
        return said

    with Thinker(alters=silent) as server, pytest.raises(DarklodeError, match="is a reasoning model"):
        form_of(server)


def test_that_probabilities_will_be_missing_is_said_with_the_reason() -> None:
    said: list[str] = []
    with FakeChat(knows=frozenset({"choice"})) as server:
        assert form_of(server, said) == "choice"
    (line,) = said
    assert line.startswith("labels of fake will have no probability: with log-probabilities requested, it answered")
    assert LOGPROBS_MISSING in line


def test_a_kept_form_without_log_probabilities_is_said(tmp_path: Path) -> None:
    with FakeChat(knows=frozenset({"choice"})) as server:
        settings = LlmSettings(model="fake", base_url=(server.url,))
        judge_id = LlmJudge(settings, root=str(tmp_path)).judge_id
    Ledger(str(tmp_path)).parts.register(judge_id)
    said: list[str] = []
    with FakeChat() as server:
        again = LlmJudge(settings.model_copy(update={"base_url": (server.url,)}), said.append, str(tmp_path))
        assert again.judge_id == judge_id
    (line,) = said
    assert "have no probability: its existing verdicts were made without log-probabilities" in line
