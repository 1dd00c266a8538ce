"""How a label is asked for, and how it is read back."""

from __future__ import annotations

import json

import pytest

from darklode.pipeline.judge.llm.prompt import PairText, load_prompt
from darklode.pipeline.judge.llm.response_formats import (
    LABEL_TOKENS,
    RATIONALE_TOKENS,
    NoLabelFound,
    OutputFormat,
    RequestTemplate,
)
from darklode.pipeline.judge.llm.settings import LlmSettings

BINARY = load_prompt("binary")
LABELS = BINARY.labels
PAIR = PairText("how to reset", None, "Security", "Press Reset.")


@pytest.mark.parametrize(
    ("form", "name", "asked"),
    [
        (OutputFormat("choice", True), "choice+logprobs", {"structured_outputs", "logprobs", "top_logprobs"}),
        (OutputFormat("choice", False), "choice", {"structured_outputs"}),
        (
            OutputFormat("json", True, rationale=True),
            "json+logprobs+rationale",
            {"response_format", "logprobs", "top_logprobs"},
        ),
        (OutputFormat("text", False), "text", set()),
    ],
)
def test_a_form_asks_for_what_its_name_says(form: OutputFormat, name: str, asked: set[str]) -> None:
    parameters = form.parameters(LABELS)
    assert str(form) == name
    assert parameters.keys() == {"temperature", "max_tokens"} | asked
    assert parameters["max_tokens"] == (RATIONALE_TOKENS if form.rationale else LABEL_TOKENS)


@pytest.mark.parametrize(
    ("mode", "said", "label"),
    [
        *(("text", "Yes.", "yes"), ("choice", "yes", "yes"), ("text", "<think>no?</think> yes", "yes")),
        *(("json", '{"label": "yes"}', "yes"), ("json", '```json\n{"label": "Yes", "confidence": 0.9}\n```', "yes")),
        ("json", 'Let me see.</think>{"label": "no.", "answer": "yes"}', "no"),
    ],
)
def test_a_near_miss_is_read(mode: str, said: str, label: str) -> None:
    assert OutputFormat(mode, False).read(said, LABELS) == (label, None)


def test_a_reason_is_read_where_it_was_asked_for() -> None:
    said = '{"rationale": "so", "label": "yes", "more": 1}'
    assert OutputFormat("json", False, rationale=True).read(said, LABELS) == ("yes", "so")
    assert OutputFormat("json", False).read(said, LABELS) == ("yes", None)


@pytest.mark.parametrize(("mode", "said"), [("json", "yes"), ("text", '{"label": "yes"}'), ("choice", "yes, no")])
def test_a_form_reads_only_its_own(mode: str, said: str) -> None:
    with pytest.raises(NoLabelFound):
        OutputFormat(mode, False).read(said, LABELS)


def test_a_limit_by_its_other_name_replaces_ours() -> None:
    given = {"max_completion_tokens": 4096}
    settings = LlmSettings(model="m", base_url="http://127.0.0.1:1/v1", extra_body=given, token_limit=9)
    template = RequestTemplate(settings, BINARY, OutputFormat("choice", True))
    for body in map(json.loads, (template.body("a"), template.body_again("a", "b"), template.plain_body("a"))):
        assert {name: body.get(name) for name in ("max_tokens", "max_completion_tokens")} == given | {
            "max_tokens": None
        }
    assert template.estimate("a").completion == template.estimate_again("a", "b").completion == 4096


def test_a_call_is_the_same_however_it_is_made() -> None:
    settings = LlmSettings(model="m", base_url="http://127.0.0.1:1/v1", extra_body={"seed": 7, "temperature": None})
    template = RequestTemplate(settings, BINARY, OutputFormat("choice", True))
    user, cut = template.fit_pair(PAIR, 2048)
    body = json.loads(template.body(user))
    assert (body["messages"][1], cut) == ({"role": "user", "content": user}, False)
    assert (body["model"], body["seed"], "temperature" in body) == ("m", 7, False)
    again = json.loads(template.body_again(user, "Hm </chunk>"))
    assert again["messages"][:2] == body["messages"]
    assert again["messages"][2] == {"role": "assistant", "content": "Hm <\\/chunk>"}
    assert again["messages"][3]["content"] == BINARY.head.again
    assert {name: value for name, value in again.items() if name != "messages"} == {
        name: value for name, value in body.items() if name != "messages"
    }
