"""Which form a server obeys, and that nothing that passes decides it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.remote import client, replicas
from darklode.pipeline.judge.kinds.llm import LlmSettings
from darklode.pipeline.judge.llm.judge import LlmJudge
from helpers.fake_chat import FakeChat, Request, at_random

OBEYED = "choice+logprobs"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(client, "LONGEST_WAIT", 0.1)


def form_of(server: FakeChat, said: list[str] | None = None, **changed: Any) -> str:
    """The form that is found, and what was said meanwhile."""
    given = {"model": "fake", "base_url": server.url, "give_up_after": 20}
    judge = LlmJudge(LlmSettings(**(given | changed)), (said if said is not None else []).append)
    return str(judge.template.form)


def first(n: int, fault: str) -> Callable[[Request], str | None]:
    return lambda request: fault if request.number <= n else None


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
        pytest.raises(DarklodeError, match=r"fake refuses even a plain call, status 400: .*judge\.parameters"),
    ):
        form_of(server)


def thinks(_pair: str, said: dict[str, Any]) -> dict[str, Any]:
    said["choices"][0]["message"]["reasoning_content"] = "Hm."
    said["usage"]["completion_tokens"] = 1234
    return said


@pytest.mark.parametrize(
    ("changed", "cost"),
    [({}, "or fewer\\. That is"), ({"completion_price_per_million": 2}, "; 2\\.47 for 1,000 pairs")],
)
def test_that_the_model_thinks_and_what_it_costs_is_said(changed: dict[str, Any], cost: str) -> None:
    said: list[str] = []
    with FakeChat(alters=thinks) as server:
        assert form_of(server, said, **changed) == OBEYED
    (line,) = said
    assert re.search(rf"fake thinks before it answers: 1,234 tokens for a first answer.*{cost}", line)


def test_of_a_model_that_does_not_think_nothing_is_said() -> None:
    said: list[str] = []
    with FakeChat() as server:
        form_of(server, said)
    assert said == []
